"""How the engines are doing: counts, ages and rates, from counters and capped indexes, never from whole tables."""

from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Max, Sum
from django.db.models.functions import Coalesce

from engines import workers
from engines.clock import database_time
from engines.core.states import State
from engines.models import DeadLetterGroup, Pipeline, Throughput, TransactionRecord, Worker

MOST_PRIORITIES = 10


def status() -> dict[str, Any]:
    """What `manage.py status` tells."""
    now = database_time()
    totals, running = totals_by_pipeline(), running_by_pipeline()
    return {
        "at": now.isoformat(),
        "pipelines": [
            _pipeline(pipeline, totals.get(pipeline.pk, {}) | {"running": running.get(pipeline.pk, 0)}, now)
            for pipeline in _pipelines()
        ],
        "dead_letters": {"open": open_letters()},
        "workers": [_worker(worker, now) for worker in workers.alive()],
    }


def totals_by_pipeline() -> dict[int, dict[str, Any]]:
    """What has ended, ever, by pipeline."""
    sums = {name: Coalesce(Sum(name), 0) for name in ("succeeded", "failed", "cancelled")}
    rows = Throughput.objects.order_by("pipeline_id").values("pipeline_id").annotate(**sums)
    return {row["pipeline_id"]: dict(row) for row in rows}


def rates(seconds: float, *, now: datetime | None = None) -> dict[int, dict[str, Any]]:
    """What ended lately, by pipeline."""
    since = (now or database_time()) - timedelta(seconds=seconds)
    rows = (
        Throughput.objects.filter(minute__gte=since)
        .order_by("pipeline_id")
        .values("pipeline_id")
        .annotate(ok=Sum("succeeded"), bad=Sum("failed"), spent=Sum("seconds"), longest=Max("longest"))
    )
    return {row["pipeline_id"]: dict(row) for row in rows}


def series(minutes: int, pipeline_id: int | None = None, *, now: datetime | None = None) -> list[dict[str, Any]]:
    """What ended in each minute of the last while, empty minutes included."""
    now = (now or database_time()).replace(second=0, microsecond=0)
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


def waiting(pipeline_id: int, *, cap: int | None = None) -> int:
    rows = TransactionRecord.objects.filter(pipeline_id=pipeline_id, state=State.PENDING.value).order_by()
    return rows.count() if cap is None else rows[: cap + 1].count()


def running_by_pipeline() -> dict[int, int]:
    """From the index of leases: as many entries as there are running ones."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pipeline_id, count(*) FROM engines_transactionrecord WHERE lease_expires_at IS NOT NULL GROUP BY 1"
        )
        return dict(cursor.fetchall())


def oldest_pending(pipeline_id: int) -> datetime | None:
    """When the longest-waiting one became due. Asked of each priority in turn, because the index is ordered so."""
    rows = TransactionRecord.objects.filter(pipeline_id=pipeline_id, state=State.PENDING.value)
    firsts: list[datetime] = []
    head = rows.order_by("-priority", "available_at").values_list("priority", "available_at").first()
    while head is not None and len(firsts) < MOST_PRIORITIES:
        priority, available_at = head
        firsts.append(available_at)
        lower = rows.filter(priority__lt=priority).order_by("-priority", "available_at")
        head = lower.values_list("priority", "available_at").first()
    return min(firsts, default=None)


def open_letters() -> int:
    return DeadLetterGroup.objects.aggregate(count=Coalesce(Sum("open_count"), 0))["count"]  # type: ignore[no-any-return]


def _pipelines() -> list[Pipeline]:
    return list(Pipeline.objects.select_related("policy__active"))


def _pipeline(pipeline: Pipeline, totals: dict[str, Any], now: datetime) -> dict[str, Any]:
    oldest = oldest_pending(pipeline.pk)
    active = pipeline.policy.active
    return {
        "name": pipeline.name,
        "task": pipeline.task or pipeline.executor,
        "direction": pipeline.direction,
        "policy": f"{pipeline.policy.name} v{active.number if active else 0}",
        "paused": pipeline.is_paused,
        "pending": waiting(pipeline.pk),
        "running": totals["running"],
        "succeeded": totals.get("succeeded", 0),
        "failed": totals.get("failed", 0),
        "cancelled": totals.get("cancelled", 0),
        "oldest_pending_age": max(0.0, (now - oldest).total_seconds()) if oldest else None,
    }


def _worker(worker: Worker, now: datetime) -> dict[str, Any]:
    return {
        "id": worker.pk,
        "host": worker.host,
        "pid": worker.pid,
        "state": worker.state,
        "pipelines": worker.pipelines,
        "in_flight": worker.in_flight,
        "abandoned": worker.abandoned,
        "settled": worker.settled,
        "heartbeat_age": max(0.0, (now - worker.heartbeat_at).total_seconds()),
        "executors": worker.executors,
    }
