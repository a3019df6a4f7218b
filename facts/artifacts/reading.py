"""VERBS that read: find, open the whole or a part."""

from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from facts.artifacts import depot, verifying
from facts.core import artifacts as rules
from facts.core.artifacts import Damage
from facts.core.errors import UnknownObjectError
from facts.core.ranges import Span
from facts.models import Artifact

if TYPE_CHECKING:
    from django.core.files import File

CHUNK = 256 * 1024


class Slice:
    """The bytes of a part, chunk by chunk; closing it closes the file."""

    def __init__(self, file: "File[Any]", span: Span) -> None:
        self._file, self._left = file, span.length
        if span.start:
            file.seek(span.start)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        chunk = self._read()
        if not chunk:
            self.close()
            raise StopIteration
        return chunk

    def close(self) -> None:
        self._file.close()

    def _read(self) -> bytes:
        chunk: bytes = self._file.read(min(CHUNK, self._left))
        self._left -= len(chunk)
        return chunk


class Whole(Slice):
    """All the bytes, hashed as they pass. The last chunk is given out only if they are those that were uploaded."""

    def __init__(self, file: "File[Any]", artifact: Artifact) -> None:
        super().__init__(file, Span(0, artifact.size))
        self._artifact, self._hash = artifact, sha256()
        # What fits into one chunk is judged before anything has been answered.
        self._ready = [self._read()] if 0 < artifact.size <= CHUNK else []

    def __next__(self) -> bytes:
        return self._ready.pop() if self._ready else super().__next__()

    def _read(self) -> bytes:
        chunk = super()._read()
        self._hash.update(chunk)
        is_last = not self._left or not chunk
        if is_last and rules.PREFIX + self._hash.hexdigest() != self._artifact.digest:
            self.close()
            raise verifying.damaged(self._artifact, Damage.CORRUPT)
        return chunk


def find(bucket: str, key: str) -> Artifact:
    """An artifact whose bytes can be given out, as far as is known."""
    rules.check_name(bucket, key)
    artifact = Artifact.objects.filter(bucket=bucket, key=key).first()
    if artifact is None:
        msg = f"there is no artifact {bucket}/{key}"
        raise UnknownObjectError(msg, "/key")
    if artifact.damage == Damage.CORRUPT:
        raise verifying.refusal(artifact, Damage.CORRUPT)
    return artifact


def check_there(artifact: Artifact) -> None:
    """Refuse what has no bytes in the storage."""
    if not depot.is_there(artifact.stored_as):
        raise verifying.damaged(artifact, Damage.MISSING)


def open_slice(artifact: Artifact, span: Span | None = None) -> Slice:
    """Its bytes, all of them or a part. All of them are compared with the digest while they are read."""
    try:
        file = depot.storage().open(artifact.stored_as)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise verifying.damaged(artifact, Damage.MISSING) from None
    if file.size < artifact.size:
        file.close()
        raise verifying.damaged(artifact, Damage.CORRUPT)
    everything = Span(0, artifact.size)
    return Whole(file, artifact) if span in (None, everything) else Slice(file, span)
