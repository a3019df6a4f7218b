"""The asyncio driver: the same steps, awaited; a semaphore of slots runs the lifecycles as tasks."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from engines.connectors.base import collect, transactions_in
from engines.core.lifecycle import Plan
from engines.core.loops import take
from engines.core.outcome import CUT, Cut, Outcome, Success
from engines.core.report import Report
from engines.core.steps import WORK, Call, Sleep
from engines.drivers.attempts import Deadlines, checked_result
from engines.drivers.loop import Ask, Calls, Loop, Raised, Requests, Wait
from engines.drivers.run import Attempt, Entry, Run
from engines.drivers.slots import AsyncSlots
from engines.drivers.timeouts import (
    CANCELLING,
    Abandoned,
    awaitable,
    run_with_timeout_async,
    with_context_async,
)
from engines.drivers.tracing import Trace
from engines.drivers.work import Work
from engines.tasks.transaction import Transaction


class AsyncDriver:
    """Runs one loop: the caller's task fetches and waits, a semaphore of slots runs the lifecycles as tasks."""

    def __init__(self, work: Work) -> None:
        self._changed = asyncio.Event()
        self._run = Run(work, wake=self._wake, resume=self._fill, release=self._release_later)
        self._slots = AsyncSlots(self._run, self._changed)
        connector = work.connector
        release, count, flush = connector.release_async, connector.count_async, connector.flush_async
        calls = Calls(self._fetch, release, self._release, count, flush, _take, self._entries)
        self._loop = Loop(self._run, self._slots, calls)
        self._late = Abandoned()  # calls of the connector: they count for no attempts
        self._releasing: set[asyncio.Task[None]] = set()
        self._home: asyncio.AbstractEventLoop | None = None

    @property
    def work(self) -> Work:
        return self._run.work

    def stop(self) -> None:
        """Begin no more; let what runs end. For any thread and for signal handlers."""
        self._run.is_stopping = True
        self._wake()

    def cut(self) -> None:
        """Wait no longer for what runs: it is given back, and what it still does counts for nothing."""
        self._run.is_cut = True
        self.stop()

    def _arrive(self) -> None:
        """There may be work: look before the wait is over. For any thread."""
        self._loop.has_arrived = True
        self._wake()

    def _wake(self) -> None:
        self._call_soon(self._changed.set)

    def _fill(self) -> None:
        self._slots.fill()

    def _call_soon(self, callback: Callable[[], None]) -> None:
        """In the thread of the event loop. For any thread."""
        if self._home is not None:
            with suppress(RuntimeError):  # its event loop is closed: nothing runs
                self._home.call_soon_threadsafe(callback)

    async def run(self) -> Report:
        """Run the loop to its end and account for it."""
        self._home = asyncio.get_running_loop()
        connector = self.work.connector
        connector.on_arrival(self._arrive)
        connector.on_lost(lambda _: self._call_soon(self._slots.cancel_lost))
        if connector.slots is not None:
            connector.slots.wake = lambda: self._call_soon(self._fill)
        try:
            with self._run.observer.loop(self._run.timeout_error):
                ending = await self._serve(self._loop.run(self.work.loop(lambda: self.work.policy)))
        except BaseException:
            await self._give_everything_back()
            raise
        finally:
            self._run.decline_slots()
            connector.on_arrival(None)
            connector.on_lost(None)
        if self._run.is_cut:
            await self._give_everything_back()
        else:
            await self._serve(self._loop.finish())
        return self._run.conclude(ending)

    async def _serve(self, requests: Requests[Any]) -> Any:
        """Do what the loop asks for, in the running task. Its cancellation ends the loop."""
        reply: Any = None
        while True:
            try:
                request = requests.send(reply)
            except StopIteration as end:
                return end.value
            reply = await (self._wait(request) if isinstance(request, Wait) else self._ask(request))

    async def _ask(self, ask: Ask) -> Any:
        function, seconds, arguments = ask.function, ask.seconds, ask.arguments
        try:
            return await run_with_timeout_async(function, seconds, *arguments, abandoned=self._late, late=ask.late)
        except BaseException as error:
            if _is_cancelled():
                raise
            return Raised(error)

    async def _wait(self, request: Wait) -> None:
        await asyncio.sleep(0)  # a wait of nothing still lets others run
        for left in self._run.waits(request.is_over, request.seconds):
            self._changed.clear()
            timer = None if left is None else asyncio.get_running_loop().call_later(left, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    async def _fetch(self, size: int) -> list[Transaction]:
        connector = self.work.connector
        batch: list[Transaction] = []
        try:
            collect(await connector.fetch_transactions_async(size, **self._run.fetch_extra()), size, into=batch)
        except BaseException:
            if batch:
                await connector.release_async(transactions_in(batch))
            raise
        return batch

    async def _release(self, transactions: list[Transaction]) -> None:
        await self._serve(self._loop.release(transactions))

    def _entries(self, transactions: list[Transaction]) -> list[Entry]:
        one = partial(self._run_one, self.work, self.work.plan)
        run = with_context_async(self._run.observer.batch_async(one, len(transactions)))
        return [Entry(transaction.id, transaction, run) for transaction in transactions]

    async def _run_one(self, work: Work, plan: Plan, transaction: Transaction, trace: Trace | None = None) -> Outcome:
        """Run a lifecycle, from its first step to the acknowledgement, under the policy of its batch."""
        outcome = await self._live(work, plan, transaction, trace)
        if isinstance(outcome, Cut) or not self._run.settle(transaction.id):
            return CUT
        if not self._run.is_acknowledged:
            return outcome
        try:
            await work.connector.acknowledge_async(transaction, outcome)
        except BaseException as error:  # noqa: BLE001 (told at the loop's end)
            self._run.blame_connector(error, "take an outcome")
        return outcome

    async def _live(self, work: Work, plan: Plan, transaction: Transaction, trace: Trace | None) -> Outcome:
        deadlines, steps, reply = self._run.deadlines(work), work.lifecycle(plan, transaction), None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return CUT if self._run.is_over else end.value
            if trace is not None:
                trace.before(step)
            match step:
                case Call():
                    started = time.monotonic()
                    reply = await self._attempt(step, transaction, deadlines)
                    self._run.note(step, transaction, started, reply)
                case Sleep():
                    reply = await self._sleep(step, transaction, deadlines)
                case _:
                    reply = None
            if trace is not None:
                trace.after(step, reply)

    async def _attempt(self, call: Call, transaction: Transaction, deadlines: Deadlines) -> Outcome:
        run = self._run
        if call.stage in WORK and transaction.id in run.overdue:
            await self._let_end(run.overdue[transaction.id], deadlines)
        if run.is_over or (run.is_asked and not await self.work.connector.begin_async(transaction)):
            return CUT
        limit, handler = deadlines.limit_of(call), self.work.handlers[call.stage]
        if limit is not None and limit.seconds <= 0:
            return deadlines.reached(limit, call, transaction.id)
        arguments = run.announce(call, transaction, limit)
        try:
            if limit is None:
                value = await awaitable(handler(*arguments))
            else:
                value = await run_with_timeout_async(handler, limit.seconds, *arguments, abandoned=run.abandoned)
            return Success(checked_result(value, call.stage, is_async=True))
        except BaseException as error:  # noqa: BLE001 (classified: one that asks to end the process, too)
            if isinstance(error, KeyboardInterrupt) and _is_raised_by_signals():
                run.blame(error)
                return CUT
            return run.attempt_failed(Attempt(call, transaction, handler, deadlines, limit), error)

    async def _let_end(self, call: Any, deadlines: Deadlines) -> None:
        """The next execution of a transaction begins once the cancelled one has tidied up, or had its time for that."""
        if call is not None and not call.done():
            limit = deadlines.limit(self.work.task.cancel_grace, is_bounded=True)
            await asyncio.wait({call}, timeout=limit and limit.seconds)

    async def _sleep(self, sleep: Sleep, transaction: Transaction, deadlines: Deadlines) -> Outcome | None:
        limit = deadlines.limit(sleep.seconds, is_bounded=sleep.is_bounded)
        await asyncio.sleep(min(limit.seconds, threading.TIMEOUT_MAX) if limit else 0)
        return deadlines.slept(limit, transaction.id)

    async def _give_everything_back(self) -> None:
        """The caller's own task failed or was cancelled: nothing that runs counts any more, all of it is given back."""
        everything = self._run.give_up()
        self._slots.cancel()
        if self._slots.tasks:
            await asyncio.wait(set(self._slots.tasks), timeout=CANCELLING)
        if self._releasing:
            await asyncio.wait(self._releasing, timeout=self._run.left_to_give_back())
        await self._serve(self._loop.give_back(everything))

    def _release_later(self, transaction: Transaction) -> None:
        """Give one back that ended after the loop; nobody waits for that."""
        task = asyncio.ensure_future(self._release([transaction]))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)


async def _take(source: Iterator[Any], size: int) -> Any:
    """In a thread: a source that waits must not keep the event loop."""
    return await asyncio.to_thread(take, source, size)


def _is_cancelled() -> bool:
    """Whether whoever runs the loop wants it to end; else a connector has raised the error by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_raised_by_signals() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt in whatever code this thread happens to run."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
