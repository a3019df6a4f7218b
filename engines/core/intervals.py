"""Decides which of several recurring jobs is due, by a clock that is passed in."""

from collections.abc import Mapping


class Intervals:
    """Chores by name, each every so many seconds; all are due at first."""

    def __init__(self, every: Mapping[str, float]) -> None:
        self._every = dict(every)
        self._due_at = dict.fromkeys(self._every, float("-inf"))

    def due(self, now: float) -> list[str]:
        """The names that are due, the longest waiting first."""
        waiting = [name for name, due_at in self._due_at.items() if due_at <= now]
        return sorted(waiting, key=lambda name: self._due_at[name])

    def done(self, name: str, now: float) -> None:
        """Schedule the next run one interval from now: delays are not made up for."""
        self._due_at[name] = now + self._every[name]

    def next_at(self) -> float:
        return min(self._due_at.values(), default=float("inf"))
