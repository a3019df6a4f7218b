"""The figures of the dashboard, which refreshes every few seconds, in a handful of statements."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Case, Count, Q, Sum, When, Window

from engines import workers
from engines.core.states import GroupState
from engines.models import DeadLetterGroup, Pipeline, TransactionRecord, WaitingSample, Worker
from engines.reads import depth, status
from engines.reads.depth import Waiting
from engines.workers import ALIVE

CONCERNING = (GroupState.OPEN.value, GroupState.REGRESSED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The leases of a worker; `lapsed` of them have expired and will be rescued."""

    worker: Worker | None
    count: int
    lapsed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """The engines at one moment, what waits in each pipeline counted only so far, and the last while."""

    queues: dict[Pipeline, Waiting]
    workers: list[Worker]
    holdings: list[Holding]
    groups: list[DeadLetterGroup]
    open_groups: int
    open_letters: int
    series: list[dict[str, Any]]
    samples: list[WaitingSample | None]

    @property
    def waiting(self) -> int:
        return sum(queue.count for queue in self.queues.values())

    @property
    def is_waiting_capped(self) -> bool:
        return any(queue.is_capped for queue in self.queues.values())

    @property
    def running(self) -> int:
        return sum(holding.count for holding in self.holdings)

    @property
    def served(self) -> set[str]:
        return {name for worker in self.workers for name in worker.pipelines}


def take(now: datetime, *, minutes: int, shown: int) -> Pulse:
    """The pulse, with as many groups of dead letters as are to be shown."""
    held = TransactionRecord.objects.filter(lease_expires_at__range=status.ANY_TIME).order_by("lease_owner")
    lapsed = Count("pk", filter=Q(lease_expires_at__lt=now))
    leases: list[Any] = list(held.values("lease_owner").annotate(count=Count("pk"), lapsed=lapsed))
    owners = {lease["lease_owner"] for lease in leases}
    known = {worker.pk: worker for worker in Worker.objects.filter(Q(state__in=ALIVE) | Q(pk__in=owners))}
    # Those that need attention first; each knows the total number.
    concerning = Q(state__in=CONCERNING)
    annotated = DeadLetterGroup.objects.filter(open_count__gt=0).annotate(
        is_muted=Case(When(concerning, then=0), default=1),
        concerning=Window(Sum(Case(When(concerning, then=1), default=0))),
        open_in_all=Window(Sum("open_count")),
    )
    groups: list[Any] = list(annotated.order_by("is_muted", "-last_seen_at")[:shown])
    counts = groups[0] if groups else None
    return Pulse(
        queues=depth.of_all(),
        workers=[worker for worker in known.values() if workers.is_alive(worker, now)],
        holdings=[
            Holding(worker=known.get(lease["lease_owner"]), count=lease["count"], lapsed=lease["lapsed"])
            for lease in leases
        ],
        groups=[group for group in groups if group.state in CONCERNING],
        open_groups=counts.concerning if counts else 0,
        open_letters=counts.open_in_all if counts else 0,
        series=status.series(minutes, now=now),
        samples=depth.series(minutes, now=now),
    )
