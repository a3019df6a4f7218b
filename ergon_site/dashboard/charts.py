"""The dashboard's charts: throughput, failures, time taken and backlog, drawn on the server."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from engines.models import WaitingSample
from engines.reads.dashboard import Pulse
from ergon_site.access.console import drawing
from ergon_site.access.console.drawing import Chart
from ergon_site.access.core.durations import span

SPANS = {"hour": (60, 1), "day": (1440, 15)}
LONGEST_BACKLOG = 8


class Step(NamedTuple):
    """One or more minutes of a chart."""

    begins_at: datetime
    succeeded: int
    failed: int
    mean: float | None
    longest: float | None


def steps(series: Sequence[dict[str, Any]], size: int) -> list[Step]:
    found = []
    for place in range(0, len(series), size):
        minutes = series[place : place + size]
        succeeded, failed = sum(one["ok"] for one in minutes), sum(one["bad"] for one in minutes)
        ended = succeeded + failed
        mean = sum(one["spent"] for one in minutes) / ended if ended else None
        longest = max(one["most"] for one in minutes) if ended else None
        found.append(Step(minutes[0]["minute"], succeeded, failed, mean, longest))
    return found


def charts_of(series: Sequence[dict[str, Any]], size: int) -> list[Chart]:
    """Three charts over the same time."""
    found = steps(series, size)
    unit = "a minute" if size == 1 else f"in {size} minutes"
    charts = []
    for title, word, kind in (("Throughput", "succeeded", "ok"), ("Failures", "failed", "bad")):
        counts = [one.succeeded if kind == "ok" else one.failed for one in found]
        most = max(counts, default=0)
        told = [f"{one.begins_at:%H:%M}: {count:,} {word}" for one, count in zip(found, counts, strict=True)]
        summary = f"{sum(counts):,} {word}, at most {most:,} {unit}." if most else f"None {word}."
        columns = drawing.columns(counts, told)
        charts.append(Chart(title=title, kind=kind, summary=summary, top=f"{most:,}" if most else "", columns=columns))
    longest, means = [one.longest for one in found], [one.mean for one in found]
    top = max((value for value in longest if value is not None), default=0.0)
    overall = [mean for mean in means if mean is not None]
    usual = f"Mean {span(sum(overall) / len(overall))}, max {span(top)}." if overall else "Nothing finished."
    lines = [("longest", drawing.line(longest, top)), ("mean", drawing.line(means, top))]
    times = Chart(title="Time taken", kind="time", summary=usual, top=span(top) if overall else "", lines=lines)
    return [*charts, times]


def of_waiting(samples: Sequence[WaitingSample | None], size: int) -> list[Chart]:
    """Two charts of what waited, as far as anybody looked."""
    parts = [samples[place : place + size] for place in range(0, len(samples), size)]
    looked = [[sample for sample in part if sample] for part in parts]
    counts = [max((sample.waiting for sample in part), default=None) for part in looked]
    ages = [max((sample.oldest_age or 0.0 for sample in part), default=None) for part in looked]
    last = next((sample for part in reversed(looked) for sample in reversed(part)), None)
    if last is None:
        return [
            Chart(title=title, kind="level", summary="No samples: the command maintain takes one a minute.", top="")
            for title in ("Backlog", "Longest wait")
        ]
    most = max(count for count in counts if count is not None)
    top = f"{most:,}{'+' if any(sample.is_capped for part in looked for sample in part) else ''}"
    now = f"{last.waiting:,}{'+' if last.is_capped else ''} waiting at {last.minute:%H:%M}"
    longest = max(age for age in ages if age is not None)
    oldest = f"Oldest due for {span(last.oldest_age or 0.0)} at {last.minute:%H:%M}"
    return [
        Chart(
            title="Backlog",
            kind="level",
            summary=f"{now}, at most {top}." if most else "No backlog.",
            top=top if most else "",
            lines=[("waiting", drawing.line(counts, most))],
        ),
        Chart(
            title="Longest wait",
            kind="level",
            summary=f"{oldest}, at most {span(longest)}." if longest else "No transaction was due.",
            top=span(longest) if longest else "",
            lines=[("oldest", drawing.line(ages, longest))],
        ),
    ]


def backlog(pulse: Pulse) -> list[dict[str, Any]]:
    """The pending transactions by pipeline: the longest queues first, as parts of the longest."""
    waiting = [(pipeline, queue) for pipeline, queue in pulse.queues.items() if queue.count]
    queues = sorted(waiting, key=lambda one: -one[1].count)[:LONGEST_BACKLOG]
    return [
        {"pipeline": pipeline, "depth": queue.depth, "percent": round(100 * queue.count / queues[0][1].count, 1)}
        for pipeline, queue in queues
    ]
