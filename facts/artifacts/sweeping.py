"""VERBS: list orphans, sweep. What no fact refers to goes when it is old; what one refers to never does."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from ergon_site.access import audit
from facts.artifacts import depot, verifying
from facts.conf import settings
from facts.models import Artifact

BATCH = 500
LONGEST_TARGET = 300


def orphans(age: float | None = None) -> QuerySet[Artifact]:
    """Artifacts that no fact refers to, last uploaded so many seconds ago; the oldest first."""
    old = timedelta(seconds=settings().orphan_age if age is None else age)
    return Artifact.objects.filter(is_referenced=False, put_at__lt=Now() - old).order_by("put_at")


def sweep(*, age: float | None = None, by: str = "sweep", reason: str = "") -> int:
    """Remove old orphans, and bytes that no row knows; how many. What stays is verified when its turn comes."""
    age = settings().orphan_age if age is None else age
    swept = _sweep_orphans(age, by, reason) + _sweep_strays(age, by, reason)
    verifying.verify()
    return swept


def _sweep_orphans(age: float, by: str, reason: str) -> int:
    swept = 0
    # Once, as they are now: one that a fact is about to refer to is passed by, not waited for.
    for pk in list(orphans(age).values_list("pk", flat=True)):
        swept += _sweep_orphan(pk, age, by, reason)
    return swept


def _sweep_orphan(pk: int, age: float, by: str, reason: str) -> bool:
    with transaction.atomic():
        artifact = orphans(age).select_for_update(skip_locked=True).filter(pk=pk).first()
        if artifact is None:
            return False
        artifact.delete()
        _record(artifact, by, reason)
    # If this is where the process ends, the next sweep finds a stray.
    depot.discard(artifact.stored_as)
    return True


def _record(artifact: Artifact, by: str, reason: str) -> None:
    names = ("bucket", "key", "digest", "size", "media_type", "created_by")
    before = {name: getattr(artifact, name) for name in names}
    target = f"artifact {artifact}"[:LONGEST_TARGET]
    audit.record(actor=by, action="artifact.sweep", target=target, reason=reason, before=before)


def _sweep_strays(age: float, by: str, reason: str) -> int:
    """Bytes without a row: of uploads that ended with their process."""
    before = timezone.now() - timedelta(seconds=age)
    swept = [name for name in _strays() if _is_older(name, before) and _sweep_stray(name)]
    if swept:
        told = {"count": len(swept), "names": swept[:BATCH]}
        audit.record(actor=by, action="artifact.sweep", target="bytes without a row", reason=reason, before=told)
    return len(swept)


def _strays() -> Iterator[str]:
    names = depot.names()
    while batch := list(islice(names, BATCH)):
        yield from _without_row(batch)


def _without_row(names: Iterable[str]) -> list[str]:
    known = set(Artifact.objects.filter(stored_as__in=names).values_list("stored_as", flat=True))
    return [name for name in names if name not in known]


def _is_older(name: str, before: datetime) -> bool:
    try:
        return depot.storage().get_modified_time(name) < before
    except FileNotFoundError:
        return False


def _sweep_stray(name: str) -> bool:
    """Remove it unless its row is being written: whoever writes the name first has it."""
    try:
        with transaction.atomic():
            Artifact.objects.create(bucket="", key=name, digest="", size=0, media_type="", stored_as=name)
            depot.discard(name)
            transaction.set_rollback(True)
    except IntegrityError:
        return False
    return True
