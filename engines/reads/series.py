"""What ended and what waited over time, from the counters and samples of each minute."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db.models import Max, Sum

from engines.core import histogram
from engines.models import Durations, Throughput, WaitingSample, Worker
from engines.reads.depth import ALL_PIPELINES
from ergon_site.access.core.charts import Window

SUMS = {"ok": Sum("succeeded"), "bad": Sum("failed"), "most": Max("longest")}
TOOK = {f"in_{place}": Sum(name) for place, name in enumerate(histogram.COLUMNS)}
WORKERS = 500


@dataclass(slots=True)
class Ended:
    """The transactions that ended in one step."""

    succeeded: int = 0
    failed: int = 0
    longest: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * len(histogram.COLUMNS))

    def percentile(self, share: float) -> float | None:
        return histogram.percentile(self.counts, self.longest, share)


@dataclass(slots=True)
class Waited:
    """The most that waited in one step, as far as there are samples of it."""

    waiting: int = 0
    is_capped: bool = False
    oldest_age: float = 0.0


def ended(window: Window, pipeline_id: int | None = None) -> list[Ended]:
    """What ended in each step, of one pipeline or of all."""
    within: dict[str, Any] = {"minute__gte": moment(window.begins), "minute__lt": moment(window.ends)}
    if pipeline_id is not None:
        within["pipeline_id"] = pipeline_id
    steps = [Ended() for _ in window.times]
    rows = Throughput.objects.filter(**within).order_by().values("minute").annotate(**SUMS)
    for minute, ok, bad, most in rows.values_list("minute", *SUMS):
        step = steps[window.place(minute.timestamp())]
        step.succeeded += ok
        step.failed += bad
        step.longest = max(step.longest, most)
    buckets = Durations.objects.filter(**within).order_by().values("minute").annotate(most=Max("longest"), **TOOK)
    for minute, most, *counts in buckets.values_list("minute", "most", *TOOK):
        step = steps[window.place(minute.timestamp())]
        step.longest = max(step.longest, most)
        step.counts = [known + count for known, count in zip(step.counts, counts, strict=True)]
    return steps


def whole(steps: Sequence[Ended]) -> Ended:
    """All steps as one."""
    return Ended(
        sum(step.succeeded for step in steps),
        sum(step.failed for step in steps),
        max((step.longest for step in steps), default=0.0),
        [sum(counts) for counts in zip(*(step.counts for step in steps), strict=True)],
    )


def waited(window: Window, pipeline_id: int = ALL_PIPELINES) -> list[Waited | None]:
    """The samples of each step; None where there are none."""
    within = {"minute__gte": moment(window.begins), "minute__lt": moment(window.ends)}
    # Of a pipeline in which nothing waits there is no sample: that one was taken, the sample of all tells.
    samples = WaitingSample.objects.filter(pipeline_id__in={ALL_PIPELINES, pipeline_id}, **within)
    steps: list[Waited | None] = [None] * len(window.times)
    for of, minute, waiting, is_capped, age in samples.values_list(
        "pipeline_id", "minute", "waiting", "is_capped", "oldest_age"
    ):
        place = window.place(minute.timestamp())
        step = steps[place] = steps[place] or Waited()
        if of == pipeline_id:
            step.waiting, step.oldest_age = max(step.waiting, waiting), max(step.oldest_age, age or 0.0)
            step.is_capped = step.is_capped or is_capped
    return steps


def releases(window: Window, pipeline: str | None = None) -> list[Worker]:
    """The first worker of each release that was not there before, among the newest workers."""
    newest: Any = Worker.objects.order_by("-id").only("release", "started_at", "host", "pid", "pipelines")[:WORKERS]
    found, last = [], None
    for worker in reversed(newest):
        if not worker.release or (pipeline is not None and pipeline not in worker.pipelines):
            continue
        if last is not None and worker.release != last and window.begins <= worker.started_at.timestamp() < window.ends:
            found.append(worker)
        last = worker.release
    return found


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
