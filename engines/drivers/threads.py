"""The thread driver: the caller's thread fetches and waits, a pool of slots runs the lifecycles."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from engines.connectors.base import collect, transactions_in
from engines.core.lifecycle import Plan
from engines.core.loops import take
from engines.core.outcome import CUT, Cut, Failure, Later, Outcome, Success
from engines.core.report import Report
from engines.core.steps import WORK, Await, Call, Drain, Flush, Skip, Sleep, Start, Step, Steps, Stop, Take, Withdraw
from engines.drivers.attempts import checked_result
from engines.drivers.deadlines import Deadlines
from engines.drivers.run import Entry, Run
from engines.drivers.slots import ThreadSlots
from engines.drivers.timeouts import Abandoned, LimitReached, is_request_to_end, run_with_timeout, with_context
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
        self._late = Abandoned()  # calls of the connector: they count for no attempts
        self._over = threading.Event()
        self._has_arrived = False

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
                ending = self._drive(self.work.loop(lambda: self.work.policy))
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
            self._run.withdraw()
            self._release(self._run.given_back)
            self._flush()
        return self._run.conclude(ending)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _fill(self) -> None:
        self._slots.fill()

    def _arrive(self) -> None:
        """There may be work: look before the wait is over."""
        with self._changed:
            self._has_arrived = True
            self._changed.notify_all()

    def _lose(self, lost: Sequence[Transaction]) -> None:
        """Other workers have these by now. A thread cannot be ended, but its handler can ask; a process is ended."""
        with self._changed:
            self._run.drop_lost()
            self._changed.notify_all()
        if self._run.elsewhere is not None:
            for transaction in lost:
                self._run.elsewhere.halt_one(transaction)

    def _drive(self, steps: Steps[Stop | Failure]) -> Stop | Failure:
        reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                ending: Stop | Failure = end.value
                return ending
            self._run.observer.before(step)
            reply = self._perform(step)
            self._run.observer.after(step, reply)

    def _perform(self, step: Step) -> Any:
        match step:
            case Call():
                return self._fetch(step)
            case Take(source, size):
                return self._take(source, size)
            case Start(transactions):
                self._start(transactions)
            case Await(for_room):
                return self._await(for_room=for_room)
            case Sleep():
                return self._rest(step)
            case Flush():
                self._flush()
            case Skip(how_many):
                self._run.tally.skipped += how_many
            case Withdraw():
                with self._changed:
                    self._run.withdraw()
            case Drain():
                self._drain()
        return None

    def _fetch(self, call: Call) -> Outcome:
        run, fetch = self._run, self._fetch_batch
        if run.is_crowded:
            self._wait(lambda: run.is_stopping or not run.is_crowded, run.left())
        if run.interruption() is not None:
            return CUT
        limit = run.fetch_limit(call)
        self._has_arrived = False
        try:
            batch = run_with_timeout(
                fetch, limit and limit.seconds, call.argument, abandoned=self._late, late=self._release
            )
        except BaseException as error:
            if is_request_to_end(error):
                raise
            return run.fetch_failed(error, fetch, call, limit)
        if run.take_batch(batch):
            self._slots.resize()
        run.observer.fetched(batch, self._depth())
        return Success(batch)

    def _fetch_batch(self, size: int) -> list[Transaction]:
        connector, batch = self.work.connector, []  # type: ignore[var-annotated]
        try:
            collect(connector.fetch_transactions(size, **self._run.fetch_extra()), size, into=batch)
        except BaseException:
            if batch:
                connector.release(transactions_in(batch))
            raise
        return batch

    def _depth(self) -> int | None:
        if not self._run.observer.is_recording:
            return None
        try:
            return run_with_timeout(self.work.connector.count, self._run.left(), abandoned=self._late)
        except BaseException as error:  # a number for a chart is not worth a batch
            if is_request_to_end(error):
                raise
            return None

    def _take(self, source: Iterator[Any], size: int) -> Any:
        try:
            return run_with_timeout(take, self._run.left(), source, size, abandoned=self._late)
        except LimitReached:
            return self._run.interruption() or CUT

    def _start(self, transactions: list[Transaction]) -> None:
        one = partial(self._run_one, self.work, self.work.plan)
        run = with_context(self._run.observer.batch(one, len(transactions)))
        self._slots.add([Entry(transaction.id, transaction, run) for transaction in transactions])

    def _await(self, *, for_room: bool) -> Cut | None:
        run, slots = self._run, self._slots
        room = slots.room if for_room else -1
        with self._changed:
            slots.is_room_awaited = for_room
            self._wait(lambda: run.is_stopping or slots.is_idle or run.backlog.waiting <= room, run.left())
            slots.is_room_awaited = False
            return run.interruption()

    def _rest(self, sleep: Sleep) -> Cut | None:
        run = self._run
        self._wait(lambda: run.is_stopping or (sleep.is_for_work and self._has_arrived), run.left(sleep.seconds))
        return run.interruption()

    def _drain(self) -> None:
        self._wait(lambda: self._slots.is_idle or self._run.is_cut, self._run.left_to_drain())
        if not self._slots.is_idle:
            self._run.leave_running()

    def _wait(self, is_over: Callable[[], bool], seconds: float | None = None) -> None:
        with self._changed:
            for left in self._run.waits(is_over, seconds):
                self._changed.wait(left)

    def _run_one(self, work: Work, plan: Plan, transaction: Transaction, trace: Trace | None = None) -> Outcome:
        """Run a lifecycle, from its first step to the acknowledgement, under the policy of its batch."""
        outcome = self._live(work, plan, transaction, trace)
        if isinstance(outcome, Cut) or not self._run.settle(transaction.id):
            return CUT
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
        if self._run.is_over or not self.work.connector.begin(transaction):
            return CUT
        attempt = self._run.attempt(call, transaction, deadlines)
        if attempt.is_too_late:
            return attempt.out_of_time()
        handler, arguments, limit = attempt.handler, attempt.arguments, attempt.limit
        try:
            if limit is None or (self._run.elsewhere is not None and call.stage in WORK):
                value = handler(*arguments)
            else:
                value = run_with_timeout(handler, limit.seconds, *arguments, abandoned=self._run.abandoned)
            return Success(checked_result(value, call.stage))
        except BaseException as error:  # noqa: BLE001 (classified: one that asks to end the process, too)
            return self._run.attempt_failed(attempt, error)

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
        self._release(everything)
        self._flush()

    def _flush(self) -> None:
        """Return once every outcome that was taken is safe, or the loop's time is up."""
        self._ask("keep outcomes", self.work.connector.flush)

    def _release(self, transactions: list[Transaction]) -> None:
        if transactions:
            self._ask("take transactions back", self.work.connector.release, transactions)

    def _ask(self, verb: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Of the connector, in time; an error ends the loop and is raised at its end."""
        try:
            run_with_timeout(function, self._run.left_to_give_back(), *arguments, abandoned=self._late)
        except BaseException as error:  # noqa: BLE001 (told at the loop's end)
            self._run.blame_connector(error, verb)
