"""What ended and what waited over time, from the counters and samples of each minute."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db.models import Aggregate, BigIntegerField, Case, Func, Max, Model, Sum, When

from engines.core import histogram
from engines.models import Durations, Throughput, WaitingSample, Worker
from engines.reads.depth import ALL_PIPELINES
from ergon_site.access.core.charts import Window

ENDS: dict[str, Aggregate] = {"ok": Sum("succeeded"), "bad": Sum("failed"), "most": Max("longest")}
TOOK: dict[str, Aggregate] = {
    "most": Max("longest"),
    **{f"in_{place}": Sum(name) for place, name in enumerate(histogram.COLUMNS)},
}
SAMPLED: dict[str, Aggregate] = {
    "most": Max("waiting"),
    "capped": Max(Case(When(is_capped=True, then=1), default=0)),
    "age": Max("oldest_age"),
}
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
    steps = [Ended() for _ in window.times]
    for place, ok, bad, most in _by_step(Throughput, window, ENDS, pipeline_id):
        steps[place].succeeded, steps[place].failed, steps[place].longest = int(ok), int(bad), most
    for place, most, *counts in _by_step(Durations, window, TOOK, pipeline_id or ALL_PIPELINES):
        steps[place].longest = max(steps[place].longest, most)
        steps[place].counts = [int(count) for count in counts]
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
    steps: list[Waited | None] = [None] * len(window.times)
    # Of a pipeline in which nothing waits there is no sample: that one was taken, the sample of all tells.
    for of in dict.fromkeys((ALL_PIPELINES, pipeline_id)):
        for place, waiting, is_capped, age in _by_step(WaitingSample, window, SAMPLED, of):
            steps[place] = Waited(waiting, bool(is_capped), age or 0.0) if of == pipeline_id else Waited()
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


def _by_step(
    model: type[Model], window: Window, sums: dict[str, Aggregate], pipeline_id: int | None
) -> Iterable[tuple[Any, ...]]:
    """The sums of each step that has rows, behind its place."""
    rows = model._default_manager.filter(minute__gte=moment(window.begins), minute__lt=moment(window.ends))  # noqa: SLF001
    rows = rows if pipeline_id is None else rows.filter(pipeline_id=pipeline_id)
    place = StepOf("minute", begins=window.begins, step=window.step)
    found: Iterable[tuple[Any, ...]] = rows.order_by().values(place=place).annotate(**sums).values_list("place", *sums)
    return found


class StepOf(Func):
    """The step of a window that a time is in: the database adds up, whatever the number of minutes."""

    output_field = BigIntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **_: Any) -> Any:
        template = "CAST(floor((date_part('epoch', %(expressions)s) - %(begins)d) / %(step)d) AS bigint)"
        return self.as_sql(compiler, connection, template=template)

    def as_sqlite(self, compiler: Any, connection: Any, **_: Any) -> Any:
        template = "(CAST(strftime('%%%%s', %(expressions)s) AS integer) - %(begins)d) / %(step)d"
        return self.as_sql(compiler, connection, template=template)


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
