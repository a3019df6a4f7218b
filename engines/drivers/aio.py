"""The asyncio driver: the same steps, awaited.

A call that outlives its limit is cancelled; one that ignores the cancellation is abandoned, as a thread would be.
"""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from types import CoroutineType
from typing import Any, ParamSpec, TypeVar

from engines.core.lifecycle import classify, classify_fetch, lifecycle
from engines.core.outcome import CUT, Cut, Failure, Outcome, Success
from engines.core.report import Report
from engines.core.steps import Await, Call, Drain, Skip, Sleep, Start, Step, Steps, Stop, Withdraw
from engines.drivers.observed import Trace
from engines.drivers.run import Run
from engines.drivers.threads import Abandoned, Entry, LimitReached
from engines.drivers.work import NO_DEADLINES, Deadlines, Scope, Work, announce, expired, reached

P = ParamSpec("P")
T = TypeVar("T")

# How long a cancelled call may take to end before it counts as abandoned.
CANCELLING = 0.02
PATIENCE = 0.05

_all_abandoned = Abandoned()


def with_context_async(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, "asyncio.Task[T]"]:
    """The coroutine function bound to the context of now: every call is a task in its own copy of it."""
    bound = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> "asyncio.Task[T]":
        return asyncio.get_running_loop().create_task(function(*args, **kwargs), context=bound.copy())

    return run


async def run_with_timeout_async(
    function: Callable[..., Awaitable[T]],
    timeout: float | None,  # noqa: ASYNC109 (bounding time is what it is for)
    *args: Any,
    abandoned: Abandoned = _all_abandoned,
    late: Callable[[T], Coroutine[Any, Any, Any]] | None = None,
    **kwargs: Any,
) -> T:
    """Await the function, but return or raise within the timeout, whatever the function does.

    A result that comes after that is given to `late`, if anybody wants it, and to nobody else.
    """
    if timeout is None:
        value: T = await _awaitable(function(*args, **kwargs))
        return value
    task = asyncio.ensure_future(_contained(function, *args, **kwargs))
    try:
        done, _ = await asyncio.wait({task}, timeout=min(timeout, threading.TIMEOUT_MAX))
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        request, value = task.result()
        if request is not None:
            raise request
        return value
    await _give_up_on(task, abandoned, late)
    raise LimitReached(function, timeout)


async def _contained(
    function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any
) -> tuple[BaseException | None, Any]:
    # Let loose in a task of its own, a request to leave would tear down the event loop.
    try:
        return None, await _awaitable(function(*args, **kwargs))
    except (KeyboardInterrupt, SystemExit) as request:
        return request, None


_stragglers: set["asyncio.Task[Any]"] = set()


async def _give_up_on(
    task: "asyncio.Future[Any]", abandoned: Abandoned, late: Callable[[Any], Coroutine[Any, Any, Any]] | None
) -> None:
    def ended(task: "asyncio.Future[Any]") -> None:
        if not task.cancelled() and task.exception() is None and late is not None:
            straggler = asyncio.ensure_future(late(task.result()[1]))
            _stragglers.add(straggler)
            straggler.add_done_callback(_stragglers.discard)

    task.add_done_callback(ended)
    task.cancel()
    await asyncio.wait({task}, timeout=CANCELLING)
    if not task.done():
        abandoned.begin()
        task.add_done_callback(lambda _: abandoned.end())


def _awaitable(value: Any) -> Awaitable[Any]:
    if type(value) is CoroutineType or inspect.isawaitable(value):
        return value
    msg = "a handler of an async task must be a coroutine function; this one returned a plain value"
    raise TypeError(msg)


