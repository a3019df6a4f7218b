"""Quotas: so many calls in each window. Windows are aligned to their length, whoever asks first."""

from dataclasses import dataclass, replace
from math import floor
from typing import NamedTuple


class Reservation(NamedTuple):
    """Reserved units of a quota, and the start of their window."""

    amount: int = 0
    window_start: float | None = None


NOTHING = Reservation()


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit, and what is used of it in the present window; and the window before, for calls that end late."""

    limit: int
    window: float
    start: float
    end: float
    used: int = 0
    previous_start: float | None = None
    previous_used: int = 0

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)

    def at(self, now: float) -> "Quota":
        """The quota in the window of this time. Windows never go back, not even if a clock does."""
        if now < self.end:
            return self
        begin = aligned(now, self.window)
        return replace(
            self,
            start=max(begin, self.end),
            end=begin + self.window,
            used=0,
            previous_start=self.start,
            previous_used=self.used,
        )

    def refuses(self, cost: int) -> bool:
        return cost > 0 and self.used + cost > self.limit

    def reserve(self, cost: int) -> "Quota":
        return replace(self, used=self.used + cost)

    def refund(self, reservation: Reservation) -> "Quota":
        """Give back what was reserved, unless its window is over."""
        is_over = reservation.window_start != self.start
        return self if is_over else replace(self, used=max(0, self.used - reservation.amount))


def aligned(now: float, window: float) -> float:
    """The beginning of the window in which a time lies."""
    return floor(now / window) * window


def opened(limit: int, window: float, now: float) -> Quota:
    """A new quota, in the window of this time."""
    start = aligned(now, window)
    return Quota(limit, window, start, start + window)
