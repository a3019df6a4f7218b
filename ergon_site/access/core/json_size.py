"""Estimates the memory that a JSON text takes while it is parsed, before it is.

Three bytes make an empty list, which takes seventy in memory, and one wide character makes a long string four times as
large: the length of a text says little. The figures below are what a part was measured to take at most, beyond the
text of it; they hold also for an object of very many names, whose table is copied when it grows.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

CONTAINER, VALUE, NAME = 130, 75, 93
_CONTINUATION = bytes(range(0x80, 0xC0))
_WIDE, _WIDEST = re.compile(rb"[\xc4-\xef]"), re.compile(rb"[\xf0-\xf4]")
_ESCAPE, _NO_ESCAPE = b"\\u", b"\\\\u"
_SURROGATE = re.compile(rb"\\u[dD][89abAB]")
_AT_ONCE = 64 * 1024
# Possessive: a text with a quotation mark too few is not looked at over and over.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class Parts(NamedTuple):
    """Lists and objects; values, of which each but the first of its list follows a comma; names of fields."""

    containers: int
    values: int
    names: int

    @property
    def size(self) -> int:
        return CONTAINER * self.containers + VALUE * self.values + NAME * self.names


class Size(NamedTuple):
    """The bytes that a JSON text takes at most: as it came, as one string, as the strings of its value; its parts."""

    body: int
    decoded: int
    strings: int
    parts: Parts

    @property
    def of_copying(self) -> int:
        """For a parser that makes a copy of the body and the value from that."""
        return 2 * self.body + self.strings + self.parts.size

    @property
    def of_decoding(self) -> int:
        """For a parser that makes one string of the body and the value from that."""
        return self.body + self.decoded + self.strings + self.parts.size


def sizes(body: bytes | bytearray, most: int) -> Iterator[Size]:
    """The size of a text roughly, which is never too small, and then exactly, which takes longer.

    A text that has so many strings that they alone take more than `most` is not looked at exactly.
    """
    whole = Span(body, 0, len(body))
    rough = Size(len(body), whole.decoded, whole.held, whole.parts)
    yield rough
    strings = (body.count(b'"') - body.count(b'\\"')) // 2
    if VALUE * strings > most:
        return
    # Characters within strings are no parts, and a wide one widens its own string only.
    containers, values, names = rough.parts
    is_plain, held = body.isascii() and _ESCAPE not in body, 0
    for string in _STRING.finditer(body):
        span = Span(body, *string.span())
        inside = span.parts
        containers -= inside.containers
        values -= inside.values
        names -= inside.names
        held += span.length if is_plain else span.held
    yield rough._replace(strings=held, parts=Parts(containers, values, names))


class Span(NamedTuple):
    """A part of a body. Never copied as a whole: that would cost what is to be saved."""

    body: bytes | bytearray
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def parts(self) -> Parts:
        return Parts(self._count(b"[") + self._count(b"{"), self._count(b","), self._count(b":"))

    @property
    def decoded(self) -> int:
        """What it takes as one string. While a wide character widens that, there are two of it."""
        width = self._width
        return self.length if width == 1 else self._characters * (width + 1)

    @property
    def held(self) -> int:
        """What it takes as a string of a value: each character as much as the widest of them.

        One with escapes grows while it is made: a quarter of it is to spare, and while it widens there are two of it.
        """
        escapes = self._count(_ESCAPE)
        if not escapes:
            width = self._width
            return self.length if width == 1 else self._characters * width
        characters = self._characters - 5 * max(0, escapes - self._count(_NO_ESCAPE))
        is_widest = _WIDEST.search(*self) or _SURROGATE.search(*self)
        return characters * (7 if is_widest else 4)

    @property
    def _width(self) -> int:
        """The bytes of its widest character in memory."""
        if self._characters == self.length:
            return 1
        return 4 if _WIDEST.search(*self) else 2 if _WIDE.search(*self) else 1

    @property
    def _characters(self) -> int:
        pieces = (self.body[at : min(at + _AT_ONCE, self.end)] for at in range(self.start, self.end, _AT_ONCE))
        return sum(len(piece if piece.isascii() else piece.translate(None, _CONTINUATION)) for piece in pieces)

    def _count(self, mark: bytes) -> int:
        return self.body.count(mark, self.start, self.end)
