"""Status of the engines: counts, ages and rates, from counters and capped indexes, never from whole tables."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Sum
from django.db.models.functions import Coalesce

from engines import workers
from engines.models import DeadLetterGroup, Pipeline, Throughput, TransactionRecord
from engines.reads import depth
from ergon_site.access.database.clock import database_time

# Whatever is leased. A range: of "IS NOT NULL" a planner without statistics believes that it is most of the table.
ANY_TIME = (datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC))
LATELY = timedelta(hours=1)
TRENDED = 12  # parts of it
WORKER_FIELDS = ("host", "pid", "state", "pipelines", "in_flight", "abandoned", "settled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """`waiting` is counted only so far; `oldest_age` is negative where even the first one is due later."""

    waiting: int = 0
    depth: str = "0"
    oldest_age: float | None = None
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    trend: tuple[int, ...] = ()

    @property
    def per_minute(self) -> float:
        return (self.succeeded + self.failed) / (LATELY.total_seconds() / 60)

    @property
    def failing(self) -> float | None:
        """The share of what ended that failed; unknown where nothing did."""
        ended = self.succeeded + self.failed
        return self.failed / ended if ended else None


def read_status() -> dict[str, Any]:
    """The content of `manage.py status`."""
    now = database_time()
    totals, running = totals_by_pipeline(), running_by_pipeline()
    found = list(Pipeline.objects.select_related("policy__active"))
    waits = depth.depths([one.pk for one in found])
    pipelines = []
    for one in found:
        ended, wait, active = totals.get(one.pk, {}), waits[one.pk], one.policy.active
        age = wait.age(now)
        pipelines.append(
            {
                "name": one.name,
                "task": one.task or one.executor,
                "direction": one.direction,
                "policy": f"{one.policy.name} v{active.number if active else 0}",
                "paused": one.is_paused,
                "pending": min(wait.count, depth.COUNTED),
                "is_pending_capped": wait.is_capped,
                "running": running.get(one.pk, 0),
                **{name: ended.get(name, 0) for name in ("succeeded", "failed", "cancelled")},
                "oldest_pending_age": None if age is None else max(0.0, age),
                "due_in": -age if age is not None and age < 0 else None,
            }
        )
    return {
        "at": now.isoformat(),
        "pipelines": pipelines,
        "dead_letters": {"open": open_letters()},
        "workers": [
            {
                "id": worker.pk,
                **{name: getattr(worker, name) for name in WORKER_FIELDS},
                "heartbeat_age": max(0.0, (now - worker.heartbeat_at).total_seconds()),
                "executors": worker.executors,
            }
            for worker in workers.alive()
        ],
    }


def statuses(pipeline_ids: Collection[int], now: datetime) -> dict[int, Standing]:
    if not pipeline_ids:
        return {}
    waits, running = depth.depths(pipeline_ids), running_by_pipeline()
    ended = {one: _Lately() for one in pipeline_ids}
    recent = Throughput.objects.filter(pipeline_id__in=pipeline_ids, minute__gte=now - LATELY)
    for one, minute, ok, bad in recent.values_list("pipeline_id", "minute", "succeeded", "failed"):
        ended[one].add(ok, bad, age=now - minute)
    return {
        one: Standing(
            waiting=wait.count,
            depth=wait.depth,
            oldest_age=wait.age(now),
            running=running.get(one, 0),
            succeeded=ended[one].succeeded,
            failed=ended[one].failed,
            trend=tuple(ended[one].trend),
        )
        for one, wait in waits.items()
    }


class _Lately:
    """What ended in the last hour, and of that what in each part of it, the oldest first."""

    def __init__(self) -> None:
        self.succeeded = self.failed = 0
        self.trend = [0] * TRENDED

    def add(self, succeeded: int, failed: int, *, age: timedelta) -> None:
        self.succeeded += succeeded
        self.failed += failed
        part = int(max(timedelta(), age) / (LATELY / TRENDED))
        self.trend[TRENDED - 1 - min(part, TRENDED - 1)] += succeeded + failed


def totals_by_pipeline() -> dict[int, dict[str, Any]]:
    """The totals of ended transactions, by pipeline."""
    sums = {name: Coalesce(Sum(name), 0) for name in ("succeeded", "failed", "cancelled")}
    rows = Throughput.objects.order_by("pipeline_id").values("pipeline_id").annotate(**sums)
    return {row["pipeline_id"]: dict(row) for row in rows}


def series(minutes: int, pipeline_id: int | None = None, *, now: datetime) -> list[dict[str, Any]]:
    """The ended transactions of each of the last minutes, empty ones included."""
    now = now.replace(second=0, microsecond=0)
    rows = Throughput.objects.filter(minute__gt=now - timedelta(minutes=minutes))
    if pipeline_id is not None:
        rows = rows.filter(pipeline_id=pipeline_id)
    found = {
        row["minute"]: row
        for row in rows.order_by("minute")
        .values("minute")
        .annotate(ok=Sum("succeeded"), bad=Sum("failed"), spent=Sum("seconds"), most=Max("longest"))
    }
    empty = {"ok": 0, "bad": 0, "spent": 0.0, "most": 0.0}
    times = [now - timedelta(minutes=minutes - 1 - index) for index in range(minutes)]
    return [{**empty, **found.get(minute, {}), "minute": minute} for minute in times]


def running_by_pipeline() -> dict[int, int]:
    """From the index of leases: as many entries as there are running ones."""
    rows = TransactionRecord.objects.filter(lease_expires_at__range=ANY_TIME).order_by("pipeline_id")
    return dict(rows.values_list("pipeline_id").annotate(Count("pk")))


def open_letters() -> int:
    return DeadLetterGroup.objects.aggregate(count=Coalesce(Sum("open_count"), 0))["count"]  # type: ignore[no-any-return]
