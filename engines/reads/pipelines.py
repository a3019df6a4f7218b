"""Pending, running and recently ended transactions of many pipelines, in a handful of statements."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from engines.reads import depth, status

LATELY = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """`waiting` is counted only so far; `oldest_age` is negative where even the first one is due later."""

    waiting: int = 0
    depth: str = "0"
    oldest_age: float | None = None
    running: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def per_minute(self) -> float:
        return (self.succeeded + self.failed) / (LATELY.total_seconds() / 60)

    @property
    def failing(self) -> float | None:
        """The share of what ended that failed; unknown where nothing did."""
        ended = self.succeeded + self.failed
        return self.failed / ended if ended else None


def statuses(pipeline_ids: Collection[int], now: datetime) -> dict[int, Standing]:
    """The status of each of these pipelines."""
    if not pipeline_ids:
        return {}
    waits = depth.depths(pipeline_ids)
    ended, running = status.rates(LATELY.total_seconds(), now=now), status.running_by_pipeline()
    return {
        one: Standing(
            waiting=wait.count,
            depth=wait.depth,
            oldest_age=wait.age(now),
            running=running.get(one, 0),
            succeeded=ended.get(one, {}).get("ok", 0),
            failed=ended.get(one, {}).get("bad", 0),
        )
        for one, wait in waits.items()
    }
