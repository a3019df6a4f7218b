"""Translates HTTP answers and transport errors into results, without the secrets of the request."""

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx

from engines.core.redaction import HIDDEN
from providers.core.errors import (
    ProviderError,
    ProviderInternalError,
    ProviderResponseFormatError,
    canonical,
    error_text,
    from_status,
)
from providers.core.exchange import ProviderAnswer
from providers.core.retry import clock_of, seconds_of

# Of an answer that tells of a failure, more is not worth the wait.
OF_A_FAILURE = 4096
# Mistakes of ours, though httpx counts them among the troubles of transport.
OURS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL)
# What describes the body on its way; a body that has arrived is none of it.
DECODED = {"gzip", "x-gzip", "deflate"}
GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
OF_THE_TRANSFER = ("content-encoding", "content-length", "transfer-encoding")
# Shorter ones are words: hiding them would make a message unreadable and keep no secret.
SHORTEST = 6
# What may be told of a request; every other header may be a credential.
OPEN = {
    *("accept", "accept-encoding", "accept-language", "connection", "content-length", "content-type", "host"),
    *("traceparent", "tracestate", "user-agent"),
}
SECRET = re.compile(r"(?i)key|token|secret|pass|sign|auth|credential|session")


class Body:
    """The body of an answer as it arrives: of a success all of it or an error, of a failure the beginning.

    It is decoded piece by piece, and no further than is taken: a small answer may hold a very large one.
    """

    def __init__(self, response: httpx.Response, most: int) -> None:
        self._response = response
        self._most = most if response.is_success else OF_A_FAILURE
        self._content = bytearray()
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if response.is_success and encoding not in {"identity", *DECODED}:
            msg = f"the answer has an encoding that was not asked for: {encoding[:50]}"
            raise ProviderResponseFormatError(msg, http_status=response.status_code)
        self._is_encoded, self._is_first = encoding in DECODED, encoding == "deflate"
        self._decoder = zlib.decompressobj(GZIP_OR_ZLIB)
        declared = response.headers.get("content-length", "")
        if response.is_success and declared.isdecimal() and int(declared) > most:
            raise self._too_large()

    def takes(self, chunk: bytes) -> bool:
        """Take a piece as it has arrived; whether more is wanted."""
        self._content += self._decoded(chunk) if self._is_encoded else chunk
        self._is_first = False
        if len(self._content) <= self._most:
            return True
        if self._response.is_success:
            raise self._too_large()
        return False

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Around the reading: a failure whose explanation is cut off is that failure all the same."""
        try:
            yield
        except (httpx.HTTPError, TimeoutError):
            if self._response.is_success:
                raise

    def whole(self) -> bytes:
        """All that was taken, once nothing more comes; a success that was cut off is none."""
        if self._response.is_success and self._is_encoded and self._content and not self._decoder.eof:
            msg = "the answer ends before its compressed body does"
            raise ProviderResponseFormatError(msg, http_status=self._response.status_code)
        return bytes(self._content)

    def _decoded(self, chunk: bytes) -> bytes:
        """A piece as far as it is wanted: one byte more than may be taken tells that there is too much."""
        wanted = self._most + 1 - len(self._content)
        try:
            return self._decoder.decompress(chunk, wanted)
        except zlib.error as error:
            if self._is_first:  # some servers write `deflate` without its frame
                self._is_first, self._decoder = False, zlib.decompressobj(-zlib.MAX_WBITS)
                return self._decoded(chunk)
            if not self._response.is_success:
                return b""
            msg = f"the answer cannot be decompressed: {error}"
            raise ProviderResponseFormatError(msg, http_status=self._response.status_code) from error

    def _too_large(self) -> ProviderError:
        msg = f"the answer is larger than {self._most} bytes"
        return ProviderResponseFormatError(msg, http_status=self._response.status_code)


class Hidden:
    """The secrets of one request."""

    def __init__(self, request: httpx.Request) -> None:
        values = _secrets(request)
        found = {form for value in values if len(value) >= SHORTEST for form in (value, quote(value, safe=""))}
        # The longest first: it may hold the others.
        longest_first = sorted(found, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def clean(self, text: str) -> str:
        return self._pattern.sub(HIDDEN, text)

    def is_told_by(self, error: BaseException) -> bool:
        """Whether the text of an error, or of one of its causes, holds a secret."""
        seen: BaseException | None = error
        while seen is not None:
            if self._pattern.search(f"{seen!r} {seen}"):
                return True
            seen = seen.__cause__ or seen.__context__
        return False


def understood(
    response: httpx.Response, body: bytes, read: Callable[[httpx.Response], dict[str, Any]], hidden: Hidden
) -> dict[str, Any]:
    """The content of a success; raises the error of anything else."""
    status = response.status_code
    if not response.is_success:
        said = hidden.clean(body.decode(errors="replace")).strip()
        at = clock_of(response.headers.get("date"), datetime.now(UTC))
        pause = seconds_of(response.headers.get("retry-after"), at)
        raise from_status(status, f"HTTP {status}: {said}" if said else f"HTTP {status}", retry_after=pause)
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in OF_THE_TRANSFER]
    whole = httpx.Response(status, headers=headers, content=body, request=response.request)
    try:
        answer = read(whole)
    except ProviderError:
        raise
    except Exception as error:  # noqa: BLE001 (a hook may raise anything)
        msg = hidden.clean(f"the answer cannot be read: {error_text(error)}")
        raise ProviderResponseFormatError(msg, http_status=status) from cause_of(error, hidden)
    # Whatever else it may be is refused as an answer that is none.
    return ProviderAnswer(answer, http_status=status) if isinstance(answer, dict) else answer


def silence(error: Exception, hidden: Hidden, *, may_have_left: bool = False) -> ProviderError:
    """The provider error for an exception that was raised instead of an answer."""
    if isinstance(error, ProviderError):
        return error
    if isinstance(error, httpx.LocalProtocolError):
        # Its text repeats the header at fault, in a spelling that is not that of the header's value.
        return ProviderInternalError("the request cannot be sent as HTTP", never_left=True)
    if isinstance(error, OURS):
        return ProviderInternalError(hidden.clean(error_text(error)), never_left=True)
    found = canonical(error)
    text = hidden.clean(error_text(error))
    return type(found)(text, never_left=found.never_left and not may_have_left, is_passing=found.is_passing)


def cause_of(error: Exception, hidden: Hidden) -> BaseException | None:
    """The cause to chain to a provider error; none if its text holds a secret, because causes are logged."""
    origin = error.__cause__ if isinstance(error, ProviderError) else error
    if isinstance(origin, httpx.LocalProtocolError):
        return None
    return None if origin is None or hidden.is_told_by(origin) else origin


def _secrets(request: httpx.Request) -> Iterator[str]:
    for name, value in request.headers.items():
        if name not in OPEN:
            yield value
            for word in value.split():
                yield word
                yield from _inside(word)
    yield from (value for name, value in request.url.params.multi_items() if SECRET.search(name))
    yield request.url.password
    yield request.url.userinfo.decode()


def _inside(word: str) -> Iterator[str]:
    """A user and a password, as basic authentication writes them."""
    try:
        plain = base64.b64decode(word, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    if ":" in plain:
        yield plain
        yield plain.partition(":")[2]
