"""The figures of the dashboard, which refreshes every few seconds, in a handful of statements."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Case, IntegerField, Max, Q, Sum, Value, When, Window
from django.db.models.functions import Cast

from engines import workers
from engines.core.states import GroupState
from engines.models import DeadLetterGroup, Pipeline, Throughput, WaitingSample, Worker
from engines.reads import depth, status
from engines.reads.depth import Waiting
from engines.workers import ALIVE

CONCERNING = (GroupState.OPEN.value, GroupState.REGRESSED.value)
# A worker stands twice among the owners if it is alive and holds leases. One that was forgotten may still hold some.
HOLDERS = """
SELECT w.*, o.held, o.lapsed FROM (
    SELECT lease_owner AS owner, count(*) AS held, sum(CASE WHEN lease_expires_at < %s THEN 1 ELSE 0 END) AS lapsed
    FROM engines_transactionrecord WHERE lease_expires_at BETWEEN %s AND %s GROUP BY lease_owner
    UNION ALL SELECT id, 0, 0 FROM engines_worker WHERE state IN (%s, %s)
) o LEFT JOIN engines_worker w ON w.id = o.owner
"""


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
    holdings, found = _holdings(now)
    # Those that need attention first; each knows the total number.
    concerning = Q(state__in=CONCERNING)
    annotated = DeadLetterGroup.objects.filter(open_count__gt=0).annotate(
        is_muted=Case(When(concerning, then=0), default=1),
        concerning=Window(Sum(Case(When(concerning, then=1), default=0))),
        open_in_all=Window(Sum("open_count")),
    )
    groups: list[Any] = list(annotated.order_by("is_muted", "-last_seen_at")[:shown])
    counts = groups[0] if groups else None
    series, samples = _last(minutes, now)
    return Pulse(
        queues=depth.of_all(),
        workers=[worker for worker in found if workers.is_alive(worker, now)],
        holdings=holdings,
        groups=[group for group in groups if group.state in CONCERNING],
        open_groups=counts.concerning if counts else 0,
        open_letters=counts.open_in_all if counts else 0,
        series=series,
        samples=samples,
    )


def _holdings(now: datetime) -> tuple[list[Holding], list[Worker]]:
    """The leases by worker, and the workers that are alive by their state or hold a lease, by one statement."""
    times = [connection.ops.adapt_datetimefield_value(at) for at in (now, *status.ANY_TIME)]
    rows: list[Any] = list(Worker.objects.raw(HOLDERS, [*times, *ALIVE]))
    held = [Holding(worker=row if row.pk else None, count=row.held, lapsed=int(row.lapsed)) for row in rows if row.held]
    return held, list({row.pk: row for row in rows if row.pk}.values())


def _last(minutes: int, now: datetime) -> tuple[list[dict[str, Any]], list[WaitingSample | None]]:
    """What ended and what waited in each of the last minutes, by one statement."""
    this_minute = now.replace(second=0, microsecond=0)
    since = {"minute__gt": this_minute - timedelta(minutes=minutes)}
    ended: Any = Throughput.objects.filter(**since).order_by().values("minute")
    ended = ended.annotate(
        kind=Value("ended"), ok=Sum("succeeded"), bad=Sum("failed"), spent=Sum("seconds"), most=Max("longest")
    ).values_list("kind", "minute", "ok", "bad", "spent", "most")
    waited: Any = WaitingSample.objects.filter(pipeline_id=depth.ALL_PIPELINES, **since).order_by()
    waited = waited.annotate(kind=Value("waited"), cap=Cast("is_capped", IntegerField()), none=Value(0.0)).values_list(
        "kind", "minute", "waiting", "cap", "oldest_age", "none"
    )
    found = {(kind, minute): numbers for kind, minute, *numbers in ended.union(waited, all=True)}
    times = [this_minute - timedelta(minutes=minutes - 1 - index) for index in range(minutes)]
    names = ("ok", "bad", "spent", "most")
    series = [
        {"minute": at, **dict(zip(names, found.get(("ended", at), (0, 0, 0.0, 0.0)), strict=True))} for at in times
    ]
    return series, [_sample(at, found.get(("waited", at))) for at in times]


def _sample(minute: datetime, numbers: Any) -> WaitingSample | None:
    if numbers is None:
        return None
    waiting, cap, oldest_age, _ = numbers
    return WaitingSample(
        pipeline_id=depth.ALL_PIPELINES, minute=minute, waiting=waiting, is_capped=bool(cap), oldest_age=oldest_age
    )
