"""What a run of a loop keeps in mind, whichever driver performs it."""

import time
from typing import Any

from engines.core.backlog import Backlog
from engines.core.errors import AbandonedAttemptsError, ConnectorError
from engines.core.outcome import CUT, Cut, Failure
from engines.core.report import Report, Tally
from engines.core.steps import Stop
from engines.drivers.observed import observer_of
from engines.drivers.work import Deadlines, Work


class Run:
    """The state of one loop on its way, and the account at its end."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.tally = Tally()
        self.backlog = Backlog()
        self.observer = observer_of(work)
        self.is_stopping = self.is_late = False
        self.given_back: list[Any] = []
        self.fault: BaseException | None = None
        self.started_at = time.monotonic()
        self.ends_at = None if work.timeout is None else self.started_at + work.timeout
        self.is_limited = work.timeout is not None or work.transaction_timeout is not None

    def deadlines(self) -> Deadlines:
        """The deadlines of a transaction that starts now."""
        seconds = self.work.transaction_timeout
        return Deadlines(None if seconds is None else time.monotonic() + seconds, self.ends_at)

    def left(self, seconds: float | None = None) -> float | None:
        """The shorter of these seconds and what is left of the loop's time."""
        if self.ends_at is None:
            return seconds
        left = max(0.0, self.ends_at - time.monotonic())
        return left if seconds is None else min(seconds, left)

    def interruption(self) -> Cut | None:
        """Cut, if somebody or the clock wants the loop to end."""
        if self.ends_at is not None and time.monotonic() >= self.ends_at:
            self.is_late = True
        return CUT if self.is_stopping or self.is_late else None

    def blame(self, error: BaseException) -> None:
        """Something ended the loop that is nobody's transaction; the first such thing is told."""
        self.fault = self.fault or error
        self.is_stopping = True

    def blame_connector(self, error: Exception, verb: str) -> None:
        fault = ConnectorError(f"the connector failed to {verb}: {error}")
        fault.__cause__ = error
        self.blame(fault)

    def blame_abandoned(self, count: int) -> None:
        grace = self.work.abandoned_grace
        self.blame(AbandonedAttemptsError(f"{count} abandoned attempts have not ended within {grace:g} s"))

    def conclude(self, ending: Stop | Failure) -> Report:
        """The report, or the error that ended the loop and carries it."""
        stopped_by = ending if isinstance(ending, Stop) else Stop.STOPPED
        report = self.tally.report(time.monotonic() - self.started_at, stopped_by)
        if self.fault is not None:
            raise self.fault
        if self.is_late:
            msg = f"{self.work.task} ran for its {self.work.timeout:g} s; {report.processed} transactions had ended"
            raise self.work.timeout_error(msg, report)
        if isinstance(ending, Failure):
            ending.error.report = report
            raise ending.error
        return report
