"""The gate before a provider: its decisions, and the windows of quotas.

Breaker, quota, cooldown, retry budget and an operator's word are decided together, by one statement of
`providers.database` on one row.
"""

from enum import StrEnum
from math import floor
from typing import NamedTuple

from providers.core.breaker import BreakerPolicy, Permit


class Decision(StrEnum):
    """The gate's answer to a call that wants to pass, and to one that comes back."""

    ADMITTED = "admitted"
    PROBE = "probe"
    QUOTA = "quota"
    CIRCUIT = "circuit"
    COOLING = "cooling"
    RETRY = "retry"
    SUPPRESSED = "suppressed"
    ENDED = "ended"
    SHUT = "shut"  # a retry was wanted, and the breaker has opened

    @property
    def is_admission(self) -> bool:
        return self in {Decision.ADMITTED, Decision.PROBE}


class Reservation(NamedTuple):
    """Reserved units of a quota, and the start of their window."""

    amount: int = 0
    window_start: float | None = None


NOTHING = Reservation()


class Admission(NamedTuple):
    """The gate's answer to a call: the right to make it, or why not and for how long."""

    decision: Decision
    permit: Permit = Permit(0)
    window_start: float | None = None
    reserved: int = 0
    retry_after: float | None = None


class Asked(NamedTuple):
    """The needs of a call: units of the quota (0 if reserved already), and the time of a probe."""

    breaker: BreakerPolicy
    cost: int = 1
    probe_lease: float = 60.0


class Window(NamedTuple):
    """A window of a quota, and what is used of it."""

    start: float
    end: float
    used: int = 0

    def at(self, now: float, length: float) -> "Window":
        """The window of this time, which nothing is used of if it is a new one. Windows never go back."""
        if now < self.end:
            return self
        fresh = aligned(now, length)
        return fresh._replace(start=max(fresh.start, self.end))


def aligned(now: float, length: float) -> Window:
    """The window in which a time lies: windows start at multiples of their length."""
    start = floor(now / length) * length
    return Window(start, start + length)
