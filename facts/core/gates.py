"""The gate of a boundary: whether facts cross it, and what changes that; and the frontier that they reach.

Both sides work on whatever the gate says.
"""

from collections.abc import Iterable
from enum import StrEnum

# So many failed handoffs in a row close a gate.
FAILURES = 5
# So does a failure after this many seconds without a success: a source that swallows packets fails slowly.
SILENCE = 30.0
# With so few left to hand over, a boundary that caught up counts as normal.
SMALL = 100
# After the first failure; twice as long after each that follows.
FIRST_WAIT, LONGEST_WAIT = 0.2, 10.0


class Gate(StrEnum):
    NORMAL = "normal"
    AUTONOMOUS = "autonomous"
    RECONCILING = "reconciling"


def after_failure(gate: Gate, failures: int, silence: float = 0.0) -> Gate:
    """The gate after a number of failed handoffs in a row; the last success was `silence` seconds ago."""
    return Gate.AUTONOMOUS if failures >= FAILURES or silence >= SILENCE else gate


def wait_after(failures: int) -> float:
    """The delay before the next handoff."""
    return float(min(FIRST_WAIT * 2 ** min(failures - 1, 10), LONGEST_WAIT))


def after_success(gate: Gate, backlog: int) -> Gate:
    """A handoff went well, and so much is left."""
    if gate is Gate.NORMAL or backlog <= SMALL:
        return Gate.NORMAL
    return Gate.RECONCILING


def reopened(backlog: int) -> Gate:
    """A person opens it."""
    return Gate.NORMAL if backlog <= SMALL else Gate.RECONCILING


def may_try(gate: Gate, *, is_closed_by_person: bool, is_alarmed: bool = False) -> bool:
    """Whether to hand over: what failures have closed is tried on; what a person or an alarm has closed is not."""
    return not is_alarmed and not (gate is Gate.AUTONOMOUS and is_closed_by_person)


def advance(frontier: int, confirmed: Iterable[int]) -> int:
    """The highest offset up to which the forward buffer is complete; -1 before the first. It never goes down."""
    known = {offset for offset in confirmed if offset > frontier}
    while frontier + 1 in known:
        frontier += 1
    return frontier
