"""Lines out of a stream of bytes, none longer than a limit."""

from collections.abc import Iterator
from typing import NamedTuple

LINE_LIMIT = 16 * 1024 * 1024


class TooLong(NamedTuple):
    """A line over the limit, and how it begins; the rest of it is let go."""

    beginning: bytes


class Lines:
    """Cuts a stream of bytes into lines. What has no end yet is kept, up to a limit."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._begun: list[bytes] = []
        self._length = 0

    def feed(self, chunk: bytes) -> Iterator[bytes | TooLong]:
        """The lines that end in this chunk, and the beginning of one that has grown beyond the limit."""
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            yield from self._keep(line)
            if self._length <= self._limit:
                yield b"".join(self._begun)
            self._begun, self._length = [], 0
        if rest:
            yield from self._keep(rest)

    @property
    def begun(self) -> bytes:
        """The bytes after the last end of a line."""
        return b"".join(self._begun)

    @property
    def is_mid_line(self) -> bool:
        return self._length > 0

    def _keep(self, piece: bytes) -> Iterator[TooLong]:
        was_kept = self._length <= self._limit
        self._length += len(piece)
        if self._length <= self._limit:
            self._begun.append(piece)
        elif was_kept:
            beginning = b"".join([*self._begun, piece])[: self._limit]
            self._begun = []
            yield TooLong(beginning)
