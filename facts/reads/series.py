"""What passed a boundary over time, from a sample of each minute."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ergon_site.access.core.charts import Window
from ergon_site.access.database.clock import database_time
from facts.models import BoundarySample
from facts.reads import health

# Every minute for two days, then some of each hour.
KEPT, KEPT_SOME = timedelta(days=2), timedelta(days=9)
QUARTERS = (0, 15, 30, 45)


@dataclass(slots=True)
class Passed:
    """What happened on a boundary in one step: facts since the sample before, and the most that waited."""

    appended: int = 0
    handed_over: int = 0
    backlog: int = 0
    lag: float = 0.0


def sample() -> int:
    """Keep how far each boundary is in this minute, unless that is kept already; the number of boundaries."""
    minute = database_time().replace(second=0, microsecond=0)
    if BoundarySample.objects.filter(minute=minute).exists():
        return 0
    rows = [
        BoundarySample(
            boundary_id=one.boundary.pk,
            minute=minute,
            newest=one.newest,
            reached=one.reached,
            backlog=one.flow.backlog,
            lag=one.flow.lag,
        )
        for one in health.of_boundaries()
    ]
    BoundarySample.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def forget() -> int:
    """Delete samples that no page shows any more."""
    now = database_time()
    thinned = BoundarySample.objects.filter(minute__lt=now - KEPT).exclude(minute__minute__in=QUARTERS).delete()[0]
    return thinned + BoundarySample.objects.filter(minute__lt=now - KEPT_SOME).delete()[0]


def passed(window: Window, boundary_id: int) -> list[Passed | None]:
    """The samples of each step; None where there are none."""
    begins, ends = (datetime.fromtimestamp(one, UTC) for one in (window.begins, window.ends))
    mine = BoundarySample.objects.filter(boundary_id=boundary_id, minute__lt=ends)
    columns = ("minute", "newest", "reached", "backlog", "lag")
    before = mine.filter(minute__lt=begins).order_by("-minute").values_list(*columns)[:1]
    steps: list[Passed | None] = [None] * len(window.times)
    last: tuple[int, int] | None = None
    for minute, newest, reached, backlog, lag in (
        *before,
        *mine.filter(minute__gte=begins).order_by("minute").values_list(*columns),
    ):
        if minute >= begins:
            place = window.place(minute.timestamp())
            step = steps[place] = steps[place] or Passed()
            # A boundary that was restored from a backup may be behind its last sample.
            step.appended += max(0, newest - last[0]) if last else 0
            step.handed_over += max(0, reached - last[1]) if last else 0
            step.backlog, step.lag = max(step.backlog, backlog), max(step.lag, lag)
        last = newest, reached
    return steps
