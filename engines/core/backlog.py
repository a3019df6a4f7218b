"""Transactions handed to the slots: who is next, never two of the same id at once, and how many have ended how."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from engines.core.outcome import Failure, Outcome, Success
from engines.core.report import FailedTransaction, Report
from engines.core.steps import Stop

# The last failures that a report names.
FAILURES_KEPT = 1000


class Backlog:
    """The waiting and the running. Not for several threads at once: its driver sees to that."""

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()
        self._running: dict[str, Any] = {}
        self._deferred: dict[str, deque[Any]] = {}
        self._twins = 0

    @property
    def waiting(self) -> int:
        """The number of transactions that have not started, those that wait for their twins included."""
        return len(self._waiting) + self._twins

    @property
    def running(self) -> list[Any]:
        return list(self._running.values())

    def add(self, transactions: Iterable[Any]) -> None:
        self._waiting.extend(transactions)

    def take(self) -> Any | None:
        """The next one that may run; one whose twin still runs is passed over until that has ended."""
        while self._waiting:
            transaction = self._waiting.popleft()
            if transaction.id not in self._running:
                self._running[transaction.id] = transaction
                return transaction
            self._deferred.setdefault(transaction.id, deque()).append(transaction)
            self._twins += 1
        return None

    def end(self, transaction: Any) -> None:
        """A transaction has ended; its twin, if any, comes next."""
        del self._running[transaction.id]
        if self._deferred and (twins := self._deferred.get(transaction.id)):
            self._waiting.appendleft(twins.popleft())
            self._twins -= 1
            if not twins:
                del self._deferred[transaction.id]

    def drop(self, is_unwanted: Callable[[Any], bool]) -> None:
        """Take out those that have not started and are not wanted any more."""
        self._waiting = deque(one for one in self._waiting if not is_unwanted(one))
        for uid, twins in list(self._deferred.items()):
            kept = deque(one for one in twins if not is_unwanted(one))
            self._twins -= len(twins) - len(kept)
            if kept:
                self._deferred[uid] = kept
            else:
                del self._deferred[uid]

    def withdraw(self) -> list[Any]:
        """Everything that has not started, in order; nothing is left waiting."""
        unstarted = [*self._waiting, *(twin for twins in self._deferred.values() for twin in twins)]
        self._waiting.clear()
        self._deferred.clear()
        self._twins = 0
        return unstarted


class Tally:
    """The counts of one loop so far, and its last failures."""

    def __init__(self) -> None:
        self.succeeded = self.failed = self.skipped = 0
        self.failures: deque[FailedTransaction] = deque(maxlen=FAILURES_KEPT)

    def count(self, transaction: Any, outcome: Outcome) -> None:
        """Count a transaction that has ended; one that was cut has not."""
        if isinstance(outcome, Success):
            self.succeeded += 1
        elif isinstance(outcome, Failure):
            self.failed += 1
            self.failures.append(FailedTransaction(transaction.id, outcome.error))

    def report(self, elapsed: float, stopped_by: Stop) -> Report:
        return Report(
            processed=self.succeeded + self.failed,
            succeeded=self.succeeded,
            failed=self.failed,
            skipped=self.skipped,
            elapsed=elapsed,
            stopped_by=stopped_by.value,
            failures=tuple(self.failures),
        )
