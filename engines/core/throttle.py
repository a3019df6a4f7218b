"""Decides when a process notifies workers of new transactions: at once, or now and then while it submits very many.

While a burst lasts, workers look for work by themselves: a notification of a burst tells them to.
"""

import math

# In seconds: how far apart the notifications of a process are, at least.
APART = 0.002
# A worker that is told of a burst looks so often, for so long ...
GLANCE, WATCH = 0.02, 1.0
# ... and is told again well before that is over, as long as the burst lasts.
REPEAT = 0.4


class Throttle:
    """Keeps the notifications of a busy process apart."""

    def __init__(self) -> None:
        self._sent_at = self._submitted_at = -math.inf
        self._watched_until: dict[int, float] = {}

    def is_burst(self, now: float, took: float) -> bool:
        """Whether this process is busy submitting: for more than half of its time. The last one took so long."""
        idle = now - took - self._submitted_at
        self._submitted_at = now
        return idle <= took

    def due_at(self, pipeline_id: int, *, is_burst: bool) -> float:
        """When workers are to be notified of what was submitted just now."""
        due_at = self._sent_at + APART
        return max(due_at, self._watched_until.get(pipeline_id, due_at)) if is_burst else due_at

    def sending(self, now: float, pipeline_id: int, *, is_burst: bool) -> None:
        """A notification is on its way."""
        self._sent_at = now
        if is_burst:
            self._watched_until[pipeline_id] = now + REPEAT
