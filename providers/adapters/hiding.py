"""Secrets of a request, which are removed from every text about the call."""

import base64
import binascii
import re
from collections.abc import Iterator
from urllib.parse import quote

import httpx

from engines.core.redaction import HIDDEN

# Shorter ones are words: hiding them would make a message unreadable and keep no secret.
SHORTEST = 6
# What may be told of a request; every other header may be a credential.
OPEN = {
    *("accept", "accept-encoding", "accept-language", "connection", "content-length", "content-type", "host"),
    *("traceparent", "tracestate", "user-agent"),
}
SECRET = re.compile(r"(?i)key|token|secret|pass|sign|auth|credential|session")


class Hidden:
    """The secrets of one request."""

    def __init__(self, values: Iterator[str]) -> None:
        found = {form for value in values if len(value) >= SHORTEST for form in (value, quote(value, safe=""))}
        # The longest first: it may hold the others.
        longest_first = sorted(found, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def clean(self, text: str) -> str:
        return self._pattern.sub(HIDDEN, text)

    def is_told_by(self, error: BaseException) -> bool:
        """Whether an error, or what it came from, says one of them."""
        seen: BaseException | None = error
        while seen is not None:
            if self._pattern.search(f"{seen!r} {seen}"):
                return True
            seen = seen.__cause__ or seen.__context__
        return False


def secrets_of(request: httpx.Request) -> Hidden:
    return Hidden(_values(request))


def _values(request: httpx.Request) -> Iterator[str]:
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
