"""Parses `Range` headers (RFC 9110)."""

import re
from typing import NamedTuple

# More digits than any artifact has bytes, and few enough to read.
SINGLE = re.compile(r"\s*bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*", re.ASCII | re.IGNORECASE)


class Span(NamedTuple):
    """From the first byte to the one after the last."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


class UnsatisfiableError(Exception):
    """The range begins behind the end."""


def span_in(header: str, size: int) -> Span | None:
    """The part that is asked for; None for the whole, which also answers what is no range or more than one."""
    parts = SINGLE.fullmatch(header)
    if parts is None or not (parts[1] or parts[2]):
        return None
    first, last = parts[1], parts[2]
    if first and last and int(last) < int(first):
        return None
    start = int(first) if first else max(0, size - int(last))
    if start >= size:
        raise UnsatisfiableError
    return Span(start, min(int(last) + 1, size) if first and last else size)
