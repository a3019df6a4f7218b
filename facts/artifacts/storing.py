"""VERB: put. The first bytes under a key stay; the same bytes again get the same answer, and mend damaged ones."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import structlog
from django.db import transaction
from django.db.models.functions import Now

from ergon_site.access.database.retrying import retry_conflicts
from facts.artifacts import depot
from facts.artifacts.incoming import CHUNK, NOTHING, Announced, Incoming, Readable, check_size
from facts.conf import settings
from facts.core import artifacts as rules
from facts.core.errors import FactError, ObjectConflictError
from facts.models import Artifact

log = structlog.get_logger("ergon.facts")
# What an upload says of itself.
TOLD = ("media_type", "created_by", "is_whole", "stored_as", "size", "digest")


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
    limit = settings().limits.artifact
    check_size(announced.size or 0, limit)
    incoming = Incoming(stream, limit)
    known = _meet_again(bucket, key)
    if known is not None and known.is_whole and not known.damage:
        # Nothing has to be stored to see whether it is the same.
        for _ in incoming.chunks():
            pass
        incoming.check(announced)
        return _judge(known, incoming)
    upload = Artifact(bucket=bucket, key=key, media_type=media_type, created_by=by, is_whole=announced.is_whole)
    return _store(upload, incoming, announced)


def _meet_again(bucket: str, key: str) -> Artifact | None:
    """The artifact that is there already. It is wanted, so its age as an orphan begins anew."""
    Artifact.objects.filter(bucket=bucket, key=key).update(put_at=Now())
    return Artifact.objects.filter(bucket=bucket, key=key).first()


def _store(upload: Artifact, incoming: Incoming, announced: Announced) -> Put:
    upload.stored_as = depot.new_name()
    depot.save(upload.stored_as, incoming)
    try:
        incoming.check(announced)
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
        if artifact.damage and (artifact.digest, artifact.size) == (incoming.digest, incoming.size):
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
    return is_open and there.size < upload.size and _beginning(upload.stored_as, there.size) == there.digest


def _beginning(name: str, size: int) -> str:
    found = sha256()
    with depot.storage().open(name) as file:
        while size and (chunk := file.read(min(size, CHUNK))):
            found.update(chunk)
            size -= len(chunk)
    return rules.PREFIX + found.hexdigest()


def _replace(artifact: Artifact, told: Mapping[str, Any]) -> None:
    earlier = artifact.stored_as
    Artifact.objects.filter(pk=artifact.pk).update(**told, put_at=Now())
    artifact.refresh_from_db()
    transaction.on_commit(lambda: depot.discard(earlier))
