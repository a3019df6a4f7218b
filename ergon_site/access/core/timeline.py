"""Events that belong together, from any app, on one axis of time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

NARROWEST = 0.6  # percent
# So many events of each app are merged, and so many of all are shown.
MERGED = 200
SHOWN = 60


class Link(NamedTuple):
    """A row with a page in the console: the text, the page by the name of its table, and the key."""

    text: str
    page: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened: of which kind, when, for how long, how it came out, and the pages that tell more."""

    at: datetime
    kind: str
    title: str
    outcome: str = ""
    duration: float | None = None
    note: str = ""
    target: Link | None = None
    links: tuple[Link, ...] = ()
    # What only the app that tells of it shows, such as the traceback of an attempt.
    details: Any = None


class Bar(NamedTuple):
    """A place on a time axis, in percent."""

    left: float
    width: float


class Line(NamedTuple):
    """An event, its bar, and how many seconds after the first event it began."""

    event: Event
    bar: Bar
    after: float


class Timeline(NamedTuple):
    """The first event and the newest ones; `hidden` lie between them, or more if not all were looked for."""

    lines: list[Line]
    hidden: int = 0
    is_capped: bool = False


def merge(*sources: Sequence[Event], left_out: int = 0, shown: int = SHOWN) -> Timeline:
    """The events of all sources in the order of time; of too many the first and the newest.

    `left_out` counts those that were not even read, which are older than the newest ones.
    """
    events = sorted((event for source in sources for event in source), key=lambda event: event.at)
    hidden = max(0, len(events) - shown)
    kept = events[:1] + events[1 + hidden :]
    places = bars([(event.at.timestamp(), event.duration or 0.0) for event in kept])
    lines = [Line(event, bar, (event.at - kept[0].at).total_seconds()) for event, bar in zip(kept, places, strict=True)]
    return Timeline(lines, hidden + left_out, any(len(source) > MERGED for source in sources))


def bars(spans: Iterable[tuple[float, float]]) -> list[Bar]:
    """A bar for each beginning and duration, over all the time that they cover; none is too narrow to be seen."""
    spans = list(spans)
    if not spans:
        return []
    first = min(start for start, _ in spans)
    whole = max(start + duration for start, duration in spans) - first
    if whole <= 0:
        return [Bar(0.0, 100.0) for _ in spans]
    places = [((start - first) / whole * 100, max(duration / whole * 100, NARROWEST)) for start, duration in spans]
    return [Bar(round(min(left, 100 - width), 2), round(width, 2)) for left, width in places]
