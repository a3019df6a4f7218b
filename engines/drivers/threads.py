"""The thread driver: the caller's thread fetches and waits, a pool of slots runs the lifecycles."""

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from engines.connectors.base import collect, transactions_in
from engines.core.lifecycle import Plan
from engines.core.loops import take
from engines.core.outcome import CUT, Cut, Failure, Later, Outcome, Success
from engines.core.report import Report
from engines.core.steps import WORK, Call, Sleep
from engines.drivers.attempts import Deadlines, checked_result
from engines.drivers.loop import Ask, Calls, Loop, Raised, Requests, Wait
from engines.drivers.run import Attempt, Entry, Run
from engines.drivers.slots import ThreadSlots
from engines.drivers.timeouts import Abandoned, run_with_timeout, with_context
from engines.drivers.tracing import Trace
from engines.drivers.work import Postponed, RunsElsewhere, Waiting, Work
from engines.tasks.transaction import Transaction


class ThreadDriver:
    """Runs one loop: the caller's thread fetches and waits, a pool of slots runs the lifecycles."""

    def __init__(self, work: Work) -> None:
        # Reentrant: a signal handler may ask this very thread to stop while it holds the lock.
        self._changed = threading.Condition(threading.RLock())
        self._run = Run(work, wake=self._wake, resume=self._fill, release=lambda one: self._release([one]))
        self._slots = ThreadSlots(self._run, self._changed)
        connector = work.connector
        calls = Calls(
            self._fetch, connector.release, self._release, connector.count, connector.flush, take, self._entries
        )
        self._loop = Loop(self._run, self._slots, calls)
        self._late = Abandoned()  # calls of the connector: they count for no attempts
        self._over = threading.Event()

    @property
    def work(self) -> Work:
        return self._run.work

    def stop(self) -> None:
        """Begin no more; let what runs end."""
        with self._changed:
            self._run.is_stopping = True
            self._changed.notify_all()

    def cut(self) -> None:
        """Wait no longer for what runs: it is given back, and what it still does counts for nothing."""
        with self._changed:
            self._run.is_stopping = self._run.is_cut = True
            self._changed.notify_all()

    def run(self) -> Report:
        """Run the loop to its end and account for it."""
        connector = self.work.connector
        connector.on_arrival(self._arrive)
        connector.on_lost(self._lose)
        if connector.slots is not None:
            connector.slots.wake = self._slots.fill_one
        try:
            with self._run.observer.loop(self._run.timeout_error):
                ending = self._serve(self._loop.run(self.work.loop(lambda: self.work.policy)))
        except BaseException:
            self._give_everything_back()
            raise
        finally:
            self._slots.close()
            self._run.decline_slots()
            connector.on_arrival(None)
            connector.on_lost(None)
        if self._run.is_cut:
            self._give_everything_back()
        else:
            self._serve(self._loop.finish())
        return self._run.conclude(ending)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _fill(self) -> None:
        self._slots.fill()

    def _arrive(self) -> None:
        """There may be work: look before the wait is over."""
        with self._changed:
            self._loop.has_arrived = True
            self._changed.notify_all()

    def _lose(self, lost: Sequence[Transaction]) -> None:
        """Other workers have these by now. A thread cannot be ended, but its handler can ask; a process is ended."""
        with self._changed:
            self._run.drop_lost()
            self._changed.notify_all()
        if self._run.elsewhere is not None:
            for transaction in lost:
                self._run.elsewhere.halt_one(transaction)

    def _serve(self, requests: Requests[Any]) -> Any:
        """Do what the loop asks for, in the calling thread."""
        reply: Any = None
        while True:
            try:
                request = requests.send(reply)
            except StopIteration as end:
                return end.value
            reply = None
            match request:
                case Wait():
                    self._wait(request)
                case Ask():
                    reply = self._ask(request)

    def _ask(self, ask: Ask) -> Any:
        try:
            return run_with_timeout(ask.function, ask.seconds, *ask.arguments, abandoned=self._late, late=ask.late)
        except BaseException as error:  # noqa: BLE001 (the loop knows what to do about it)
            return Raised(error)

    def _wait(self, request: Wait) -> None:
        with self._changed:
            for left in self._run.waits(request.is_over, request.seconds):
                self._changed.wait(left)

    def _fetch(self, size: int) -> list[Transaction]:
        connector = self.work.connector
        batch: list[Transaction] = []
        try:
            collect(connector.fetch_transactions(size, **self._run.fetch_extra()), size, into=batch)
        except BaseException:
            if batch:
                connector.release(transactions_in(batch))
            raise
        return batch

    def _release(self, transactions: list[Transaction]) -> None:
        self._serve(self._loop.release(transactions))

    def _entries(self, transactions: list[Transaction]) -> list[Entry]:
        one = partial(self._run_one, self.work, self.work.plan)
        run = with_context(self._run.observer.batch(one, len(transactions)))
        return [Entry(transaction.id, transaction, run) for transaction in transactions]

    def _run_one(self, work: Work, plan: Plan, transaction: Transaction, trace: Trace | None = None) -> Outcome:
        """Run a lifecycle, from its first step to the acknowledgement, under the policy of its batch."""
        outcome = self._live(work, plan, transaction, trace)
        if isinstance(outcome, Cut) or not self._run.settle(transaction.id):
            return CUT
        if not self._run.is_acknowledged:
            return outcome
        try:
            work.connector.acknowledge(transaction, outcome)
        except BaseException as error:  # noqa: BLE001 (told at the loop's end)
            self._run.blame_connector(error, "take an outcome")
        return outcome

    def _live(self, work: Work, plan: Plan, transaction: Transaction, trace: Trace | None) -> Outcome:
        deadlines, steps, reply = self._run.deadlines(work), work.lifecycle(plan, transaction), None
        elsewhere = self._run.elsewhere
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return CUT if self._run.is_over else end.value
            if trace is not None:
                trace.before(step)
            match step:
                case Call() if elsewhere is not None and step.stage in WORK:
                    waiting = Waiting(partial(self._is_wanted, transaction), self._slots.aside, plan.is_postponing)
                    reply, deadlines = self._call_elsewhere(elsewhere, waiting, step, transaction, deadlines)
                case Call():
                    reply = self._call(step, transaction, deadlines)
                case Sleep():
                    reply = self._sleep(step, transaction, deadlines)
                case _:
                    reply = None
            if trace is not None:
                trace.after(step, reply)

    def _call_elsewhere(
        self, task: RunsElsewhere, waiting: Waiting, call: Call, transaction: Transaction, deadlines: Deadlines
    ) -> tuple[Outcome, Deadlines]:
        """Call a handler in another process. Waiting for a place there does not count against its time."""
        waiting_since = time.monotonic()
        with task.hold(transaction, waiting) as held:
            if isinstance(held, Postponed):
                return Later(held.seconds, call.attempt, Failure(held.error)), deadlines
            if not held:
                return CUT, deadlines
            deadlines = deadlines.postponed(time.monotonic() - waiting_since)
            return self._call(call, transaction, deadlines), deadlines

    def _is_wanted(self, transaction: Transaction) -> bool:
        run = self._run
        return run.interruption() is None and not run.is_over and not run.work.connector.is_lost(transaction)

    def _call(self, call: Call, transaction: Transaction, deadlines: Deadlines) -> Outcome:
        started = time.monotonic()
        outcome = self._attempt(call, transaction, deadlines)
        self._run.note(call, transaction, started, outcome)
        return outcome

    def _attempt(self, call: Call, transaction: Transaction, deadlines: Deadlines) -> Outcome:
        run = self._run
        if run.is_over or (run.is_asked and not self.work.connector.begin(transaction)):
            return CUT
        limit, handler = deadlines.limit_of(call), self.work.handlers[call.stage]
        if limit is not None and limit.seconds <= 0:
            return deadlines.reached(limit, call, transaction.id)
        arguments = run.announce(call, transaction, limit)
        try:
            if limit is None or (run.elsewhere is not None and call.stage in WORK):
                value = handler(*arguments)
            else:
                value = run_with_timeout(handler, limit.seconds, *arguments, abandoned=run.abandoned)
            return Success(checked_result(value, call.stage))
        except BaseException as error:  # noqa: BLE001 (classified: one that asks to end the process, too)
            return run.attempt_failed(Attempt(call, transaction, handler, deadlines, limit), error)

    def _sleep(self, sleep: Sleep, transaction: Transaction, deadlines: Deadlines) -> Outcome | None:
        limit = deadlines.limit(sleep.seconds, is_bounded=sleep.is_bounded)
        if limit is not None and limit.seconds > 0 and self._over.wait(min(limit.seconds, threading.TIMEOUT_MAX)):
            return CUT
        return deadlines.slept(limit, transaction.id)

    def _give_everything_back(self) -> None:
        """An error of the caller's own thread: nothing that runs counts any more, and all of it is given back."""
        with self._changed:
            everything = self._run.give_up()
        self._over.set()
        if self._run.elsewhere is not None:
            self._run.elsewhere.halt()
        self._serve(self._loop.give_back(everything))
