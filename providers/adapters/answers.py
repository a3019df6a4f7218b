"""Translates HTTP answers and transport errors into results."""

from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from providers.adapters.hiding import Hidden
from providers.core.errors import (
    ProviderError,
    ProviderInternalError,
    ProviderResponseFormatError,
    canonical,
    error_text,
    from_status,
)
from providers.core.exchange import ProviderAnswer
from providers.core.retry import seconds_of

# Of an answer that tells of a failure, more is not worth the wait.
OF_A_FAILURE = 4096
# Mistakes of ours, though httpx counts them among the troubles of transport.
OURS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL)
# What describes the body on its way; a body that has arrived is none of it.
OF_THE_TRANSFER = ("content-encoding", "content-length", "transfer-encoding")


class Body:
    """The body of an answer as it arrives: of a success all of it or an error, of a failure the beginning."""

    def __init__(self, response: httpx.Response, most: int) -> None:
        self._response = response
        self._most = most if response.is_success else OF_A_FAILURE
        self._content = bytearray()
        declared = response.headers.get("content-length", "")
        if response.is_success and declared.isdecimal() and int(declared) > most:
            raise self._too_large()

    def takes(self, chunk: bytes) -> bool:
        """Take a piece; whether more is wanted."""
        self._content += chunk
        if len(self._content) <= self._most:
            return True
        if self._response.is_success:
            raise self._too_large()
        return False

    def __bytes__(self) -> bytes:
        return bytes(self._content)

    def _too_large(self) -> ProviderError:
        msg = f"the answer is larger than {self._most} bytes"
        return ProviderResponseFormatError(msg, http_status=self._response.status_code)


def understood(
    response: httpx.Response, body: bytes, read: Callable[[httpx.Response], dict[str, Any]], hidden: Hidden
) -> dict[str, Any]:
    """The content of a success; raises the error of anything else."""
    if not response.is_success:
        raise _failure(response, body, hidden)
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in OF_THE_TRANSFER]
    whole = httpx.Response(response.status_code, headers=headers, content=body, request=response.request)
    try:
        answer = read(whole)
    except ProviderError:
        raise
    except Exception as error:  # noqa: BLE001 (a hook may raise anything)
        msg = hidden.clean(f"the answer cannot be read: {error_text(error)}")
        raise ProviderResponseFormatError(msg, http_status=response.status_code) from cause_of(error, hidden)
    # Whatever else it may be is refused as an answer that is none.
    return ProviderAnswer(answer, http_status=response.status_code) if isinstance(answer, dict) else answer


def silence(error: Exception, hidden: Hidden) -> ProviderError:
    """The provider error for an exception that was raised instead of an answer."""
    if isinstance(error, ProviderError):
        return error
    if isinstance(error, httpx.LocalProtocolError):
        # Its text repeats the header at fault, in a spelling that is not that of the header's value.
        return ProviderInternalError("the request cannot be sent as HTTP", never_left=True)
    if isinstance(error, OURS):
        return ProviderInternalError(hidden.clean(error_text(error)), never_left=True)
    found = canonical(error)
    return type(found)(hidden.clean(error_text(error)), never_left=found.never_left)


def cause_of(error: Exception, hidden: Hidden) -> BaseException | None:
    """The cause to chain to a provider error; none if its text holds a secret, because causes are logged."""
    origin = error.__cause__ if isinstance(error, ProviderError) else error
    if isinstance(origin, httpx.LocalProtocolError):
        return None
    return None if origin is None or hidden.is_told_by(origin) else origin


def _failure(response: httpx.Response, body: bytes, hidden: Hidden) -> ProviderError:
    status = response.status_code
    said = hidden.clean(body.decode(errors="replace")).strip()
    pause = seconds_of(response.headers.get("retry-after"), _moment_of(response))
    return from_status(status, f"HTTP {status}: {said}" if said else f"HTTP {status}", retry_after=pause)


def _moment_of(response: httpx.Response) -> datetime:
    """The time by the provider's own clock, which a date in Retry-After goes by; by ours if it does not tell."""
    try:
        at = parsedate_to_datetime(response.headers["date"])
    except (KeyError, ValueError, OverflowError):
        return datetime.now(UTC)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
