"""The warning thresholds of boundaries and consumers, as rules."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from facts.core.gates import Gate

# Seconds, facts, per cent, seconds.
LAG, BACKLOG, FILL, SILENCE = 1.0, 10_000, 80.0, 60.0
# A source that has not answered for this many seconds may have any number of new facts.
UNHEARD = 5.0


class Worry(StrEnum):
    """The kinds of warnings, the gravest first."""

    ALARM = "alarm"
    GATE = "gate"
    FILL = "fill"
    RETENTION = "retention"
    HOLDING = "holding"
    SILENCE = "silence"
    BACKLOG = "backlog"
    LAG = "lag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The lag of a reader: facts, the age of the oldest, and the time since the last confirmation."""

    backlog: int
    lag: float
    silence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """For how long a fact has been kept beyond its time, and who has not let go of it."""

    overdue: float = 0.0
    held_back_by: tuple[str, ...] = ()


def unheard(silence: float) -> float:
    """For how long the head of a source has been unknown; 0 while its last answer, `silence` seconds ago, is fresh."""
    return silence if silence > UNHEARD else 0.0


def percent(held: int, ceiling: int | None) -> float | None:
    """The fill level in percent; None where there is no ceiling."""
    return None if ceiling is None else 100.0 * held / ceiling


def fullest(*percents: float | None) -> float | None:
    """The ceiling that will be reached first decides."""
    return max((one for one in percents if one is not None), default=None)


def retention(kept: float, age: float, needs: Mapping[str, int]) -> Retention:
    """The age of retained facts against their retention; `needs` are the next offsets of its readers.

    The oldest that somebody needs is what counts: without a reader nothing is held back.
    """
    overdue = max(0.0, age - kept)
    if not overdue or not needs:
        return Retention()
    first = min(needs.values())
    return Retention(overdue=overdue, held_back_by=tuple(name for name, offset in needs.items() if offset == first))


def of_boundary(gate: Gate, alarm: str, fill: float | None, flow: Flow, kept: Retention) -> Iterator[Worry]:
    if alarm:
        yield Worry.ALARM
    if gate is not Gate.NORMAL:
        yield Worry.GATE
    if fill is not None and fill >= FILL:
        yield Worry.FILL
    # Where next to nothing is kept, everything is over its time for the moment that it takes to be read.
    if kept.overdue > SILENCE:
        yield Worry.RETENTION
    yield from of_consumer(flow)
    if flow.lag > LAG:
        yield Worry.LAG


def of_consumer(flow: Flow, overdue: float = 0.0) -> Iterator[Worry]:
    """A consumer is as late as it likes; it is only asked to go on confirming, and not to fall far behind.

    `overdue` is for how many seconds its next fact is kept beyond its time: it holds truncation back.
    """
    if overdue > SILENCE:
        yield Worry.HOLDING
    if flow.backlog and flow.silence > SILENCE:
        yield Worry.SILENCE
    if flow.backlog > BACKLOG:
        yield Worry.BACKLOG
