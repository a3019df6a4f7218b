"""The state and the rules of one running loop, shared by both drivers."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, NoReturn

import structlog

from engines.connectors.base import OnArrival, OnLost, overrides
from engines.core.attempt import AttemptRecord
from engines.core.backlog import Backlog, Tally
from engines.core.errors import AbandonedAttemptsError, ConnectorError, EngineError, error_text, headline
from engines.core.lifecycle import Plan, Resumed, classify, lifecycle
from engines.core.outcome import CUT, DONE, Cancelled, Cut, Failure, Later, Outcome, Success
from engines.core.policy import ConsumerPolicy
from engines.core.report import Report
from engines.core.steps import WORK, Call, Sleep, Stage, Stop
from engines.drivers.attempts import NO_DEADLINES, PLAIN, Deadlines, Limit, announce, refusal_of
from engines.drivers.requests import Ask, Driver, Entry, LetEnd, Pause, Raised, Requests, functions_of
from engines.drivers.timeouts import Abandoned, Killed, LimitReached, Running, is_raised_by_signals, is_request_to_end
from engines.drivers.tracing import Trace, observer_of
from engines.drivers.work import Postponed, RunsElsewhere, Waiting, Work
from engines.tasks.transaction import Transaction

log = structlog.get_logger("ergon.engines")

# How often a loop whose slots stand idle looks whether they can go on.
PATIENCE = 0.05
# How long what is cut at the loop's end may take to leave its slot, before it is left behind.
LINGER = 0.03
# How long a connector may take, once the loop's time is up, to take back what was cut.
GIVING_BACK = 5.0


class Run:
    """The state of one loop on its way, and the account at its end."""

    def __init__(self, work: Work, driver: Driver, *, is_async: bool) -> None:
        self.work, self.driver, self._is_async = work, driver, is_async
        self.functions = functions_of(work.connector, is_async=is_async)
        self.tally = Tally()
        self.backlog = Backlog()
        self.observer = observer_of(work)
        self.is_stopping = self.is_late = self.is_over = self.is_cut = False
        self.given_back: list[Any] = []
        self.in_hand: list[Any] = []  # fetched, and not yet handed to the slots
        self._settling = threading.Lock()
        self._settled: set[str] = set()
        self.left_behind = work.task.abandoned_counter()  # by all loops of the task
        self._abandoned = Abandoned(self.left_behind, self._leave_behind, work.task.cancel_grace)
        self._overdue: dict[str, Running] = {}  # calls that have outlived their limit and may still run
        self._left_running: set[str] = set()  # when the loop's time was up
        self.elsewhere = work.elsewhere
        # What the connector leaves as it is need not be called for each transaction.
        self._is_asked = overrides(work.connector, "begin", "begin_async")
        self._is_acknowledged = overrides(work.connector, "acknowledge", "acknowledge_async")
        self._is_noted = overrides(work.connector, "note")
        self.is_holding_back = False  # slots are idle although transactions wait
        self.fault: BaseException | None = None
        self._is_concluded = False
        self.started_at = time.monotonic()
        self.timeout = work.policy.loop.timeout
        self.ends_at = None if self.timeout is None else self.started_at + self.timeout

    @contextmanager
    def attached(self, arrive: OnArrival, lose: OnLost, take_slot: Callable[[], None]) -> Iterator[None]:
        """Meanwhile the connector tells of new and of lost transactions, and of shared slots that may be free."""
        connector = self.work.connector
        connector.on_arrival(arrive)
        connector.on_lost(lose)
        if connector.slots is not None:
            connector.slots.wake = take_slot
        try:
            with self.observer.loop(self.timeout_error):
                yield
        finally:
            self._decline_slots()
            connector.on_arrival(None)
            connector.on_lost(None)

    def adopt(self) -> bool:
        """Go on under the policy that is in force by now; True if it has changed."""
        before, self.work = self.work, self.work.renewed()
        if self.work is before:
            return False
        self.observer.adopt(self.work)
        return True

    def _deadlines(self, work: Work, resumed: Resumed) -> Deadlines:
        """The deadlines of a transaction that starts now, or goes on after it was put back."""
        if resumed.ends_at is not None:
            return Deadlines(resumed.ends_at, self.ends_at, resumed.timeout)
        seconds = work.policy.loop.transaction_timeout
        if seconds is None:
            return NO_DEADLINES if self.ends_at is None else Deadlines(None, self.ends_at)
        return Deadlines(time.monotonic() + seconds, self.ends_at, seconds)

    def fetch_extra(self) -> Mapping[str, Any]:
        """The keyword arguments of the next fetch, by the policy that is in force by now."""
        policy = self.work.renewed().policy
        return policy.steps.fetch.extra if isinstance(policy, ConsumerPolicy) else {}

    def take_batch(self, batch: list[Transaction]) -> bool:
        """A batch was fetched: go on under its policy. True if that is another one than before."""
        self.in_hand = batch
        return bool(batch) and self.adopt()

    def add(self, entries: Iterable[Entry]) -> None:
        """Hand a batch to the slots."""
        self.backlog.add(entries)
        self.in_hand = []

    def entries(self, transactions: list[Transaction]) -> list[Entry]:
        """Transactions ready for the slots, each to be run under the policy and in the context of now."""
        is_observed = self.observer.is_recording
        is_final = not is_observed and Stage.SUCCESS in self.work.silent
        plan = self.work.plan._replace(is_observed=is_observed, is_success_final=is_final)
        performed = partial(self._lifecycle, self.work, plan)
        observed, context = self.observer.batch(performed, len(transactions)), copy_context()
        return [Entry(transaction.id, transaction, observed, context) for transaction in transactions]

    def _lifecycle(
        self, work: Work, plan: Plan, transaction: Transaction, trace: Trace | None = None
    ) -> Requests[Outcome]:
        """Perform a lifecycle from its first step to the acknowledgement, as requests to the driver."""
        resumed = work.connector.resumed(transaction)
        steps = lifecycle(plan, resumed, is_cancelled=work.connector.is_cancelled(transaction))
        deadlines, elsewhere, reply, tried = self._deadlines(work, resumed), self.elsewhere, None, None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                outcome: Outcome = end.value
                break
            if trace is not None:
                trace.before(step)
            reply = None
            if isinstance(step, Call):
                if elsewhere is not None and step.stage in WORK:
                    reply, deadlines = yield from self._call_elsewhere(elsewhere, step, transaction, deadlines, plan)
                else:
                    reply = yield from self._attempt(step, transaction, deadlines)
                if isinstance(reply, Failure):
                    tried = step.stage, reply
                    reply = self._last(*tried, transaction) or reply
                if trace is not None:
                    trace.after(step, reply)
            elif isinstance(step, Sleep):
                limit = deadlines.limit(step.seconds, is_bounded=step.is_bounded)
                is_over = yield Pause(min(limit.seconds, threading.TIMEOUT_MAX) if limit else 0.0)
                reply = CUT if is_over else deadlines.slept(limit, transaction.id)
                if reply is None and tried is not None:
                    reply = self._last(*tried, transaction)
        if isinstance(outcome, Cut) or not self._settle(transaction.id):
            return CUT
        if isinstance(outcome, Failure | Later):
            outcome = self._without_success(outcome, transaction, deadlines)
        if self._is_acknowledged:
            reply = yield self.functions.acknowledge, (transaction, outcome)
            if isinstance(reply, Raised):
                self.blame_connector(reply.error, "take an outcome")
        return outcome

    def _without_success(self, outcome: Failure | Later, transaction: Transaction, deadlines: Deadlines) -> Outcome:
        """The outcome as it is acknowledged: a wait ends with the transaction's time, or at once if it is cancelled."""
        if self.work.connector.is_cancelled(transaction):
            return Cancelled(outcome if isinstance(outcome, Failure) else outcome.failure)
        return deadlines.parked(outcome) if isinstance(outcome, Later) else outcome

    def _last(self, stage: Stage, failure: Failure, transaction: Transaction) -> Failure | None:
        """The failure as the last one, if the end of the transaction was requested; its exception handler may retry."""
        is_unwanted = stage is not Stage.EXCEPTION and self.work.connector.is_cancelled(transaction)
        return failure._replace(is_unwanted=True) if is_unwanted else None

    def _call_elsewhere(
        self, task: RunsElsewhere, call: Call, transaction: Transaction, deadlines: Deadlines, plan: Plan
    ) -> Requests[tuple[Outcome, Deadlines]]:
        """Call a handler in another process. Waiting for a place there does not count against its time."""
        waiting_since = time.monotonic()
        waiting = Waiting(partial(self._is_wanted, transaction), self.driver.slots.aside, plan.is_postponing)
        with task.hold(transaction, waiting) as held:
            if isinstance(held, Postponed):
                later = Later(held.seconds, call.attempt, Failure(held.error), is_parked=call.attempt > 0)
                return later, deadlines.postponed(time.monotonic() - waiting_since + held.seconds)
            if not held:
                return (Cancelled() if self.work.connector.is_cancelled(transaction) else CUT), deadlines
            deadlines = deadlines.postponed(time.monotonic() - waiting_since)
            return (yield from self._attempt(call, transaction, deadlines)), deadlines

    def _is_wanted(self, transaction: Transaction) -> bool:
        connector = self.work.connector
        is_unwanted = connector.is_lost(transaction) or connector.is_cancelled(transaction)
        return self.interruption() is None and not self.is_over and not is_unwanted

    def _attempt(self, call: Call, transaction: Transaction, deadlines: Deadlines) -> Requests[Outcome]:
        """Call a handler once, and report that to the connector."""
        stage, started = call.stage, time.monotonic() if self._is_noted else 0.0
        is_work = stage in WORK
        if stage in self.work.silent and not is_work and not self.is_over:
            return DONE  # there is nothing to call
        if is_work and self._overdue and transaction.id in self._overdue:
            grace = deadlines.limit(self.work.task.cancel_grace, is_bounded=True)
            yield LetEnd(self._overdue[transaction.id], grace and grace.seconds)
        is_wanted = not self.is_over
        if is_wanted and self._is_asked and not self.work.connector.is_begun(transaction):
            is_wanted = yield self.functions.begin, (transaction,)
            if isinstance(is_wanted, Raised):
                raise is_wanted.error
        limit = deadlines.limit_of(call)
        if not is_wanted:
            outcome: Outcome = CUT
        elif limit is not None and limit.seconds <= 0:
            outcome = deadlines.reached(limit, call, transaction.id)
        else:
            announce(call, limit, self.work.connector, transaction)
            handler = self.work.handlers[stage]
            arguments = (transaction,) if is_work else (transaction, call.argument)
            # An executor ends by itself what runs there for too long.
            if limit is None or (is_work and self.elsewhere is not None):
                reply = yield handler, arguments
            else:
                reply = yield Ask(handler, arguments, limit.seconds, self._abandoned)
            if reply is None:
                outcome = DONE
            elif type(reply) in PLAIN:
                outcome = Success(reply)
            else:
                outcome = self._outcome_of(reply, call, transaction, deadlines, limit)
        if self._is_noted and self.work.is_noted(stage, outcome):
            number, of, duration = call.attempt + 1, call.retry.max_attempts, time.monotonic() - started
            self.work.connector.note(transaction, AttemptRecord(stage, number, of, started, duration, outcome))
        return outcome

    def _outcome_of(
        self, reply: Any, call: Call, transaction: Transaction, deadlines: Deadlines, limit: Limit | None
    ) -> Outcome:
        """The outcome of an attempt that raised an error, did not return within its limit, or returned an object."""
        is_raised = isinstance(reply, Raised)
        error = reply.error if is_raised else refusal_of(reply, call.stage, is_async=self._is_async)
        if error is None:
            return Success(reply)
        if isinstance(error, KeyboardInterrupt) and is_raised_by_signals():
            self.blame(error)
            return CUT
        if not isinstance(error, LimitReached):
            is_cut = self.is_over or self.work.connector.is_lost(transaction)
            return CUT if is_cut else classify(error, call, transaction.id)
        is_ours = isinstance(error, Killed) or error.function is self.work.handlers[call.stage]
        if limit is None or not is_ours:
            return classify(error, call, transaction.id)  # raised by the handler, of some limit of its own
        if error.call is not None:
            self._overdue[transaction.id] = error.call
        outcome = deadlines.reached(limit, call, transaction.id)
        if isinstance(outcome, Failure) and isinstance(error, Killed) and error.details:
            outcome.error.details = error.details
        return outcome

    def left(self, seconds: float | None = None) -> float | None:
        """The shorter of these seconds and what is left of the loop's time."""
        if self.ends_at is None:
            return seconds
        left = max(0.0, self.ends_at - time.monotonic())
        return left if seconds is None else min(seconds, left)

    def left_to_drain(self) -> float | None:
        """The time to wait for running transactions: cut ones need a moment to leave."""
        left = self.left()
        return None if left is None else left + LINGER

    def left_to_give_back(self) -> float | None:
        left = self.left()
        return None if left is None else max(left, GIVING_BACK)

    def waits(self, is_over: Callable[[], bool], seconds: float | None = None) -> Iterator[float | None]:
        """Wait after wait, each at most so long, until it is over or the seconds have passed.

        Meanwhile the abandoned are looked after, and slots that stood idle because of them, or because the machine had
        no more threads, go on once they can.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            is_crowded = self._look_at_the_abandoned()
            if self.is_holding_back and not is_crowded:
                self.is_holding_back = False
                self.driver.slots.fill()
            left = None if until is None else min(until - time.monotonic(), threading.TIMEOUT_MAX)
            if is_over() or (left is not None and left <= 0):
                return
            if is_crowded or self.is_holding_back:
                left = PATIENCE if left is None else min(left, PATIENCE)
            yield left

    @property
    def is_crowded(self) -> bool:
        """Whether so much is left behind that no other transaction may begin."""
        return self.left_behind.occupied >= self._ceiling()

    def _ceiling(self) -> float:
        """The number of abandoned attempts that is too many: in a worker as many as it has slots.

        A script, which will end, goes on for longer; but what runs and what is abandoned are never more than twice its
        slots together.
        """
        if self.work.is_worker:
            return self.work.concurrency
        is_work_waiting = self.backlog.waiting > 0
        return 2 * self.work.concurrency - len(self.backlog.running) if is_work_waiting else math.inf

    def _leave_behind(self) -> None:
        self.observer.abandoned()
        if self.is_crowded:
            self.driver.wake()

    def _look_at_the_abandoned(self) -> bool:
        """Whether there are too many; after a grace nothing that runs is waited for any longer."""
        seconds, grace = self.left_behind.crowded_for(self._ceiling()), self.work.task.abandoned_grace
        if seconds is not None and seconds >= grace and not self.is_stopping:
            count = self.left_behind.occupied
            self.blame(AbandonedAttemptsError(f"{count} abandoned attempts have not ended within {grace:g} s"))
            self.is_cut = True
        return seconds is not None

    def look_at_the_clock(self) -> None:
        if self.ends_at is not None and time.monotonic() >= self.ends_at:
            self.is_late = True

    def interruption(self) -> Cut | None:
        """Cut, if somebody or the clock wants the loop to end."""
        self.look_at_the_clock()
        return CUT if self.is_stopping or self.is_late else None

    def _settle(self, transaction_id: str) -> bool:
        """Whether its outcome still counts; from then on it is not given back, whatever happens."""
        with self._settling:
            if not self.is_over:
                self._settled.add(transaction_id)
            return not self.is_over

    def is_lost(self, entry: Entry) -> bool:
        """Whether another worker has its transaction by now."""
        return self.work.connector.is_lost(entry.transaction)

    def is_settled(self, entry: Entry) -> bool:
        return entry.id in self._settled

    def end(self, entry: Entry, outcome: Outcome) -> None:
        """A transaction has ended, or was cut and is to be given back."""
        self.backlog.end(entry)
        if self.work.connector.slots is not None:
            self.leave_slot()
        self.tally.count(entry, outcome)
        self._settled.discard(entry.id)
        call = self._overdue.pop(entry.id, None) if self._overdue else None
        if not isinstance(outcome, Cut) or self.is_lost(entry):
            return
        if not self.is_over:
            self._give_back(entry.transaction, call)
            self.look_at_the_clock()
        elif entry.id in self._left_running:
            self._release_after(entry.transaction, call)

    def _give_back(self, transaction: Any, call: Running | None) -> None:
        """Give back a cut transaction, once no call of it runs any more."""
        if call is None or call.done():
            self.given_back.append(transaction)
        else:
            self._release_after(transaction, call)

    def _release_after(self, transaction: Any, call: Running | None) -> None:
        if call is None:
            self.driver.release_late([transaction])
        else:
            call.add_done_callback(lambda _: self.driver.release_late([transaction]))

    def next_entry(self) -> Entry | None:
        """The transaction for a free slot; None if none may begin."""
        is_crowded = self.left_behind.occupied > 0 and self.is_crowded
        if is_crowded:
            self.is_holding_back = True
            self.driver.wake()
        if is_crowded or self.is_stopping:
            self._decline_slots()
            return None
        return self._take()

    def _take(self) -> Entry | None:
        """The next one to run; none while all slots that this loop shares with others are taken."""
        slots = self.work.connector.slots
        if slots is None:
            return self.backlog.take()
        if not self.backlog.waiting:
            self._decline_slots()
            return None
        if not slots.take(self.work.concurrency):
            return None
        entry: Entry | None = self.backlog.take()
        if entry is None:
            slots.give()
        return entry

    def _decline_slots(self) -> None:
        """Nothing is to begin here at present: loops that share the slots need not let this one go first."""
        if self.work.connector.slots is not None:
            self.work.connector.slots.decline()

    def leave_slot(self) -> None:
        """A transaction that runs goes on without a slot, for a time."""
        if self.work.connector.slots is not None:
            self.work.connector.slots.give()

    def return_to_slot(self) -> bool:
        """Whether it has a slot again."""
        slots = self.work.connector.slots
        return slots is None or slots.take(self.work.concurrency, is_forced=self.is_stopping)

    def drop_lost(self) -> None:
        """Removes transactions from the backlog that another worker has taken over."""
        self.backlog.drop(self.is_lost)

    def withdraw(self) -> None:
        """Releases transactions that have not started."""
        self.given_back += [entry.transaction for entry in self.backlog.withdraw()]

    def give_up(self) -> list[Any]:
        """From now on nothing counts; everything that has not ended, to be given back.

        What fills this process with abandoned attempts is not: it would do the same to the next one, and nobody would
        count that. Its lease lapses, as if the process had died of it.
        """
        with self._settling:
            self.is_over = self.is_stopping = True
        self.withdraw()
        kept = set(self._overdue) if isinstance(self.fault, AbandonedAttemptsError) else self._left_running
        unsettled = [entry for entry in self.backlog.running if not self.is_settled(entry)]
        if lapsing := [entry.transaction for entry in unsettled if entry.id in kept]:
            self.work.connector.let_lapse(lapsing)
        running = [entry for entry in unsettled if entry.id not in kept]
        return self.given_back + [entry.transaction for entry in running] + self.in_hand

    def leave_running(self) -> None:
        """Wait no longer for what runs. If the loop's time is up, it is given back once it has ended."""
        is_cut_before, self.is_cut = self.is_cut, True
        self.look_at_the_clock()
        if self.is_late and not is_cut_before:
            self._left_running = {entry.id for entry in self.backlog.running}

    def blame(self, error: BaseException) -> None:
        """Something ended the loop that is nobody's transaction: the first such thing is told, others are logged."""
        if self.fault is None and not self._is_concluded:
            self.fault = error
        elif self.fault is not error:
            task = self.work.pipeline or self.work.name
            log.error("another_fault", task=task, error_type=type(error).__qualname__, error=headline(error))
        self.is_stopping = True

    def blame_connector(self, error: BaseException, verb: str) -> None:
        if is_request_to_end(error):
            self.blame(error)
            return
        fault = ConnectorError(f"the connector failed to {verb}: {error_text(error)}")
        fault.__cause__ = error
        self.blame(fault)

    def conclude(self, ending: Stop | Failure) -> Report:
        """The report, or the error that ended the loop and carries it."""
        self._is_concluded = True
        stopped_by = ending if isinstance(ending, Stop) else Stop.STOPPED
        report = self.tally.report(time.monotonic() - self.started_at, stopped_by)
        if self.fault is not None and not (self.is_late and isinstance(self.fault, EngineError)):
            self._raise_with(self.fault, report)
        if self.is_late:
            raise self._timeout_error(report) from self.fault
        if isinstance(ending, Failure):
            self._raise_with(ending.error, report)
        return report

    def timeout_error(self) -> Exception | None:
        """The error of a loop whose time is up."""
        return self._timeout_error(self.tally.report(0.0, Stop.STOPPED)) if self.is_late else None

    def _timeout_error(self, report: Report) -> Exception:
        msg = f"{self.work.name} ran for its {self.timeout:g} s; {report.processed} transactions had ended"
        return self.work.timeout_error(msg, report)

    def _raise_with(self, error: BaseException, report: Report) -> NoReturn:
        if isinstance(error, EngineError):
            error.report = report
        raise error
