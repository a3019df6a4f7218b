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
from engines.core.outcome import CUT, Cut, Failure, Outcome, Success
from engines.core.report import Report
from engines.core.steps import WORK, Await, Call, Drain, Flush, Skip, Sleep, Start, Step, Steps, Stop, Take, Withdraw
from engines.drivers.attempts import checked_result
from engines.drivers.deadlines import Deadlines
from engines.drivers.run import Entry, Run
from engines.drivers.slots import AsyncSlots
from engines.drivers.timeouts import (
    CANCELLING,
    Abandoned,
    LimitReached,
    awaitable,
    is_request_to_end,
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
        self._late = Abandoned()  # calls of the connector: they count for no attempts
        self._releasing: set[asyncio.Task[None]] = set()
        self._home: asyncio.AbstractEventLoop | None = None
        self._has_arrived = False

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
        self._has_arrived = True
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
                ending = await self._drive(self.work.loop(lambda: self.work.policy))
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
            self._run.withdraw()
            await self._release(self._run.given_back)
            await self._flush()
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
            case Take(source, size):
                return await self._take(source, size)
            case Start(transactions):
                self._start(transactions)
            case Await(for_room):
                return await self._await(for_room=for_room)
            case Sleep():
                return await self._rest(step)
            case Flush():
                await self._flush()
            case Skip(how_many):
                self._run.tally.skipped += how_many
            case Withdraw():
                self._run.withdraw()
            case Drain():
                await self._drain()
        return None

    async def _fetch(self, call: Call) -> Outcome:
        run, fetch = self._run, self._fetch_batch
        if run.is_crowded:
            await self._wait(lambda: run.is_stopping or not run.is_crowded, run.left())
        if run.interruption() is not None:
            return CUT
        limit = run.fetch_limit(call)
        self._has_arrived = False
        try:
            batch = await run_with_timeout_async(
                fetch, limit and limit.seconds, call.argument, abandoned=self._late, late=self._release
            )
        except BaseException as error:
            if is_request_to_end(error) or _is_cancelled():
                raise
            return run.fetch_failed(error, fetch, call, limit)
        if run.take_batch(batch):
            self._slots.resize()
        run.observer.fetched(batch, await self._depth())
        return Success(batch)

    async def _fetch_batch(self, size: int) -> list[Transaction]:
        connector, batch = self.work.connector, []  # type: ignore[var-annotated]
        try:
            collect(await connector.fetch_transactions_async(size, **self._run.fetch_extra()), size, into=batch)
        except BaseException:
            if batch:
                await connector.release_async(transactions_in(batch))
            raise
        return batch

    async def _depth(self) -> int | None:
        if not self._run.observer.is_recording:
            return None
        try:
            return await run_with_timeout_async(self.work.connector.count_async, self._run.left(), abandoned=self._late)
        except BaseException as error:  # a number for a chart is not worth a batch
            if is_request_to_end(error) or _is_cancelled():
                raise
            return None

    async def _take(self, source: Iterator[Any], size: int) -> Any:
        """In a thread: a source that waits must not keep the event loop."""
        try:
            return await run_with_timeout_async(asyncio.to_thread, self._run.left(), take, source, size)
        except LimitReached:
            return self._run.interruption() or CUT

    def _start(self, transactions: list[Transaction]) -> None:
        one = partial(self._run_one, self.work, self.work.plan)
        run = with_context_async(self._run.observer.batch_async(one, len(transactions)))
        self._slots.add([Entry(transaction.id, transaction, run) for transaction in transactions])

    async def _await(self, *, for_room: bool) -> Cut | None:
        run, slots = self._run, self._slots
        room = slots.room if for_room else -1
        slots.is_room_awaited = for_room
        await self._wait(lambda: run.is_stopping or slots.is_idle or run.backlog.waiting <= room, run.left())
        slots.is_room_awaited = False
        return run.interruption()

    async def _rest(self, sleep: Sleep) -> Cut | None:
        run = self._run
        await asyncio.sleep(0)  # a wait of nothing still lets others run
        await self._wait(lambda: run.is_stopping or (sleep.is_for_work and self._has_arrived), run.left(sleep.seconds))
        return run.interruption()

    async def _drain(self) -> None:
        await self._wait(lambda: self._slots.is_idle or self._run.is_cut, self._run.left_to_drain())
        if not self._slots.is_idle:
            self._run.leave_running()

    async def _wait(self, is_over: Callable[[], bool], seconds: float | None = None) -> None:
        for left in self._run.waits(is_over, seconds):
            self._changed.clear()
            timer = None if left is None else asyncio.get_running_loop().call_later(left, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    async def _run_one(self, work: Work, plan: Plan, transaction: Transaction, trace: Trace | None = None) -> Outcome:
        """Run a lifecycle, from its first step to the acknowledgement, under the policy of its batch."""
        outcome = await self._live(work, plan, transaction, trace)
        if isinstance(outcome, Cut) or not self._run.settle(transaction.id):
            return CUT
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
        if call.stage in WORK and transaction.id in self._run.overdue:
            await self._let_end(self._run.overdue[transaction.id], deadlines)
        if self._run.is_over or not await self.work.connector.begin_async(transaction):
            return CUT
        attempt = self._run.attempt(call, transaction, deadlines)
        if attempt.is_too_late:
            return attempt.out_of_time()
        handler, arguments, limit = attempt.handler, attempt.arguments, attempt.limit
        try:
            if limit is None:
                value = await awaitable(handler(*arguments))
            else:
                value = await run_with_timeout_async(handler, limit.seconds, *arguments, abandoned=self._run.abandoned)
            return Success(checked_result(value, call.stage, is_async=True))
        except BaseException as error:  # noqa: BLE001 (classified: one that asks to end the process, too)
            if isinstance(error, KeyboardInterrupt) and _is_raised_by_signals():
                self._run.blame(error)
                return CUT
            return self._run.attempt_failed(attempt, error)

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
        await self._release(everything)
        await self._flush()

    async def _flush(self) -> None:
        """Return once every outcome that was taken is safe, or the loop's time is up."""
        await self._ask("keep outcomes", self.work.connector.flush_async)

    async def _release(self, transactions: list[Transaction]) -> None:
        if transactions:
            await self._ask("take transactions back", self.work.connector.release_async, transactions)

    async def _ask(self, verb: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Of the connector, in time; an error ends the loop and is raised at its end."""
        try:
            seconds = self._run.left_to_give_back()
            await run_with_timeout_async(function, seconds, *arguments, abandoned=self._late)
        except BaseException as error:
            if _is_cancelled():
                raise
            self._run.blame_connector(error, verb)

    def _release_later(self, transaction: Transaction) -> None:
        """Give one back that ended after the loop; nobody waits for that."""
        task = asyncio.ensure_future(self._release([transaction]))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)


def _is_cancelled() -> bool:
    """Whether whoever runs the loop wants it to end; else a connector has raised the error by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_raised_by_signals() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt in whatever code this thread happens to run."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
