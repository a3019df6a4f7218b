"""How pipelines are doing: what waits and runs now, and what ended lately, for many with a handful of statements."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from engines import overview

COUNTED = 10_000
MOST_PRIORITIES = 10
LATELY = timedelta(hours=1)

# It costs so many index entries, however long the queue is: what is counted is ordered like the index, or the planner
# would rather read the table. Each priority of a pipeline is asked for its first one, for the same reason.
BACKLOGS = """
WITH RECURSIVE level (pipeline_id, priority, place) AS (
    SELECT p.id, (SELECT max(t.priority) FROM engines_transactionrecord t
                  WHERE t.pipeline_id = p.id AND t.state = 0), 1
    FROM engines_pipeline p WHERE p.id BETWEEN %s AND %s
    UNION ALL
    SELECT l.pipeline_id, (SELECT max(t.priority) FROM engines_transactionrecord t
                           WHERE t.pipeline_id = l.pipeline_id AND t.state = 0 AND t.priority < l.priority), l.place + 1
    FROM level l WHERE l.priority IS NOT NULL AND l.place < %s
), first (pipeline_id, available_at) AS (
    SELECT l.pipeline_id, (SELECT min(t.available_at) FROM engines_transactionrecord t
                           WHERE t.pipeline_id = l.pipeline_id AND t.state = 0 AND t.priority = l.priority)
    FROM level l WHERE l.priority IS NOT NULL
)
SELECT f.pipeline_id, min(f.available_at),
       (SELECT count(*) FROM (SELECT 1 FROM engines_transactionrecord t
                              WHERE t.pipeline_id = f.pipeline_id AND t.state = 0
                              ORDER BY t.priority DESC, t.available_at LIMIT %s) counted)
FROM first f GROUP BY f.pipeline_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """`waiting` is counted only so far; `oldest_age` is negative where even the first one is due later."""

    waiting: int = 0
    oldest_age: float | None = None
    running: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def depth(self) -> str:
        return f"{COUNTED:,}+" if self.waiting > COUNTED else f"{self.waiting:,}"

    @property
    def per_minute(self) -> float:
        return (self.succeeded + self.failed) / (LATELY.total_seconds() / 60)

    @property
    def failing(self) -> float | None:
        """The share of what ended that failed; unknown where nothing did."""
        ended = self.succeeded + self.failed
        return self.failed / ended if ended else None


def of(pipeline_ids: Collection[int], now: datetime) -> dict[int, Standing]:
    """How each of these pipelines is doing."""
    if not pipeline_ids:
        return {}
    waits = _backlogs(min(pipeline_ids), max(pipeline_ids))
    ended, running = overview.rates(LATELY.total_seconds(), now=now), overview.running_by_pipeline()
    return {one: _standing(waits.get(one), running.get(one, 0), ended.get(one, {}), now) for one in pipeline_ids}


def _backlogs(first: int, last: int) -> dict[int, tuple[datetime, int]]:
    with connection.cursor() as cursor:
        cursor.execute(BACKLOGS, [first, last, MOST_PRIORITIES, COUNTED + 1])
        return {pipeline_id: (_time(oldest), count) for pipeline_id, oldest, count in cursor.fetchall()}


def _standing(wait: tuple[datetime, int] | None, running: int, ended: dict[str, Any], now: datetime) -> Standing:
    return Standing(
        waiting=wait[1] if wait else 0,
        oldest_age=(now - wait[0]).total_seconds() if wait else None,
        running=running,
        succeeded=ended.get("ok", 0),
        failed=ended.get("bad", 0),
    )


def _time(stored: datetime | str) -> datetime:
    """SQLite keeps times as texts, in UTC."""
    return datetime.fromisoformat(stored).replace(tzinfo=UTC) if isinstance(stored, str) else stored
