"""Counts outcomes while a loop runs."""

from collections import deque
from typing import Any

from engines.core.outcome import Failure, Outcome, Success
from engines.core.report import FailedTransaction, Report
from engines.core.steps import Stop

FAILURES_KEPT = 1000


class Tally:
    """The counts of one loop so far, and its last failures."""

    def __init__(self) -> None:
        self.succeeded = self.failed = self.skipped = 0
        self.failures: deque[FailedTransaction] = deque(maxlen=FAILURES_KEPT)

    def count(self, transaction: Any, outcome: Outcome) -> None:
        """One has ended; what was cut has not."""
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
