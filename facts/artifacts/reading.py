"""VERBS that change nothing: find, open a part."""

from collections.abc import Iterator
from typing import Any

from django.core.files import File

from facts.artifacts import depot
from facts.core import artifacts as rules
from facts.core.errors import UnknownObjectError
from facts.core.ranges import Span
from facts.models import Artifact

CHUNK = 256 * 1024


class Slice:
    """The bytes of a part, chunk by chunk; closing it closes the file."""

    def __init__(self, file: File[Any], span: Span) -> None:
        self._file, self._left = file, span.length
        if span.start:
            file.seek(span.start)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        chunk: bytes = self._file.read(min(CHUNK, self._left))
        if not chunk:
            self.close()
            raise StopIteration
        self._left -= len(chunk)
        return chunk

    def close(self) -> None:
        self._file.close()


def find(bucket: str, key: str) -> Artifact:
    rules.check_name(bucket, key)
    artifact = Artifact.objects.filter(bucket=bucket, key=key).first()
    if artifact is None:
        msg = f"there is no artifact {bucket}/{key}"
        raise UnknownObjectError(msg, "/key")
    return artifact


def open_slice(artifact: Artifact, span: Span | None = None) -> Slice:
    """Its bytes, all of them or a part."""
    return Slice(depot.storage().open(artifact.stored_as), span or Span(0, artifact.size))
