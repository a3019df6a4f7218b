"""The thread driver: the caller's thread fetches and waits, a pool of slots runs the lifecycles."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from engines.core.attempt import AttemptRecord
from engines.core.lifecycle import Plan, classify, classify_fetch
from engines.core.loops import take
from engines.core.outcome import CUT, Cut, Failure, Later, Outcome, Success
from engines.core.report import Report
from engines.core.steps import WORK, Await, Call, Drain, Flush, Skip, Sleep, Start, Step, Steps, Stop, Take, Withdraw
from engines.drivers.limits import Abandoned, Killed, LimitReached, is_request_to_end, run_with_timeout, with_context
from engines.drivers.observed import Trace
from engines.drivers.run import Entry, Run
from engines.drivers.work import (
    Deadlines,
    Hold,
    Postponed,
    Waiting,
    Work,
    announce,
    checked_result,
    reached,
    slept,
)

# How often somebody who waits for a slot looks whether the loop is to end.
LOOK = 0.05


class ThreadDriver:
    """Runs one loop: the caller's thread fetches and waits, a pool of slots runs the lifecycles."""

    def __init__(self, work: Work) -> None:
        self._run = Run(work, wake=self._wake, resume=self._employ, release=lambda one: self._release([one]))
        self._late = Abandoned()  # calls of the connector: they count for no attempts
        self._over = threading.Event()
        # Reentrant: a signal handler may ask this very thread to stop while it holds the lock.
        self._changed = threading.Condition(threading.RLock())
        self._pool = _slots(work)
        self._serving = 0
        self._aside = self._returning = 0  # without a slot while they wait for a place elsewhere; and back from that
        self._room = -1
        self._is_room_awaited = self._has_arrived = False

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
        if self.work.on_arrival is not None:
            self.work.on_arrival(self._arrive)
        if self.work.on_lost is not None:
            self.work.on_lost(self._lose)
        if self.work.slots is not None:
            self.work.slots.wake = self._employ_one
        try:
            with self._run.observer.loop(self._run.timeout_error):
                ending = self._drive(self.work.loop(lambda: self.work.policy))
        except BaseException:
            self._give_everything_back()
            raise
        finally:
            # Never joined here: a slot whose handler does not return must not hold the caller.
            self._pool.shutdown(wait=False)
            self._run.take_none()
            if self.work.on_arrival is not None:
                self.work.on_arrival(None)
            if self.work.on_lost is not None:
                self.work.on_lost(None)
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

    def _arrive(self) -> None:
        """There may be work: look before the wait is over."""
        with self._changed:
            self._has_arrived = True
            self._changed.notify_all()

    def _lose(self, lost: Sequence[Any]) -> None:
        """Other workers have these by now. A thread cannot be ended, but its handler can ask; a process is ended."""
        with self._changed:
            self._run.drop_lost()
            self._changed.notify_all()
        if self.work.halt_one is not None:
            for transaction in lost:
                self.work.halt_one(transaction)

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

    def _drain(self) -> None:
        self._wait(lambda: self._is_idle() or self._run.is_cut, self._run.left_to_drain())
        if not self._is_idle():
            self._run.leave_running()

    def _wait(self, is_over: Callable[[], bool], seconds: float | None = None) -> None:
        with self._changed:
            for left in self._run.waits(is_over, seconds):
                self._changed.wait(left)

    def _is_idle(self) -> bool:
        return self._serving + self._aside == 0 and (self._run.is_stopping or not self._run.backlog.waiting)

    def _rest(self, sleep: Sleep) -> Cut | None:
        run = self._run
        self._wait(lambda: run.is_stopping or (sleep.is_for_work and self._has_arrived), run.left(sleep.seconds))
        return run.interruption()

    def _fetch(self, call: Call) -> Outcome:
        if self._run.is_crowded:
            self._wait(lambda: self._run.is_stopping or not self._run.is_crowded, self._run.left())
        if self._run.interruption() is not None or self.work.fetch is None:
            return CUT
        deadlines = Deadlines(None, self._run.ends_at)
        limit = deadlines.limit(call.retry.timeout, is_bounded=False)
        self._has_arrived = False
        try:
            seconds = limit and limit.seconds
            keep: dict[str, Any] = {"abandoned": self._late, "late": self._release}
            batch = run_with_timeout(self.work.fetch, seconds, call.argument, **keep)
        except LimitReached as error:
            if limit is None or error.function is not self.work.fetch:
                return classify_fetch(error)
            self._run.look_at_the_clock()
            return reached(limit, call, deadlines, None)
        except BaseException as error:
            if is_request_to_end(error):
                raise
            return classify_fetch(error)
        self._run.in_hand = batch
        if batch and self._run.adopt():
            self._resize()
        self._run.observer.fetched(batch, self._depth())
        return Success(batch)

    def _take(self, source: Iterator[Any], size: int) -> Any:
        try:
            return run_with_timeout(take, self._run.left(), source, size, abandoned=self._late)
        except LimitReached:
            return self._run.interruption() or CUT

    def _resize(self) -> None:
        """As many slots as the policy says by now; those beyond end with what they run."""
        pool = self._pool
        self._pool = _slots(self.work)
        pool.shutdown(wait=False)

    def _depth(self) -> int | None:
        if self.work.count is None or not self._run.observer.is_recording:
            return None
        try:
            return int(run_with_timeout(self.work.count, self._run.left(), abandoned=self._late))
        except BaseException as error:  # a number for a chart is not worth a batch
            if is_request_to_end(error):
                raise
            return None

    def _start(self, transactions: list[Any]) -> None:
        one = partial(self._run_one, self.work, self.work.plan)
        run = with_context(self._run.observer.batch(one, len(transactions)))
        with self._changed:
            self._run.backlog.add(Entry(transaction.id, transaction, run) for transaction in transactions)
            self._run.in_hand = []
            if self._run.is_stopping:
                return
            idle = self._vacancies()
            # A batch in reserve, so that the next one is here before the slots run dry; but what can begin at once
            # begins before anything else is asked for.
            self._room = 0 if idle >= len(transactions) else max(self.work.concurrency, len(transactions))
        self._employ(idle)

    def _vacancies(self) -> int:
        """How many slots could work and do not; from now on they count as serving."""
        idle = max(0, min(self.work.concurrency - self._serving - self._returning, self._run.backlog.waiting))
        self._serving += idle
        return idle

    def _employ_one(self) -> None:
        """A shared slot may be free. In another thread: whoever says so holds the lock of another loop."""
        with suppress(RuntimeError):  # this loop is over
            self._pool.submit(self._serve_one)

    def _serve_one(self) -> None:
        with self._changed:
            is_idle = self._serving < self.work.concurrency - self._returning
            self._serving += is_idle
        if is_idle:
            self._serve()

    def _employ(self, idle: int | None = None) -> None:
        for _ in range(self._vacancies() if idle is None else idle):
            self._pool.submit(self._serve)

    def _await(self, *, for_room: bool) -> Cut | None:
        room = self._room if for_room else -1
        run = self._run

        def is_over() -> bool:
            return run.is_stopping or self._is_idle() or run.backlog.waiting <= room

        with self._changed:
            self._is_room_awaited = for_room
            self._wait(is_over, run.left())
            self._is_room_awaited = False
            return run.interruption()

    def _serve(self) -> None:
        """One slot: run transactions until none is left."""
        run, abandoned = self._run, self.work.abandoned
        ended: Entry | None = None
        outcome: Outcome = CUT
        while True:
            with self._changed:
                if ended is not None:
                    run.end(ended, outcome)
                is_surplus = self._serving > self.work.concurrency - self._returning
                if abandoned.occupied and run.is_crowded:
                    run.is_holding_back = is_surplus = True
                entry = None if run.is_stopping or is_surplus else run.take()
                if entry is None:
                    if run.is_stopping or run.is_holding_back:
                        run.take_none()
                    self._serving -= 1
                    self._changed.notify_all()
                    return
                if self._is_room_awaited and run.backlog.waiting <= self._room:
                    self._is_room_awaited = False
                    self._changed.notify_all()
            outcome = self._outcome_of(entry)
            ended = entry

    def _outcome_of(self, entry: Entry) -> Outcome:
        try:
            outcome: Outcome = entry.run(entry.transaction)
        except BaseException as error:  # noqa: BLE001 (a slot must not die silently; told at the loop's end)
            self._run.blame(error)
            return CUT
        return outcome

    def _run_one(self, work: Work, plan: Plan, transaction: Any, trace: Trace | None = None) -> Outcome:
        """One lifecycle, from its first step to the acknowledgement, under the policy of its batch."""
        outcome = self._live(work, plan, transaction, trace)
        acknowledge = work.acknowledge
        if isinstance(outcome, Cut) or not self._run.settle(transaction.id):
            return CUT
        if acknowledge is not None:
            try:
                acknowledge(transaction, outcome)
            except BaseException as error:  # noqa: BLE001 (told at the loop's end)
                self._run.blame_connector(error, "take an outcome")
        return outcome

    def _live(self, work: Work, plan: Plan, transaction: Any, trace: Trace | None) -> Outcome:
        deadlines, steps, reply = self._run.deadlines(work), work.lifecycle(plan, transaction), None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return CUT if self._run.is_over else end.value
            if trace is not None:
                trace.before(step)
            match step:
                case Call() if work.hold is not None and step.stage in WORK:
                    waiting = Waiting(partial(self._is_wanted, transaction), self._wait_aside, plan.is_postponing)
                    reply, deadlines = self._try_elsewhere(work.hold, waiting, step, transaction, deadlines)
                case Call():
                    reply = self._try(step, transaction, deadlines)
                case Sleep():
                    reply = self._sleep(step, transaction, deadlines)
                case _:
                    reply = None
            if trace is not None:
                trace.after(step, reply)

    def _try_elsewhere(
        self, hold: Hold, waiting: Waiting, call: Call, transaction: Any, deadlines: Deadlines
    ) -> tuple[Outcome, Deadlines]:
        """Where there is room for it; to wait for that does not eat its time."""
        waiting_since = time.monotonic()
        with hold(transaction, waiting) as held:
            if isinstance(held, Postponed):
                return Later(held.seconds, call.attempt, Failure(held.error)), deadlines
            if not held:
                return CUT, deadlines
            deadlines = deadlines.postponed(time.monotonic() - waiting_since)
            return self._try(call, transaction, deadlines), deadlines

    @contextmanager
    def _wait_aside(self) -> Iterator[bool]:
        """The slot goes to another transaction meanwhile; False if as many as there are slots wait so already."""
        with self._changed:
            is_aside = self._aside < self.work.concurrency and not self._run.is_stopping
            if is_aside:
                self._aside += 1
                self._serving -= 1
                self._run.leave_slot()
            idle = self._vacancies() if is_aside else 0
        self._employ(idle)
        try:
            yield is_aside
        finally:
            if is_aside:
                self._return_to_slot()

    def _return_to_slot(self) -> None:
        """Before any other transaction begins; nobody waits for a slot once the loop is to end."""
        run = self._run
        with self._changed:
            self._returning += 1
            while not (run.is_stopping or self._serving < self.work.concurrency) or not run.return_to_slot():
                self._changed.wait(LOOK)
            self._returning -= 1
            self._aside -= 1
            self._serving += 1

    def _is_wanted(self, transaction: Any) -> bool:
        run = self._run
        return run.interruption() is None and not run.is_over and not run.is_lost(transaction)

    def _try(self, call: Call, transaction: Any, deadlines: Deadlines) -> Outcome:
        started = time.monotonic()
        outcome = self._call(call, transaction, deadlines)
        self._note(call, transaction, started, outcome)
        return outcome

    def _note(self, call: Call, transaction: Any, started: float, outcome: Outcome) -> None:
        work = self.work
        if work.note is not None and work.is_noted(call.stage, outcome):
            number, duration = call.attempt + 1, time.monotonic() - started
            work.note(
                transaction, AttemptRecord(call.stage, number, call.retry.max_attempts, started, duration, outcome)
            )

    def _call(self, call: Call, transaction: Any, deadlines: Deadlines) -> Outcome:
        if self._run.is_over or (self.work.begin is not None and not self.work.begin(transaction)):
            return CUT
        limit = deadlines.limit_of(call)
        if limit is not None and limit.seconds <= 0:
            return reached(limit, call, deadlines, transaction.id)
        announce(self.work, transaction, call, limit)
        handler = self.work.handlers[call.stage]
        arguments = (transaction,) if call.stage in WORK else (transaction, call.argument)
        try:
            if limit is None or (self.work.hold is not None and call.stage in WORK):
                value = handler(*arguments)
            else:
                value = run_with_timeout(handler, limit.seconds, *arguments, abandoned=self._run.abandoned)
            return Success(checked_result(value, call.stage))
        except LimitReached as error:
            if limit is None or not (error.function is handler or isinstance(error, Killed)):
                return classify(error, call, transaction.id)
            if error.call is not None:
                self._run.overdue[transaction.id] = error.call
            outcome = reached(limit, call, deadlines, transaction.id)
            if isinstance(outcome, Failure) and isinstance(error, Killed) and error.details:
                outcome.error.details = error.details
            return outcome
        except BaseException as error:  # noqa: BLE001 (classified: one that asks to end the process, too)
            return CUT if self._run.is_lost(transaction) else classify(error, call, transaction.id)

    def _sleep(self, sleep: Sleep, transaction: Any, deadlines: Deadlines) -> Outcome | None:
        limit = deadlines.limit(sleep.seconds, is_bounded=sleep.is_bounded)
        if limit is not None and limit.seconds > 0 and self._over.wait(min(limit.seconds, threading.TIMEOUT_MAX)):
            return CUT
        return slept(limit, deadlines, transaction.id)

    def _give_everything_back(self) -> None:
        """An error of the caller's own thread: nothing that runs counts any more, and all of it is given back."""
        with self._changed:
            everything = self._run.give_up()
        self._over.set()
        if self.work.halt is not None:
            self.work.halt()
        self._release(everything)
        self._flush()

    def _flush(self) -> None:
        """Return once every outcome that was taken is safe, or the loop's time is up."""
        if self.work.flush is not None:
            try:
                run_with_timeout(self.work.flush, self._run.left_to_give_back(), abandoned=self._late)
            except BaseException as error:  # noqa: BLE001 (told at the loop's end)
                self._run.blame_connector(error, "keep outcomes")

    def _release(self, transactions: list[Any]) -> None:
        if transactions and self.work.release is not None:
            try:
                seconds = self._run.left_to_give_back()
                run_with_timeout(self.work.release, seconds, transactions, abandoned=self._late)
            except BaseException as error:  # noqa: BLE001 (told at the loop's end)
                self._run.blame_connector(error, "take transactions back")


def _slots(work: Work) -> ThreadPoolExecutor:
    """A thread for each slot, and as many for those that wait elsewhere."""
    count = work.concurrency * (1 if work.hold is None else 2)
    return ThreadPoolExecutor(count, thread_name_prefix=f"ergon-{work.task}")
