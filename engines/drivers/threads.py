"""The thread driver: performs steps with a pool of slots, and bounds time where Python lets it.

A thread cannot be killed. A call that outlives its limit is abandoned: its late result reaches nobody, it is counted
until it ends, and when too many pile up no further work is begun.
"""

import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from types import CoroutineType
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar

from engines.core.lifecycle import classify, classify_fetch, lifecycle
from engines.core.outcome import CUT, Cut, Failure, Outcome, Success
from engines.core.report import Report
from engines.core.steps import Await, Call, Drain, Skip, Sleep, Stage, Start, Step, Steps, Stop, Withdraw
from engines.drivers.observed import Trace
from engines.drivers.run import Run
from engines.drivers.work import NO_DEADLINES, Deadlines, Scope, Work, announce, expired, reached

P = ParamSpec("P")
T = TypeVar("T")


class LimitReached(TimeoutError):  # noqa: N818 (it reads as what happened)
    """`run_with_timeout` gave up on `function`."""

    def __init__(self, function: Callable[..., Any], seconds: float) -> None:
        super().__init__(f"no result within {seconds:g} s")
        self.function = function


class Abandoned:
    """How many calls have outlived their limit and still run."""

    def __init__(self, note: Callable[[], None] = lambda: None) -> None:
        self._changed = threading.Condition()
        self._note = note
        self.count = 0

    def begin(self) -> None:
        with self._changed:
            self.count += 1
        self._note()

    def end(self) -> None:
        with self._changed:
            self.count -= 1
            self._changed.notify_all()

    def wait_below(self, ceiling: int, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.count < ceiling, seconds)


class _Errand:
    """A call carried out by another thread."""

    __slots__ = ("_abandoned", "_call", "_done", "_late", "_state", "error", "value")

    def __init__(self, call: Callable[[], Any], late: Callable[[Any], Any] | None) -> None:
        self._call = call
        self._late = late
        self._done = threading.Lock()
        self._done.acquire()
        self._state = threading.Lock()
        self._abandoned: Abandoned | None = None
        self.value: Any = None
        self.error: BaseException | None = None

    def carry_out(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:  # noqa: BLE001 (handed to the caller)
            self.error = error
        with self._state:
            abandoned = self._abandoned
            self._done.release()
        if abandoned is not None:
            abandoned.end()
            if self._late is not None and self.error is None:
                self._late(self.value)

    def wait(self, seconds: float) -> bool:
        return self._done.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))

    def result(self) -> Any:
        if self.error is None:
            return self.value
        try:
            raise self.error
        finally:
            self.error = None  # the traceback holds this frame, and this frame must not hold the traceback

    def abandon(self, abandoned: Abandoned) -> bool:
        """Give up on it; False if it has just ended after all."""
        with self._state:
            if self._done.acquire(blocking=False):
                return False
            self._abandoned = abandoned
            abandoned.begin()
            return True


class _Runner(threading.Thread):
    """A daemon thread that carries out errands, one after the other, and is used again when it is free."""

    idle: list["_Runner"] = []

    def __init__(self) -> None:
        super().__init__(name="ergon-attempt", daemon=True)
        self.errands: SimpleQueue[_Errand] = SimpleQueue()
        self.start()

    @classmethod
    def send(cls, errand: _Errand) -> None:
        try:
            runner = cls.idle.pop()
        except IndexError:
            runner = cls()
        runner.errands.put(errand)

    def run(self) -> None:
        while True:
            self.errands.get().carry_out()
            self.idle.append(self)


# A forked process has none of its parent's threads.
os.register_at_fork(after_in_child=_Runner.idle.clear)

_all_abandoned = Abandoned()


def with_context(function: Callable[P, T], context: Context | None = None) -> Callable[P, T]:
    """The function bound to the context of now: every call, in whatever thread, runs in its own copy of it."""
    bound = context or copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return bound.copy().run(function, *args, **kwargs)

    return run


def run_with_timeout(
    function: Callable[..., T],
    timeout: float | None,
    *args: Any,
    abandoned: Abandoned = _all_abandoned,
    late: Callable[[T], Any] | None = None,
    **kwargs: Any,
) -> T:
    """Call the function, but return or raise within the timeout, whatever the function does.

    A result that comes after that is given to `late`, if anybody wants it, and to nobody else.
    """
    if timeout is None:
        return function(*args, **kwargs)
    context = copy_context()
    errand = _Errand(lambda: context.run(function, *args, **kwargs), late)
    _Runner.send(errand)
    if not errand.wait(timeout) and errand.abandon(abandoned):
        raise LimitReached(function, timeout)
    return errand.result()  # type: ignore[no-any-return]


