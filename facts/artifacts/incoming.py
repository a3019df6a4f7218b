"""Bytes on their way in: measured and hashed as they pass, never kept."""

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple, Protocol

from facts.core.artifacts import PREFIX
from facts.core.errors import DigestMismatchError, InvalidFactError, PayloadTooLargeError

CHUNK = 256 * 1024


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Announced(NamedTuple):
    """The facts about a stream that are known before its end."""

    size: int | None = None
    digest: str | None = None
    # No if its end cannot be told from a break.
    is_whole: bool = True


NOTHING = Announced()


class Incoming:
    """A stream as storages want it. It ends with an error as soon as it is larger than allowed."""

    closed = False

    def __init__(self, stream: Readable, limit: int) -> None:
        self._stream, self._limit = stream, limit
        self._hash = sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        return PREFIX + self._hash.hexdigest()

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes, fewer only at the end; without a size, all that are left."""
        parts = []
        while size and (part := self._take(size)):
            parts.append(part)
            size -= len(part) if size > 0 else 0
        return b"".join(parts)

    def chunks(self, chunk_size: int | None = None) -> Iterator[bytes]:
        while chunk := self._take(chunk_size or CHUNK):
            yield chunk

    def _take(self, most: int) -> bytes:
        chunk = self._stream.read(min(most, CHUNK) if most > 0 else CHUNK)
        self.size += len(chunk)
        check_size(self.size, self._limit)
        self._hash.update(chunk)
        return chunk

    def seekable(self) -> bool:
        return False

    def check(self, announced: Announced) -> None:
        """Whether it is all, and what was announced."""
        if announced.size not in {None, self.size}:
            msg = f"the body ended after {self.size:,} of {announced.size:,} bytes"
            raise InvalidFactError(msg)
        if announced.digest not in {None, self.digest}:
            msg = f"the digest of what arrived is {self.digest}, not {announced.digest}"
            raise DigestMismatchError(msg)


def check_size(size: int, limit: int) -> None:
    if size > limit:
        msg = f"an artifact may have {limit:,} bytes"
        raise PayloadTooLargeError(msg)
