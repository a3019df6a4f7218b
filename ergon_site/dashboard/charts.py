"""The charts of the engines, a pipeline, a provider and a boundary, as values."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from django.apps import apps

from engines.models import Pipeline
from engines.reads import series
from engines.reads.dashboard import Pulse
from engines.reads.depth import ALL_PIPELINES
from engines.reads.series import Ended, Waited
from ergon_site.access.core.charts import Chart, Line, Window
from ergon_site.access.core.durations import span

if TYPE_CHECKING:
    from facts.models import Boundary
    from providers.models import Gate
if apps.is_installed("facts"):
    from facts.reads import series as fact_series
if apps.is_installed("providers"):
    from providers.reads import series as provider_series

LONGEST_BACKLOG = 8
NO_SAMPLES = "No samples: the command maintain takes one a minute."


def of_engines(window: Window, pipeline: Pipeline | None = None) -> list[Chart]:
    """What ended and what waited, in one pipeline or in all."""
    ended = series.ended(window, pipeline.pk if pipeline else None)
    waited = series.waited(window, pipeline.pk if pipeline else ALL_PIPELINES)
    return [*_of_ended(ended, window), *_of_waiting(waited)]


def of_provider(window: Window, gate: "Gate") -> list[Chart]:
    called = provider_series.called(window, gate)
    all_of_them = provider_series.whole(called)
    counts = {"succeeded": "good", "failed": "bad", "refused": "warning"}
    calls = _counted("Calls", counts, called, all_of_them, window)
    took = [(one.took(0.5, 0.95, 1.0) if one else [None] * 3) for one in called]
    return [calls, _durations(took, all_of_them.took(0.5, 0.95, 1.0), "Nothing was called.")]


def of_boundary(window: Window, boundary: "Boundary") -> list[Chart]:
    samples = fact_series.passed(window, boundary.pk)
    known = [one for one in samples if one]
    appended, handed = sum(one.appended for one in known), sum(one.handed_over for one in known)
    flow = [
        Line(name=name, tone=tone, values=_values(samples, column))
        for name, tone, column in (("appended", "good", "appended"), ("handed over", "busy", "handed_over"))
    ]
    told = f"{appended:,} appended, {handed:,} handed over." if known else NO_SAMPLES
    backlog = [Line(name="backlog", tone="busy", values=_values(samples, "backlog"))]
    lag = [Line(name="lag", tone="calm", values=_values(samples, "lag"))]
    most = f"{known[-1].backlog:,} at last, at most {max(one.backlog for one in known):,}." if known else NO_SAMPLES
    late = f"{_span(known[-1].lag)} at last, at most {_span(max(one.lag for one in known))}." if known else NO_SAMPLES
    measured = {"kind": "lines", "gaps": "marked"}
    return [
        Chart(title="Facts", unit="count", lines=flow, summary=told, per=window.step_words, **measured),
        Chart(title="Backlog", unit="count", lines=backlog, summary=most, **measured),
        Chart(title="Lag", unit="seconds", lines=lag, summary=late, **measured),
    ]


def backlog(pulse: Pulse) -> list[dict[str, Any]]:
    """The pending transactions by pipeline: the longest queues first, as parts of the longest."""
    waiting = [(pipeline, queue) for pipeline, queue in pulse.queues.items() if queue.count]
    queues = sorted(waiting, key=lambda one: -one[1].count)[:LONGEST_BACKLOG]
    return [
        {"pipeline": pipeline, "depth": queue.depth, "percent": round(100 * queue.count / queues[0][1].count, 1)}
        for pipeline, queue in queues
    ]


def _of_ended(ended: Sequence[Ended], window: Window) -> list[Chart]:
    all_of_them = series.whole(ended)
    finished = _counted("Finished", {"succeeded": "good", "failed": "bad"}, ended, all_of_them, window)
    took = [_took(one) for one in ended]
    return [finished, _durations(took, _took(all_of_them), "Nothing finished.")]


def _took(one: Ended) -> list[float | None]:
    longest = one.longest if one.succeeded + one.failed or any(one.counts) else None
    return [one.percentile(0.5), one.percentile(0.95), longest]


def _of_waiting(waited: Sequence[Waited | None]) -> list[Chart]:
    known = [one for one in waited if one]
    depth = [Line(name="waiting", tone="busy", values=_values(waited, "waiting"))]
    ages = [Line(name="oldest", tone="calm", values=_values(waited, "oldest_age"))]
    told, late = NO_SAMPLES, NO_SAMPLES
    if known:
        most, longest, last = max(one.waiting for one in known), max(one.oldest_age for one in known), known[-1]
        more = "+" if any(one.is_capped for one in known) else ""
        told = (
            f"{last.waiting:,}{'+' if last.is_capped else ''} at last, at most {most:,}{more}."
            if most
            else "No backlog."
        )
        late = f"{_span(last.oldest_age)} at last, at most {span(longest)}." if longest else "No transaction was due."
    measured = {"kind": "lines", "gaps": "marked"}
    return [
        Chart(title="Backlog", unit="count", lines=depth, summary=told, **measured),
        Chart(title="Longest wait", unit="seconds", lines=ages, summary=late, **measured),
    ]


def _counted(title: str, tones: dict[str, str], steps: Iterable[Any], whole: Any, window: Window) -> Chart:
    """Counts of each step, and of all steps in words."""
    found = list(steps)
    lines = [Line(name=name, tone=tone, values=_values(found, name)) for name, tone in tones.items()]
    most = max((sum(getattr(one, name) for name in tones) for one in found if one), default=0)
    told = ", ".join(f"{getattr(whole, name):,} {name}" for name in tones)
    summary = f"{told}; at most {most:,} per {window.step_words}." if most else "None."
    gaps = "marked" if None in found else ""
    about = {"per": window.step_words, "gaps": gaps}
    return Chart(title=title, unit="count", kind="bars", lines=lines, summary=summary, **about)


def _durations(took: Sequence[Sequence[float | None]], whole: Sequence[float | None], nothing: str) -> Chart:
    names = {"p50": "calm", "p95": "busy", "max": "warning"}
    lines = [
        Line(name=name, tone=tone, values=[_rounded(one[place]) for one in took])
        for place, (name, tone) in enumerate(names.items())
    ]
    told = ", ".join(f"{name} {span(value)}" for name, value in zip(names, whole, strict=True) if value is not None)
    about = {"summary": f"{told}." if told else nothing, "gaps": "joined"}
    return Chart(title="Time taken", unit="seconds", kind="lines", lines=lines, **about)


def _values(steps: Iterable[Any], name: str) -> list[float | None]:
    return [None if one is None else getattr(one, name) for one in steps]


def _span(seconds: float) -> str:
    return span(seconds) if seconds else "0 s"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds:.3g}")