class AsyncDriver:
    """Runs one loop: the caller's task fetches and waits, a semaphore of slots runs the lifecycles as tasks."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._run = Run(work)
        self.abandoned = Abandoned(self._run.observer.abandoned)
        self._slots = asyncio.Semaphore(work.concurrency)
        self._tasks: dict[asyncio.Task[Outcome], Entry] = {}
        self._changed = asyncio.Event()
        self._home: asyncio.AbstractEventLoop | None = None
        self._is_room_awaited = False
        self._is_over = False

    def stop(self) -> None:
        """Begin no more; let what runs end. For any thread and for signal handlers."""
        self._run.is_stopping = True
        if self._home is not None:
            self._home.call_soon_threadsafe(self._changed.set)

    async def run(self) -> Report:
        """Run the loop to its end and account for it."""
        self._home = asyncio.get_running_loop()
        timer = self._home.call_later(self.work.timeout, self._changed.set) if self.work.timeout else None
        try:
            with self._run.observer.loop():
                ending = await self._drive(self.work.loop())
        except BaseException:
            await self._give_everything_back()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        await self._release(self._run.given_back + [entry.transaction for entry in self._run.backlog.withdraw()])
        return self._run.conclude(ending)

    async def _drive(self, steps: Steps[Stop | Failure]) -> Stop | Failure:
        reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                ending: Stop | Failure = end.value
                return ending
            self._run.observer.before(step)
            reply = await self._perform(step)
            self._run.observer.after(step, reply)

    async def _perform(self, step: Step) -> Any:
        match step:
            case Call():
                return await self._fetch(step)
            case Start(transactions):
                await self._start(transactions)
            case Await(for_room):
                return await self._await(for_room=for_room)
            case Sleep(seconds):
                return await self._rest(seconds)
            case Skip(how_many):
                self._run.tally.skipped += how_many
            case Withdraw():
                self._run.given_back += [entry.transaction for entry in self._run.backlog.withdraw()]
            case Drain():
                while self._tasks:
                    await self._change()
        return None

    async def _fetch(self, call: Call) -> Outcome:
        if self.work.is_streaming:
            await self._wait_for_the_abandoned()
        if self._run.interruption() is not None or self.work.fetch is None:
            return CUT
        limit = Deadlines(None, self._run.ends_at).limit(call.retry.timeout, is_bounded=False)
        try:
            seconds = limit and limit.seconds
            keep: dict[str, Any] = {"abandoned": self.abandoned, "late": self._release}
            batch = await run_with_timeout_async(self.work.fetch, seconds, call.argument, **keep)
            self._run.observer.fetched(batch, await self._depth())
            return Success(batch)
        except LimitReached as error:
            if limit is None or error.function is not self.work.fetch:
                return classify_fetch(error)
            self._run.interruption()
            return reached(limit, call, self.work, None)
        except Exception as error:  # noqa: BLE001 (classified)
            return classify_fetch(error)

    async def _depth(self) -> int | None:
        if self.work.count is None or not self._run.observer.is_recording:
            return None
        with suppress(Exception):  # a number for a chart is not worth a batch
            return int(await self.work.count())
        return None

    async def _start(self, transactions: list[Any]) -> None:
        if not self.work.is_streaming:
            await self._wait_for_the_abandoned()
        run = with_context_async(self._run.observer.batch_async(self._run_one, len(transactions)))
        self._run.backlog.add(Entry(transaction.id, transaction, run) for transaction in transactions)
        while not self._run.is_stopping and not self._slots.locked():
            entry = self._run.backlog.take()
            if entry is None:
                return
            await self._slots.acquire()
            self._occupy(entry)

    def _occupy(self, entry: Entry) -> None:
        task = entry.run(entry.transaction)
        self._tasks[task] = entry
        task.add_done_callback(self._vacate)

    def _vacate(self, task: "asyncio.Task[Outcome]") -> None:
        """A slot is free: it goes to the next in line, and only otherwise back to the semaphore."""
        run, entry = self._run, self._tasks.pop(task)
        self._count(entry, CUT if task.cancelled() else task.result())
        following = None if run.is_stopping or self._is_over else run.backlog.take()
        if following is not None:
            self._occupy(following)
        else:
            self._slots.release()
        if not self._tasks or (self._is_room_awaited and run.backlog.waiting <= self.work.concurrency):
            self._changed.set()

    def _count(self, entry: Entry, outcome: Outcome) -> None:
        self._run.backlog.end(entry)
        self._run.tally.count(entry, outcome)
        if isinstance(outcome, Cut) and not self._is_over:
            self._run.given_back.append(entry.transaction)

    async def _await(self, *, for_room: bool) -> Cut | None:
        room = self.work.concurrency if for_room else -1
        self._is_room_awaited = for_room
        while self._run.interruption() is None and self._tasks and self._run.backlog.waiting > room:
            await self._change()
        self._is_room_awaited = False
        return self._run.interruption()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _rest(self, seconds: float) -> Cut | None:
        until = time.monotonic() + (self._run.left(seconds) or 0.0)
        while self._run.interruption() is None and (left := until - time.monotonic()) > 0:
            timer = asyncio.get_running_loop().call_later(min(left, threading.TIMEOUT_MAX), self._changed.set)
            await self._change()
            timer.cancel()
        return self._run.interruption()

    async def _run_one(self, transaction: Any, trace: Trace | None = None) -> Outcome:
        """One lifecycle, from its first step to the acknowledgement."""
        outcome = await self._live(transaction, trace)
        acknowledge = self.work.acknowledge
        if acknowledge is not None and not isinstance(outcome, Cut):
            try:
                await acknowledge(transaction, outcome)
            except Exception as error:  # noqa: BLE001 (told at the loop's end)
                self._run.blame_connector(error, "take an outcome")
        return outcome

    async def _live(self, transaction: Any, trace: Trace | None) -> Outcome:
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
                    reply = await self._call(step, transaction, deadlines)
                case Sleep():
                    reply = await self._sleep(step, transaction, deadlines)
                case _:
                    reply = None
            if trace is not None:
                trace.after(step, reply)

    async def _call(self, call: Call, transaction: Any, deadlines: Deadlines) -> Outcome:
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
                return Success(await _awaitable(handler(*arguments)))
            limited = run_with_timeout_async(handler, limit.seconds, *arguments, abandoned=self.abandoned)
            return Success(await limited)
        except LimitReached as error:
            if limit is None or error.function is not handler:
                return classify(error, call.stage, transaction.id)
            return reached(limit, call, self.work, transaction.id)
        except (KeyboardInterrupt, SystemExit) as request:
            self._run.blame(request)
            return CUT
        except BaseException as error:  # noqa: BLE001 (classified)
            return CUT if self._is_over else classify(error, call.stage, transaction.id)

    async def _sleep(self, sleep: Sleep, transaction: Any, deadlines: Deadlines) -> Outcome | None:
        limit = deadlines.limit(sleep.seconds, is_bounded=sleep.is_bounded)
        await asyncio.sleep(min(limit.seconds, threading.TIMEOUT_MAX) if limit else 0)
        match limit and limit.scope:
            case Scope.TRANSACTION:
                return expired(self.work, transaction.id)
            case Scope.LOOP:
                return CUT
        return None

    async def _wait_for_the_abandoned(self) -> None:
        until = time.monotonic() + self.work.abandoned_grace
        while self.abandoned.count >= self.work.abandoned_ceiling and self._run.interruption() is None:
            if time.monotonic() >= until:
                self._run.blame_abandoned(self.abandoned.count)
                return
            await asyncio.sleep(PATIENCE)

    async def _give_everything_back(self) -> None:
        """The caller's own task failed or was cancelled: nothing that runs counts any more, all of it is given back."""
        self._is_over = self._run.is_stopping = True
        untouched = self._run.backlog.withdraw() + self._run.backlog.running
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CANCELLING)
        await self._release(self._run.given_back + [entry.transaction for entry in untouched])

    async def _release(self, transactions: list[Any]) -> None:
        if transactions and self.work.release is not None:
            try:
                await self.work.release(transactions)
            except Exception as error:  # noqa: BLE001 (told at the loop's end)
                self._run.blame_connector(error, "take transactions back")
