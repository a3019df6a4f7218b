"""VERB: prune. What is older than its time goes; the database lets go of calls only then."""

from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import QuerySet

from ergon_site.access import audit
from ergon_site.access.database.calls import short_transaction
from ergon_site.access.database.clock import database_time
from providers.models import (
    CachedAnswer,
    IdempotencyClaim,
    OutboxLetter,
    ProviderEvent,
    ProviderExecutionMetric,
    ProviderMinute,
    QuotaState,
    Retention,
    TaskExecution,
)

KEPT = timedelta(days=30)
BATCH = 5000


class Pruned(NamedTuple):
    metrics: int
    minutes: int
    claims: int
    letters: int
    tasks: int
    quotas: int
    events: int
    answers: int


def prune(*, older_than: timedelta = KEPT, by: str | None = None, reason: str = "") -> Pruned:
    """Remove calls and what belongs to them once they are older than this; done by somebody, it is written down."""
    now = database_time()
    before = now - older_than
    Retention.objects.update_or_create(pk=1, defaults={"metrics_before": before})
    seconds = before.timestamp()
    tasks = TaskExecution.objects.filter(started_at__lt=before, finished_at__isnull=False, metrics__isnull=True)
    pruned = Pruned(
        metrics=_delete(ProviderExecutionMetric.objects.filter(created_at__lt=before)),
        minutes=_delete(ProviderMinute.objects.filter(minute__lt=int(seconds // 60))),
        claims=_delete(IdempotencyClaim.objects.filter(lease_until__lt=seconds)),
        letters=_delete(OutboxLetter.objects.filter(published_at__lt=before)),
        tasks=_delete(tasks),
        quotas=_delete(QuotaState.objects.filter(window_end__lt=before)),
        events=_delete(ProviderEvent.objects.filter(at__lt=before)),
        # They are no history.
        answers=_delete(CachedAnswer.objects.filter(useful_until__lt=now.timestamp())),
    )
    if by is not None:
        after = {"older_than_days": older_than / timedelta(days=1), **pruned._asdict()}
        audit.record(actor=by, action="providers.prune", target="provider calls", reason=reason, after=after)
    return pruned


def prune_old() -> int:
    """Prune as a chore; the number of rows removed."""
    return sum(prune())


def _delete(rows: QuerySet[Any]) -> int:
    """Delete rows in batches, so that no lock is held for long."""
    count = 0
    while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH]):
        with short_transaction():
            count += rows.model._default_manager.filter(pk__in=ids).delete()[0]  # noqa: SLF001 (Django's own name)
    return count
