"""Decides when a process may notify workers of new transactions: at once, or a little later on behalf of several."""

import math

# In seconds: how far apart the notifications of a process are, at least and at most.
SHORTEST, LONGEST = 0.002, 0.045
# Notifying takes at most one part in so many of a process's time ...
SHARE = 20
# ... or one part in so many, where notifications take so long that the longest interval is too short for that.
LEAST_SHARE = 6
# From so many seconds between notifications on, a thread sends them, and whoever submits need not wait for it.
TEDIOUS = 0.010
# After so many seconds without a notification, what was learnt is forgotten.
CALM = 0.25


class Throttle:
    """Keeps the notifications of a busy process apart: the longer one takes, the further."""

    def __init__(self) -> None:
        self.next_at = self._begun_at = self._submitted_at = -math.inf
        self._interval = SHORTEST

    def is_due(self, now: float, took: float) -> bool:
        """Whether whoever has submitted, which took so long, notifies by itself now.

        A process that submits for less than half of its time is not busy with it: there each submission notifies.
        """
        idle = now - took - self._submitted_at
        self._submitted_at = now
        if idle > took:
            return now >= self._begun_at + SHORTEST
        if now > self.next_at + CALM:
            self._interval = SHORTEST
        return now >= self.next_at and self._interval < TEDIOUS

    def begin(self, now: float) -> None:
        """One is being sent."""
        self._begun_at, self.next_at = now, now + self._interval

    def end(self, took: float) -> None:
        """Learn from how long it took; one that took long by chance counts for a quarter."""
        longest = max(LONGEST, took * LEAST_SHARE)
        self._interval += (min(max(took * SHARE, SHORTEST), longest) - self._interval) / 4