class Entry(NamedTuple):
    """A transaction on its way to a slot, with the function that runs it in the context of its batch."""

    id: str
    transaction: Any
    run: Callable[[Any], Any]


class ThreadDriver:
    """Runs one loop: the caller's thread fetches and waits, a pool of slots runs the lifecycles."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._run = Run(work)
        self.abandoned = Abandoned(self._run.observer.abandoned)
        # Reentrant: a signal handler may ask this very thread to stop while it holds the lock.
        self._changed = threading.Condition(threading.RLock())
        self._pool = ThreadPoolExecutor(work.concurrency, thread_name_prefix=f"ergon-{work.task}")
        self._serving = 0
        self._is_room_awaited = False
        self._is_over = False

    def stop(self) -> None:
        """Begin no more; let what runs end."""
        with self._changed:
            self._run.is_stopping = True
            self._changed.notify_all()

    def run(self) -> Report:
        """Run the loop to its end and account for it."""
        try:
            with self._run.observer.loop():
                ending = self._drive(self.work.loop())
        except BaseException:
            self._give_everything_back()
            raise
        finally:
            # Never joined here: a slot whose handler does not return must not hold the caller.
            self._pool.shutdown(wait=False)
        self._release(self._run.given_back + [entry.transaction for entry in self._run.backlog.withdraw()])
        return self._run.conclude(ending)

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
            case Start(transactions):
                self._start(transactions)
            case Await(for_room):
                return self._await(for_room=for_room)
            case Sleep(seconds):
                with self._changed:
                    self._changed.wait_for(lambda: self._run.is_stopping, self._patience(seconds))
                    return self._run.interruption()
            case Skip(how_many):
                self._run.tally.skipped += how_many
            case Withdraw():
                with self._changed:
                    self._run.given_back += [entry.transaction for entry in self._run.backlog.withdraw()]
            case Drain():
                with self._changed:
                    self._changed.wait_for(lambda: self._serving == 0)
        return None

    def _fetch(self, call: Call) -> Outcome:
        if self.work.is_streaming:
            self._wait_for_the_abandoned()
        if self._run.interruption() is not None or self.work.fetch is None:
            return CUT
        limit = Deadlines(None, self._run.ends_at).limit(call.retry.timeout, is_bounded=False)
        try:
            seconds = limit and limit.seconds
            keep: dict[str, Any] = {"abandoned": self.abandoned, "late": self._release}
            batch = run_with_timeout(self.work.fetch, seconds, call.argument, **keep)
            self._run.observer.fetched(batch, self._depth())
            return Success(batch)
        except LimitReached as error:
            if limit is None or error.function is not self.work.fetch:
                return classify_fetch(error)
            self._run.interruption()
            return reached(limit, call, self.work, None)
        except Exception as error:  # noqa: BLE001 (classified)
            return classify_fetch(error)

    def _depth(self) -> int | None:
        if self.work.count is None or not self._run.observer.is_recording:
            return None
        with suppress(Exception):  # a number for a chart is not worth a batch
            return int(self.work.count())
        return None

    def _start(self, transactions: list[Any]) -> None:
        if not self.work.is_streaming:
            self._wait_for_the_abandoned()
        run = with_context(self._run.observer.batch(self._run_one, len(transactions)))
        with self._changed:
            self._run.backlog.add(Entry(transaction.id, transaction, run) for transaction in transactions)
            if self._run.is_stopping:
                return
            idle = min(self.work.concurrency - self._serving, len(transactions))
            self._serving += idle
        for _ in range(idle):
            self._pool.submit(self._serve)

    def _await(self, *, for_room: bool) -> Cut | None:
        room = self.work.concurrency if for_room else -1
        run = self._run

        def is_over() -> bool:
            return run.is_stopping or self._serving == 0 or run.backlog.waiting <= room

        with self._changed:
            self._is_room_awaited = for_room
            self._changed.wait_for(is_over, self._patience())
            self._is_room_awaited = False
            return run.interruption()

    def _serve(self) -> None:
        """One slot: run transactions until none is left."""
        run, ended, outcome = self._run, None, None
        while True:
            with self._changed:
                if ended is not None:
                    self._count(ended, outcome)
                entry = None if run.is_stopping or self._is_over else run.backlog.take()
                if entry is None:
                    self._serving -= 1
                    self._changed.notify_all()
                    return
                if self._is_room_awaited and run.backlog.waiting <= self.work.concurrency:
                    self._changed.notify_all()
            outcome = entry.run(entry.transaction)
            ended = entry

    def _count(self, entry: Entry, outcome: Any) -> None:
        self._run.backlog.end(entry)
        self._run.tally.count(entry, outcome)
        if isinstance(outcome, Cut) and not self._is_over:
            self._run.given_back.append(entry.transaction)

    def _run_one(self, transaction: Any, trace: Trace | None = None) -> Outcome:
        """One lifecycle, from its first step to the acknowledgement."""
        outcome = self._live(transaction, trace)
        acknowledge = self.work.acknowledge
        if acknowledge is not None and not isinstance(outcome, Cut):
            try:
                acknowledge(transaction, outcome)
            except Exception as error:  # noqa: BLE001 (told at the loop's end)
                self._run.blame_connector(error, "take an outcome")
        return outcome

    def _live(self, transaction: Any, trace: Trace | None) -> Outcome:
        deadlines = self._run.deadlines() if self._run.is_limited else NO_DEADLINES
        steps, reply = lifecycle(self.work.plan), None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return CUT if self._is_over else end.value
            if trace is not None:
                trace.before(step)
            match step:
                case Call():
                    reply = self._call(step, transaction, deadlines)
                case Sleep():
                    reply = self._sleep(step, transaction, deadlines)
                case _:
                    reply = None
            if trace is not None:
                trace.after(step, reply)

    def _call(self, call: Call, transaction: Any, deadlines: Deadlines) -> Outcome:
        limit = deadlines.limit(call.retry.timeout, is_bounded=call.is_bounded)
        if self._is_over:
            return CUT
        if limit is not None and limit.seconds <= 0:
            return reached(limit, call, self.work, transaction.id)
        announce(call, limit)
        handler = self.work.handlers[call.stage]
        arguments = (transaction,) if call.stage is self.work.plan.work else (transaction, call.argument)
        try:
            if limit is None:
                value = handler(*arguments)
            else:
                value = run_with_timeout(handler, limit.seconds, *arguments, abandoned=self.abandoned)
            return Success(value) if type(value) is not CoroutineType else _refuse_coroutine(value, call.stage)
        except LimitReached as error:
            if limit is None or error.function is not handler:
                return classify(error, call.stage, transaction.id)
            return reached(limit, call, self.work, transaction.id)
        except (KeyboardInterrupt, SystemExit) as request:
            self._run.blame(request)
            return CUT
        except BaseException as error:  # noqa: BLE001 (classified)
            return classify(error, call.stage, transaction.id)

    def _sleep(self, sleep: Sleep, transaction: Any, deadlines: Deadlines) -> Outcome | None:
        limit = deadlines.limit(sleep.seconds, is_bounded=sleep.is_bounded)
        time.sleep(min(limit.seconds, threading.TIMEOUT_MAX) if limit else 0)
        match limit and limit.scope:
            case Scope.TRANSACTION:
                return expired(self.work, transaction.id)
            case Scope.LOOP:
                return CUT
        return None

    def _wait_for_the_abandoned(self) -> None:
        ceiling, grace = self.work.abandoned_ceiling, self._run.left(self.work.abandoned_grace)
        if not self.abandoned.wait_below(ceiling, grace or 0.0) and self._run.interruption() is None:
            self._run.blame_abandoned(self.abandoned.count)

    def _patience(self, seconds: float | None = None) -> float | None:
        left = self._run.left(seconds)
        return None if left is None else min(left, threading.TIMEOUT_MAX)

    def _give_everything_back(self) -> None:
        """An error of the caller's own thread: nothing that runs counts any more, and all of it is given back."""
        with self._changed:
            self._is_over = self._run.is_stopping = True
            untouched = self._run.backlog.withdraw() + self._run.backlog.running
        self._release(self._run.given_back + [entry.transaction for entry in untouched])

    def _release(self, transactions: list[Any]) -> None:
        if transactions and self.work.release is not None:
            try:
                self.work.release(transactions)
            except Exception as error:  # noqa: BLE001 (told at the loop's end)
                self._run.blame_connector(error, "take transactions back")


def _refuse_coroutine(value: Coroutine[Any, Any, Any], stage: Stage) -> NoReturn:
    value.close()
    msg = f"the {stage.value} handler of a threaded task returned a coroutine; derive the task from an Async class"
    raise TypeError(msg)
