"""What a run of a loop keeps in mind, whichever driver performs it."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple, NoReturn

from engines.core.backlog import Backlog
from engines.core.errors import AbandonedAttemptsError, ConnectorError, EngineError
from engines.core.outcome import CUT, Cut, Failure, Outcome
from engines.core.report import Report, Tally
from engines.core.steps import Stop
from engines.drivers.observed import observer_of
from engines.drivers.work import NO_DEADLINES, Deadlines, Work


class Entry(NamedTuple):
    """A transaction on its way to a slot, with the function that runs it in the context of its batch."""

    id: str
    transaction: Any
    run: Callable[[Any], Any]


class Run:
    """The state of one loop on its way, and the account at its end."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.tally = Tally()
        self.backlog = Backlog()
        self.observer = observer_of(work)
        self.is_stopping = self.is_late = self.is_over = self.is_cut = False
        self.given_back: list[Any] = []
        self.in_hand: list[Any] = []  # fetched, and not yet handed to the slots
        self._settling = Lock()
        self._settled: set[str] = set()
        self.fault: BaseException | None = None
        self.started_at = time.monotonic()
        self.timeout = work.policy.loop.timeout
        self.ends_at = None if self.timeout is None else self.started_at + self.timeout

    def adopt(self) -> bool:
        """Go on under the policy that is in force by now; True if it has changed."""
        before, self.work = self.work, self.work.renewed()
        if self.work is before:
            return False
        self.observer.adopt(self.work)
        return True

    def deadlines(self, work: Work) -> Deadlines:
        """The deadlines of a transaction that starts now."""
        seconds = work.policy.loop.transaction_timeout
        if seconds is None:
            return NO_DEADLINES if self.ends_at is None else Deadlines(None, self.ends_at)
        return Deadlines(time.monotonic() + seconds, self.ends_at, seconds)

    def left(self, seconds: float | None = None) -> float | None:
        """The shorter of these seconds and what is left of the loop's time."""
        if self.ends_at is None:
            return seconds
        left = max(0.0, self.ends_at - time.monotonic())
        return left if seconds is None else min(seconds, left)

    def look_at_the_clock(self) -> None:
        if self.ends_at is not None and time.monotonic() >= self.ends_at:
            self.is_late = True

    def interruption(self) -> Cut | None:
        """Cut, if somebody or the clock wants the loop to end."""
        self.look_at_the_clock()
        return CUT if self.is_stopping or self.is_late else None

    def settle(self, transaction_id: str) -> bool:
        """Whether its outcome still counts; from then on it is not given back, whatever happens."""
        with self._settling:
            if not self.is_over:
                self._settled.add(transaction_id)
            return not self.is_over

    def is_settled(self, entry: Entry) -> bool:
        return entry.id in self._settled

    def end(self, entry: Entry, outcome: Outcome) -> None:
        """One transaction has ended, or was cut and is to be given back."""
        self.backlog.end(entry)
        self.tally.count(entry, outcome)
        self._settled.discard(entry.id)
        if isinstance(outcome, Cut) and not self.is_over:
            self.given_back.append(entry.transaction)
            self.look_at_the_clock()

    def withdraw(self) -> None:
        """What has not started is to be given back."""
        self.given_back += [entry.transaction for entry in self.backlog.withdraw()]

    def give_up(self) -> list[Any]:
        """From now on nothing counts; everything that has not ended, to be given back."""
        with self._settling:
            self.is_over = self.is_stopping = True
        self.withdraw()
        unsettled = [entry.transaction for entry in self.backlog.running if not self.is_settled(entry)]
        return self.given_back + unsettled + self.in_hand

    def blame(self, error: BaseException) -> None:
        """Something ended the loop that is nobody's transaction; the first such thing is told."""
        self.fault = self.fault or error
        self.is_stopping = True

    def blame_connector(self, error: BaseException, verb: str) -> None:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self.blame(error)
            return
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
        if self.fault is not None and not (self.is_late and isinstance(self.fault, EngineError)):
            self._tell(self.fault, report)
        if self.is_late:
            msg = f"{self.work.task} ran for its {self.timeout:g} s; {report.processed} transactions had ended"
            raise self.work.timeout_error(msg, report) from self.fault
        if isinstance(ending, Failure):
            self._tell(ending.error, report)
        return report

    def _tell(self, error: BaseException, report: Report) -> NoReturn:
        if isinstance(error, EngineError):
            error.report = report
        raise error
