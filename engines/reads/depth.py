"""The number of pending transactions, now and by the minute, counted up to a limit."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from engines.core.states import State
from engines.models import Pipeline, TransactionRecord, WaitingSample
from ergon_site.access.database.clock import database_time

COUNTED = 10_000
MOST_PRIORITIES = 10
# Every minute for two days, then some of each hour.
KEPT, KEPT_SOME = timedelta(days=2), timedelta(days=9)
QUARTERS = (0, 15, 30, 45)
ALL_PIPELINES = 0
LAST_ID = 2**63 - 1

# How much waits in one pipeline costs so many index entries, however long its queue is: what is counted is ordered like
# the index, or the planner would rather read the table.
COUNT_EACH = """
    (SELECT count(*) FROM (SELECT 1 FROM engines_transactionrecord t WHERE t.pipeline_id = f.pipeline_id AND t.state = 0
                           ORDER BY t.priority DESC, t.available_at LIMIT {cap:d}) capped)
"""
QUEUE = """
queue (pipeline_id, oldest_at, waiting) AS (
    SELECT f.pipeline_id, min(f.available_at), {count} FROM first f GROUP BY f.pipeline_id
)
"""
# In many short queues PostgreSQL counts everything that waits, if that is less than to count each of them to its cap: a
# page of the table is then looked at once, not once for each pipeline. What is not asked for is not carried out.
COUNTED_TOGETHER = """
sizes (are_many_short) AS MATERIALIZED (
    SELECT count(*) > {few:d} AND pg_relation_size('t_claim') <= count(*) * {cap:d} * {entry:d} FROM engines_pipeline
), counted (pipeline_id, waiting) AS MATERIALIZED (
    SELECT pipeline_id, count(*) FROM engines_transactionrecord
    WHERE state = 0 AND (SELECT are_many_short FROM sizes) GROUP BY pipeline_id
),
"""
COUNT_EITHER = """
    CASE WHEN (SELECT are_many_short FROM sizes)
         THEN (SELECT LEAST(c.waiting, {cap:d}) FROM counted c WHERE c.pipeline_id = f.pipeline_id)
         ELSE {each} END
"""
# Each priority of a pipeline is asked for its first one; where there are very many priorities, the highest and the
# lowest of them, which wait longest.
QUEUES = """
WITH RECURSIVE level (pipeline_id, priority, place) AS (
    SELECT p.id, (SELECT max(t.priority) FROM engines_transactionrecord t
                  WHERE t.pipeline_id = p.id AND t.state = 0), 1
    FROM engines_pipeline p WHERE p.id BETWEEN %s AND %s
    UNION ALL
    SELECT l.pipeline_id, (SELECT max(t.priority) FROM engines_transactionrecord t
                           WHERE t.pipeline_id = l.pipeline_id AND t.state = 0 AND t.priority < l.priority), l.place + 1
    FROM level l WHERE l.priority IS NOT NULL AND l.place < %s
), low (pipeline_id, priority, place) AS (
    SELECT p.id, (SELECT min(t.priority) FROM engines_transactionrecord t
                  WHERE t.pipeline_id = p.id AND t.state = 0), 1
    FROM engines_pipeline p WHERE p.id BETWEEN %s AND %s
    UNION ALL
    SELECT l.pipeline_id, (SELECT min(t.priority) FROM engines_transactionrecord t
                           WHERE t.pipeline_id = l.pipeline_id AND t.state = 0 AND t.priority > l.priority), l.place + 1
    FROM low l WHERE l.priority IS NOT NULL AND l.place < %s
), met (pipeline_id, priority) AS (
    SELECT pipeline_id, priority FROM level WHERE priority IS NOT NULL
    UNION SELECT pipeline_id, priority FROM low WHERE priority IS NOT NULL
), first (pipeline_id, available_at) AS (
    SELECT m.pipeline_id, (SELECT min(t.available_at) FROM engines_transactionrecord t
                           WHERE t.pipeline_id = m.pipeline_id AND t.state = 0 AND t.priority = m.priority)
    FROM met m
),
"""
BY_ID = "SELECT pipeline_id, oldest_at, waiting FROM queue"
BY_PIPELINE = """
SELECT p.*, q.oldest_at, q.waiting FROM engines_pipeline p LEFT JOIN queue q ON q.pipeline_id = p.id ORDER BY p.name
"""
FEW_PIPELINES = 20
ENTRY_BYTES = 80  # of the index, for each that waits: it is seldom packed


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The pending transactions of a pipeline, counted up to a limit, and when the oldest is due."""

    count: int = 0
    oldest_at: datetime | None = None

    @property
    def is_capped(self) -> bool:
        return self.count > COUNTED

    @property
    def depth(self) -> str:
        return f"{COUNTED:,}+" if self.is_capped else f"{self.count:,}"

    def age(self, now: datetime) -> float | None:
        """The seconds since the oldest was due; negative if it is due later."""
        return (now - self.oldest_at).total_seconds() if self.oldest_at else None

    def overdue(self, now: datetime) -> float | None:
        """The same, where one is due at all."""
        age = self.age(now)
        return None if age is None or age < 0 else age


