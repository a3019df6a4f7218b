"""VERBS: list orphans, sweep. What no fact refers to goes when it is old; what one refers to never does."""

from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from ergon_site.access import audit
from ergon_site.access.database.calls import short_transaction
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
    # Those that are there now.
    keys = list(orphans(age).values_list("pk", flat=True))
    swept = sum(sweep_orphan(pk, age=age, by=by, reason=reason) for pk in keys) + _sweep_strays(age, by, reason)
    verifying.verify()
    return swept


def sweep_orphan(pk: int, *, by: str, reason: str, age: float | None = None) -> bool:
    """Remove one artifact if it is an old orphan; whether it was."""
    with short_transaction():
        # One that a fact is about to refer to is passed by, not waited for.
        artifact = orphans(age).select_for_update(skip_locked=True).filter(pk=pk).first()
        if artifact is None:
            return False
        artifact.delete()
        names = ("bucket", "key", "digest", "size", "media_type", "created_by")
        before = {name: getattr(artifact, name) for name in names}
        target = f"artifact {artifact}"[:LONGEST_TARGET]
        audit.record(actor=by, action="artifact.sweep", target=target, reason=reason, before=before)
        # Once the row is gone for good. If this is where the process ends, the next sweep finds a stray.
        transaction.on_commit(partial(depot.discard, artifact.stored_as))
    return True


def _sweep_strays(age: float, by: str, reason: str) -> int:
    """Bytes without a row: of uploads that ended with their process."""
    before = timezone.now() - timedelta(seconds=age)
    names, swept = depot.names(), list[str]()
    while batch := list(islice(names, BATCH)):
        known = set(Artifact.objects.filter(stored_as__in=batch).values_list("stored_as", flat=True))
        swept += (name for name in batch if name not in known and _sweep_stray(name, before))
    if swept:
        told = {"count": len(swept), "names": swept[:BATCH]}
        audit.record(actor=by, action="artifact.sweep", target="bytes without a row", reason=reason, before=told)
    return len(swept)


def _sweep_stray(name: str, before: datetime) -> bool:
    """Remove it if it is old, unless its row is being written: whoever writes the name first has it."""
    try:
        if depot.storage().get_modified_time(name) >= before:
            return False
        with transaction.atomic():
            Artifact.objects.create(bucket="", key=name, digest="", size=0, media_type="", stored_as=name)
            depot.discard(name)
            transaction.set_rollback(True)
    except (FileNotFoundError, IntegrityError):
        return False
    return True
