"""The limit and the slots of a pipeline that several loops run at once, each from a source of its own."""

import threading
from collections.abc import Callable
from itertools import count


class SharedLimit:
    """Never more transactions start in all loops together than the policy's limit, nor run than its concurrency."""

    def __init__(self) -> None:
        # A fetch under a limit is made alone: nobody knows beforehand how many will come.
        self.turn = threading.Lock()
        self._counting = threading.Lock()
        self._started = 0
        self.lock = threading.Lock()  # of the slots
        self.turns = count(1)
        self.shares: list[Share] = []

    def left(self, limit: int | None) -> int | None:
        """The number of transactions that may still start; None if nothing limits them."""
        return None if limit is None else max(0, limit - self._started)

    def count(self, change: int) -> None:
        """Count fetched transactions, or with a negative number those that were given back."""
        with self._counting:
            self._started += change

    def share(self) -> "Share":
        made = Share(self)
        self.shares.append(made)
        return made


class Share:
    """The slots of one loop. The loop with fewer, and with the older last turn, goes first."""

    def __init__(self, shared: SharedLimit, wake: Callable[[], None] = lambda: None) -> None:
        self._shared, self.wake = shared, wake
        self.running = self.last_turn = 0
        self.is_waiting = False

    @property
    def rank(self) -> tuple[int, int]:
        return self.running, self.last_turn

    def take(self, concurrency: int, *, is_forced: bool = False) -> bool:
        """A slot for one transaction; False if there is none: `wake` is called when it is worth another try.

        One that is only to be given back has its slot by force.
        """
        with self._shared.lock:
            others = [one for one in self._shared.shares if one is not self]
            is_full = self.running + sum(one.running for one in others) >= concurrency
            is_behind = any(one.is_waiting and one.rank < self.rank for one in others)
            self.is_waiting = not is_forced and (is_full or is_behind)
            if self.is_waiting:
                return False
            self.running, self.last_turn = self.running + 1, next(self._shared.turns)
            return True

    def give(self) -> None:
        """A transaction has ended, or waits without a slot."""
        with self._shared.lock:
            self.running -= 1
        self._wake_others()

    def decline(self) -> None:
        """There is nothing to run here."""
        with self._shared.lock:
            was_waiting, self.is_waiting = self.is_waiting, False
        if was_waiting:  # others may have let it go first
            self._wake_others()

    def _wake_others(self) -> None:
        for one in self._shared.shares:
            if one is not self and one.is_waiting:
                one.wake()