def depths(pipeline_ids: Collection[int]) -> dict[int, Waiting]:
    """The pending transactions of these pipelines, in one statement."""
    if not pipeline_ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            *question(BY_ID, min(pipeline_ids), max(pipeline_ids), is_few=len(pipeline_ids) <= FEW_PIPELINES)
        )
        found = {row[0]: Waiting(count=row[2], oldest_at=_time(row[1])) for row in cursor.fetchall()}
    return {one: found.get(one, Waiting()) for one in pipeline_ids}


def of_all() -> dict[Pipeline, Waiting]:
    """Every pipeline and what waits in it, by one statement."""
    rows: Any = Pipeline.objects.raw(*question(BY_PIPELINE, 0, LAST_ID))
    return {row: Waiting(count=row.waiting or 0, oldest_at=_time(row.oldest_at)) for row in rows}


def question(wanted: str, first: int, last: int, *, is_few: bool = False) -> tuple[str, list[int]]:
    """The statement that tells what is wanted of these pipelines, and its parameters."""
    levels = [first, last, MOST_PRIORITIES, first, last, MOST_PRIORITIES]
    cap = COUNTED + 1
    each = COUNT_EACH.format(cap=cap)
    if is_few or connection.vendor != "postgresql":
        return QUEUES + QUEUE.format(count=each) + wanted, levels
    together = COUNTED_TOGETHER.format(few=FEW_PIPELINES, cap=cap, entry=ENTRY_BYTES)
    either = COUNT_EITHER.format(cap=cap, each=each)
    return QUEUES + together + QUEUE.format(count=either) + wanted, levels


def count(pipeline_id: int, *, cap: int) -> int:
    """The number of pending transactions of one pipeline, at most one more than the cap."""
    rows = TransactionRecord.objects.filter(pipeline_id=pipeline_id, state=State.PENDING.value)
    return rows.order_by("-priority", "available_at")[: cap + 1].count()


def due(pipeline_id: int) -> int:
    """The number of pending transactions of one pipeline whose time has come."""
    rows = TransactionRecord.objects.filter(pipeline_id=pipeline_id, state=State.PENDING.value)
    return rows.filter(available_at__lte=database_time()).count()


def sample() -> int:
    """Keep what waits in this minute, unless that is kept already; the number of pipelines in which something does."""
    now = database_time()
    minute = now.replace(second=0, microsecond=0)
    if WaitingSample.objects.filter(pipeline_id=ALL_PIPELINES, minute=minute).exists():
        return 0
    waiting = {pipeline.pk: queue for pipeline, queue in of_all().items() if queue.count}
    rows = [_sample(pipeline_id, minute, [queue], now) for pipeline_id, queue in waiting.items()]
    total = _sample(ALL_PIPELINES, minute, waiting.values(), now)
    WaitingSample.objects.bulk_create([*rows, total], ignore_conflicts=True)
    return len(rows)


def series(minutes: int, pipeline_id: int = ALL_PIPELINES, *, now: datetime) -> list[WaitingSample | None]:
    """The samples of the last minutes; None where there is none."""
    now = now.replace(second=0, microsecond=0)
    rows = WaitingSample.objects.filter(pipeline_id=pipeline_id, minute__gt=now - timedelta(minutes=minutes))
    found = {row.minute: row for row in rows}
    return [found.get(now - timedelta(minutes=minutes - 1 - index)) for index in range(minutes)]


def forget() -> int:
    """Delete samples that no page shows any more."""
    now = database_time()
    thinned = WaitingSample.objects.filter(minute__lt=now - KEPT).exclude(minute__minute__in=QUARTERS).delete()[0]
    return thinned + WaitingSample.objects.filter(minute__lt=now - KEPT_SOME).delete()[0]


def _sample(pipeline_id: int, minute: datetime, queues: Collection[Waiting], now: datetime) -> WaitingSample:
    ages = [age for queue in queues if (age := queue.overdue(now)) is not None]
    return WaitingSample(
        pipeline_id=pipeline_id,
        minute=minute,
        waiting=sum(queue.count for queue in queues),
        is_capped=any(queue.is_capped for queue in queues),
        oldest_age=max(ages, default=None),
    )


def _time(stored: Any) -> datetime | None:
    """SQLite keeps times as texts, in UTC."""
    return datetime.fromisoformat(stored).replace(tzinfo=UTC) if isinstance(stored, str) else stored
