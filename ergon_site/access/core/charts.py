"""Charts as values: the window of time that they show, their lines, and what happened meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

MINUTE, HOUR, DAY = 60, 3600, 86400
RANGES = {"15min": 15 * MINUTE, "hour": HOUR, "day": DAY, "week": 7 * DAY}
DEFAULT_RANGE = "hour"
LONGEST = 7 * DAY
# The counts of each minute are kept for two days, those of each hour for nine.
KEPT_MINUTES, KEPT = 2 * DAY, 8 * DAY
STEPS = tuple(minutes * MINUTE for minutes in (1, 2, 5, 10, 15, 30, 60))
FEWEST_STEPS, MOST_STEPS = 5, 180
# A chart has a logarithmic scale by itself if its highest value is so many times the usual one, of so many at least.
SPIKE, FEW = 20, 5


class RangeError(ValueError):
    """A range of time that no chart shows; its text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Equal steps of time, in seconds since 1970; both ends are at the end of a step."""

    begins: int
    ends: int
    step: int

    @property
    def times(self) -> range:
        return range(self.begins, self.ends, self.step)

    def place(self, seconds: float) -> int:
        """The step that a time within the window is in."""
        return int(seconds - self.begins) // self.step

    @property
    def step_words(self) -> str:
        minutes = self.step // MINUTE
        return "minute" if minutes == 1 else "hour" if self.step == HOUR else f"{minutes} min"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    name: str
    tone: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines of one unit over a window. `gaps` says what a step without a value means to a reader."""

    title: str
    unit: str  # "count" or "seconds"
    kind: str  # "bars" for what is counted in a step, "lines" for what is measured
    lines: Sequence[Line]
    summary: str
    per: str = ""
    gaps: str = ""  # "": there are none; "joined"; "marked"

    @property
    def is_spiky(self) -> bool:
        """Whether one spike hides the rest."""
        values = [value for line in self.lines for value in line.values if value]
        return len(values) >= FEW and max(values) > SPIKE * median(values)


class Mark(NamedTuple):
    """Something that happened, and where its record is."""

    at: int
    kind: str
    text: str
    address: str


def window(now: float, *, name: str = "", begins: str = "", ends: str = "") -> Window:
    """The window of a range by its name, or between two times in seconds since 1970."""
    last = int(now) + 1  # with the step that has begun
    if begins or ends:
        first, last = _seconds(begins), min(_seconds(ends), last)
        if first >= last:
            msg = "The range must begin before it ends, and not in the future."
            raise RangeError(msg)
        if last - first > LONGEST:
            msg = "A chart shows 7 days at most."
            raise RangeError(msg)
        if first < now - KEPT:
            msg = "Charts go back 8 days."
            raise RangeError(msg)
    elif (name or DEFAULT_RANGE) in RANGES:
        first = last - RANGES[name or DEFAULT_RANGE]
    else:
        msg = f"The range is one of {', '.join(RANGES)}."
        raise RangeError(msg)
    step = step_for(last - first, age=now - first)
    last += -last % step
    first = first - first % step if begins else last - RANGES[name or DEFAULT_RANGE]
    return Window(begins=min(first, last - FEWEST_STEPS * step), ends=last, step=step)


def step_for(span: int, *, age: float) -> int:
    """The shortest step of which not too many make the span; of old times there are only hours."""
    if age > KEPT_MINUTES:
        return HOUR
    return next(step for step in STEPS if span <= step * MOST_STEPS)


def _seconds(text: str) -> int:
    # Without a limit on its length a number could be too long to be one.
    if not text.isascii() or not text.isdecimal() or len(text) > len("9999999999"):
        msg = "A range begins and ends at whole seconds since 1970."
        raise RangeError(msg)
    return int(text)
