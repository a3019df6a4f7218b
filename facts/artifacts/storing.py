"""VERB: put. The first bytes under a key stay; the same bytes again get the same answer, and mend damaged ones."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import structlog
from django.db import transaction
from django.db.models.functions import Now

from ergon_site.access.database.calls import retry_conflicts
from facts.artifacts import depot
from facts.conf import settings
from facts.core import artifacts as rules
from facts.core.errors import (
    DigestMismatchError,
    FactError,
    InvalidFactError,
    ObjectConflictError,
    PayloadTooLargeError,
)
from facts.models import Artifact

log = structlog.get_logger("ergon.facts")
# What an upload says of itself.
TOLD = ("media_type", "created_by", "is_whole", "stored_as", "size", "digest")
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

    def __init__(self, stream: Readable, limit: int, announced: Announced = NOTHING) -> None:
        self._stream, self._limit, self._announced = stream, limit, announced
        self._hash = sha256()
        self.size = 0
        self._check_size(announced.size or 0)

    @property
    def digest(self) -> str:
        return rules.PREFIX + self._hash.hexdigest()

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
        self._check_size(self.size)
        self._hash.update(chunk)
        return chunk

    def seekable(self) -> bool:
        return False

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            msg = f"an artifact may have {self._limit:,} bytes"
            raise PayloadTooLargeError(msg)

    def check(self) -> None:
        """Whether it is all, and what was announced."""
        announced = self._announced
        if announced.size not in {None, self.size}:
            msg = f"the body ended after {self.size:,} of {announced.size:,} bytes"
            raise InvalidFactError(msg)
        if announced.digest not in {None, self.digest}:
            msg = f"the digest of what arrived is {self.digest}, not {announced.digest}"
            raise DigestMismatchError(msg)


class Put(NamedTuple):
    """The artifact under a key, and whether this upload made it."""

    artifact: Artifact
    is_new: bool


def put(
    bucket: str,
    key: str,
    stream: Readable,
    *,
    by: str,
    media_type: str = rules.UNKNOWN_TYPE,
    announced: Announced = NOTHING,
) -> Put:
    """Keep what a stream holds, up to its end; refuse what is not as it was announced."""
    rules.check_name(bucket, key)
    rules.check_media_type(media_type)
    incoming = Incoming(stream, settings().limits.artifact, announced)
    # The artifact that is there already is wanted: its age as an orphan begins anew.
    named = Artifact.objects.filter(bucket=bucket, key=key)
    named.update(put_at=Now())
    known = named.first()
    if known is not None and known.is_whole and not known.damage:
        # Nothing has to be stored to see whether it is the same.
        for _ in incoming.chunks():
            pass
        incoming.check()
        return _judge(known, incoming)
    upload = Artifact(bucket=bucket, key=key, media_type=media_type, created_by=by, is_whole=announced.is_whole)
    upload.stored_as = depot.new_name()
    depot.save(upload.stored_as, incoming)
    try:
        incoming.check()
        upload.size, upload.digest = incoming.size, incoming.digest
        result = _record(upload, incoming)
    except FactError:
        depot.discard(upload.stored_as)
        raise
    # After any other error the row may have been committed all the same: the sweep decides.
    if result.artifact.stored_as != upload.stored_as:
        depot.discard(upload.stored_as)
    return result


@retry_conflicts
@transaction.atomic
def _record(upload: Artifact, incoming: Incoming) -> Put:
    told = {name: getattr(upload, name) for name in TOLD}
    artifact, is_new = Artifact.objects.get_or_create(bucket=upload.bucket, key=upload.key, defaults=told)
    if not is_new and (artifact.damage or not artifact.is_whole):
        artifact = Artifact.objects.select_for_update().get(pk=artifact.pk)
        is_same = (artifact.digest, artifact.size) == (incoming.digest, incoming.size)
        if is_same and upload.is_whole:
            Artifact.objects.filter(pk=artifact.pk).update(is_whole=True)
            artifact.is_whole = True
        if artifact.damage and is_same:
            _replace(artifact, {"stored_as": upload.stored_as, "damage": "", "verified_at": None})
            log.warning("artifact_restored", artifact=str(artifact))
        elif is_new := _was_broken_off(artifact, upload):
            _replace(artifact, told)
    if not is_new and artifact.stored_as != upload.stored_as:
        return _judge(artifact, incoming)
    # A sweep that took the bytes for strays is over by now: it writes their name first, too.
    if not depot.is_there(upload.stored_as):
        msg = "the bytes were swept before they were recorded: the upload paused for too long"
        raise OSError(msg)
    return Put(artifact, is_new)


def _judge(artifact: Artifact, incoming: Incoming) -> Put:
    if (artifact.digest, artifact.size) != (incoming.digest, incoming.size):
        msg = f"{artifact} already exists with other bytes: {artifact.size:,} with {artifact.digest}; use another key"
        raise ObjectConflictError(msg, "/key")
    return Put(artifact, is_new=False)


def _was_broken_off(there: Artifact, upload: Artifact) -> bool:
    """Whether what is there is only the beginning of this, of an upload whose end nobody could see.

    Some web servers hide that a client went away. Such an upload was never confirmed, and its retry must not be
    told that the key is taken.
    """
    is_open = not there.is_referenced and there.created_by == upload.created_by
    return is_open and there.size < upload.size and depot.digest_of(upload.stored_as, there.size) == there.digest


def _replace(artifact: Artifact, told: Mapping[str, Any]) -> None:
    earlier = artifact.stored_as
    Artifact.objects.filter(pk=artifact.pk).update(**told, put_at=Now())
    artifact.refresh_from_db()
    transaction.on_commit(lambda: depot.discard(earlier))
