"""How often a process does something, and how much at once, by a clock that is passed in."""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

# Of `Throttle`, in seconds: how far apart the notifications of a process are, at least.
APART = 0.002
# A worker that is told of a burst looks so often, for so long ...
GLANCE, WATCH = 0.02, 1.0
# ... and is told again well before that is over, as long as the burst lasts.
REPEAT = 0.4
# Of `Alarms`: in a second.
TICKS = 10
# Of `Prefetch`: seconds of work, and the number of transactions before anything is known of it.
RESERVE = 0.5
FIRST = 10
# Of `Polls`: the shortest wait between two looks, in seconds.
LEAST = 0.02


class Intervals:
    """Chores by name, each every so many seconds; all are due at first."""

    def __init__(self, every: Mapping[str, float]) -> None:
        self._every = dict(every)
        self._due_at = dict.fromkeys(self._every, -math.inf)

    def due(self, now: float) -> list[str]:
        """The names that are due, the longest waiting first."""
        waiting = [name for name, due_at in self._due_at.items() if due_at <= now]
        return sorted(waiting, key=lambda name: self._due_at[name])

    def done(self, name: str, now: float) -> None:
        """Schedule the next run one interval from now: delays are not made up for."""
        self._due_at[name] = now + self._every[name]

    def next_at(self) -> float:
        return min(self._due_at.values(), default=math.inf)


@dataclass(slots=True)
class _Poll:
    at: float
    wait: float
    growth: float
    most: float


class Polls:
    """When to look for work on behalf of those who wait for it; looks that are near each other are made together."""

    def __init__(self) -> None:
        self._polls: dict[int, _Poll] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._polls

    def expect(
        self, key: int, now: float, wait: float, *, growth: float, most: float, is_urgent: bool = False
    ) -> float:
        """Look after so many seconds, or very soon, and after waits that grow as long as there is nothing; when."""
        wait = max(LEAST, min(wait, most))
        at = now + (LEAST if is_urgent else wait)
        self._polls[key] = _Poll(at, wait, growth, most)
        return at

    def expect_by(self, key: int, moment: float) -> None:
        """Whoever waits is looked for at that moment at the latest."""
        if key in self._polls:
            self._polls[key].at = min(self._polls[key].at, moment)

    def end(self, key: int) -> None:
        """Nobody waits any more."""
        self._polls.pop(key, None)

    def hurry(self) -> None:
        """There may be work for anybody: all are due."""
        for poll in self._polls.values():
            poll.at = -math.inf

    def next_at(self) -> float:
        return min((poll.at for poll in self._polls.values()), default=math.inf)

    def take(self, now: float) -> list[int]:
        """Those to look at now if any is due: also those that have waited for half of their time."""
        if now < self.next_at():
            return []
        taken = [key for key, poll in self._polls.items() if poll.at - poll.wait / 2 <= now]
        for poll in map(self._polls.__getitem__, taken):
            poll.wait = max(LEAST, min(poll.wait * poll.growth, poll.most))
            poll.at = now + poll.wait
        return taken


class Throttle:
    """Decides when a process notifies workers of new transactions: at once, or now and then while it submits very many.

    While a burst lasts, workers look for work by themselves: a notification of a burst tells them to.
    """

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


class Alarms:
    """The moments at which something is due, to the next tenth of a second: however many, they take little room."""

    def __init__(self) -> None:
        self._ticks: list[int] = []
        self._known: set[int] = set()

    def add(self, moment: float) -> float:
        """The moment that it is told at."""
        tick = math.ceil(moment * TICKS)
        if tick not in self._known:
            self._known.add(tick)
            heapq.heappush(self._ticks, tick)
        return tick / TICKS

    def due_in(self, now: float) -> float | None:
        """The seconds until the next that is still to come, None if there is none; forgets those that are past."""
        while self._ticks and self._ticks[0] <= now * TICKS:
            self._known.discard(heapq.heappop(self._ticks))
        return self._ticks[0] / TICKS - now if self._ticks else None


class Prefetch:
    """The number of transactions to claim ahead: no slot idles, and other workers get their share.

    It learns from what gets done how fast work is, and asks for half a second of it.
    """

    def __init__(self) -> None:
        self._wanted = float(FIRST)
        self._done = 0
        self._looked_at = 0.0

    def wanted(self, most: int, *, done: int, now: float) -> int:
        """The number to claim now, at most `most`, given the number done so far."""
        if done > self._done:
            measured = (done - self._done) / max(now - self._looked_at, 1e-6) * RESERVE
            # Towards the measured rate, but never by more than tenfold at once: one batch is little evidence.
            self._wanted = min(max(measured, self._wanted / 10), self._wanted * 10)
        if done > self._done or self._looked_at == 0:
            self._done, self._looked_at = done, now
        return max(1, min(most, self._rounded()))

    def _rounded(self) -> int:
        """To one digit: statements for a few numbers can be kept ready, for every number they cannot."""
        digits = str(int(self._wanted))
        return int(digits[0].ljust(len(digits), "0"))
