"""The record of one attempt, and its bar on a time axis."""

from collections.abc import Sequence
from typing import NamedTuple

from engines.core.outcome import Outcome
from engines.core.steps import Stage

NARROWEST = 0.6  # percent


class AttemptRecord(NamedTuple):
    """A try of a step, numbered from 1 for people; it began at `started` on the monotonic clock."""

    stage: Stage
    number: int
    of: int
    started: float
    duration: float
    outcome: Outcome


class Bar(NamedTuple):
    """A place on a time axis, in percent."""

    left: float
    width: float


def bars(spans: Sequence[tuple[float, float]]) -> list[Bar]:
    """A bar for each beginning and duration, over all the time that they cover; none is too narrow to be seen."""
    if not spans:
        return []
    first = min(start for start, _ in spans)
    whole = max(start + duration for start, duration in spans) - first
    if whole <= 0:
        return [Bar(0.0, 100.0) for _ in spans]
    places = [((start - first) / whole * 100, max(duration / whole * 100, NARROWEST)) for start, duration in spans]
    return [Bar(round(min(left, 100 - width), 2), round(width, 2)) for left, width in places]
