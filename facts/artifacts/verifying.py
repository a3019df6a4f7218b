"""VERBS: note damage, verify. The bytes of an artifact are compared with its digest, now and again."""

import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain

import structlog
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from ergon_site.access.database.calls import short_transaction
from facts.artifacts import depot
from facts.conf import settings
from facts.core.artifacts import Damage
from facts.core.errors import ArtifactUnavailableError, StorageUnavailableError
from facts.models import Artifact

BATCH = 100
# How long one sweep may read; the next one goes on from there.
LONGEST = 300.0

log = structlog.get_logger("ergon.facts")


def refusal(artifact: Artifact, damage: Damage) -> ArtifactUnavailableError:
    """Why its bytes are not given out."""
    what = "are missing" if damage is Damage.MISSING else "are not those that were uploaded"
    msg = f"the bytes of {artifact} {what}: upload them again under the same key"
    return ArtifactUnavailableError(msg, "/key")


def damaged(artifact: Artifact, damage: Damage) -> ArtifactUnavailableError:
    """Write down that the bytes are damaged, raise the alarm, and return the refusal."""
    _row(artifact).update(damage=damage.value, verified_at=Now())
    log.error("artifact_damaged", artifact=str(artifact), damage=damage.value, stored_as=artifact.stored_as)
    return refusal(artifact, damage)


def verify(longest: float = LONGEST) -> int:
    """Read artifacts whose turn it is, those never read first; how many are damaged.

    Damaged ones are read each time: whoever has brought the bytes back has not told anybody.
    """
    until = time.monotonic() + longest
    found = 0
    for artifact in chain(_damaged(), _due()):
        if time.monotonic() >= until:
            break
        found += _verify(artifact)
    return found


def _damaged() -> Iterator[Artifact]:
    last = 0
    while some := list(Artifact.objects.exclude(damage="").filter(pk__gt=last).order_by("pk")[:BATCH]):
        yield from some
        last = some[-1].pk


def _due() -> Iterator[Artifact]:
    """Each is no longer due once it has been verified; one that was passed by is due next time."""
    age = settings().verify_age
    if not age:
        return
    is_due = Q(verified_at__isnull=True) | Q(verified_at__lt=Now() - timedelta(seconds=age))
    unverified = Artifact.objects.filter(is_due, damage="").order_by(F("verified_at").asc(nulls_first=True))
    seen: set[int] = set()
    while some := list(unverified.exclude(pk__in=seen)[:BATCH]):
        yield from some
        seen = set(unverified.filter(pk__in=[*seen, *(one.pk for one in some)]).values_list("pk", flat=True))


def _verify(artifact: Artifact) -> bool:
    """Whether it is damaged."""
    try:
        is_same = depot.digest_of(artifact.stored_as, artifact.size) == artifact.digest
        damage = None if is_same else Damage.CORRUPT
    except FileNotFoundError:
        # Its row goes first: of an artifact that is being swept nothing is missing.
        damage = Damage.MISSING if _row(artifact).exists() else None
    except (OSError, StorageUnavailableError) as error:
        # It may pass: the next sweep reads it, and the others do not have to wait for that.
        log.warning("artifact_unreadable", artifact=str(artifact), error=str(error))
        return bool(artifact.damage)
    if damage:
        damaged(artifact, damage)
        return True
    with short_transaction():
        # One that a fact is about to refer to is passed by, not waited for.
        if _row(artifact).select_for_update(skip_locked=True).first() is not None:
            _row(artifact).update(damage="", verified_at=Now())
    if artifact.damage:
        log.warning("artifact_restored", artifact=str(artifact))
    return False


def _row(artifact: Artifact) -> QuerySet[Artifact]:
    """The artifact, as long as its bytes are the same: they may have been uploaded anew meanwhile."""
    return Artifact.objects.filter(pk=artifact.pk, stored_as=artifact.stored_as)
