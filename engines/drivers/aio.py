"""The asyncio driver: the same steps, awaited; a semaphore of slots runs the lifecycles as tasks."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from engines.core.attempt import AttemptRecord
from engines.core.lifecycle import Plan, classify, classify_fetch
from engines.core.loops import take
from engines.core.outcome import CUT, Cut, Failure, Outcome, Success
from engines.core.report import Report
from engines.core.steps import WORK, Await, Call, Drain, Flush, Skip, Sleep, Start, Step, Steps, Stop, Take, Withdraw
from engines.drivers.limits import (
    CANCELLING,
    Abandoned,
    LimitReached,
    awaitable,
    is_request_to_end,
    run_with_timeout_async,
    with_context_async,
)
from engines.drivers.observed import Trace
from engines.drivers.run import Entry, Run
from engines.drivers.work import Deadlines, Work, announce, checked_result, reached, slept


class AsyncDriver:
    """Runs one loop: the caller's task fetches and waits, a semaphore of slots runs the lifecycles as tasks."""

    def __init__(self, work: Work) -> None:
        self._run = Run(work, wake=self._wake, resume=self._employ, release=self._release_later)
        self._late = Abandoned()  # calls of the connector: they count for no attempts
        self._slots = asyncio.Semaphore(work.concurrency)
        self._tasks: dict[asyncio.Task[Outcome], Entry] = {}
        self._changed = asyncio.Event()
        self._releasing: set[asyncio.Task[None]] = set()
        self._home: asyncio.AbstractEventLoop | None = None
        self._room = -1
        self._is_room_awaited = self._has_arrived = False

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
        if self._home is not None:
            with suppress(RuntimeError):  # its event loop is closed: there is nothing left to wake
                self._home.call_soon_threadsafe(self._changed.set)

    async def run(self) -> Report:
        """Run the loop to its end and account for it."""
        self._home = asyncio.get_running_loop()
        if self.work.on_arrival is not None:
            self.work.on_arrival(self._arrive)
        if self.work.on_lost is not None:
            self.work.on_lost(self._lose)
        if self.work.slots is not None:
            self.work.slots.wake = self._employ_soon
        try:
            with self._run.observer.loop(self._run.timeout_error):
                ending = await self._drive(self.work.loop(lambda: self.work.policy))
        except BaseException:
            await self._give_everything_back()
            raise
        finally:
            self._run.take_none()
            if self.work.on_arrival is not None:
                self.work.on_arrival(None)
            if self.work.on_lost is not None:
                self.work.on_lost(None)
        if self._run.is_cut:
            await self._give_everything_back()
        else:
            self._run.withdraw()
            await self._release(self._run.given_back)
            await self._flush()
        return self._run.conclude(ending)

    def _lose(self, _lost: Sequence[Any]) -> None:
        """Other workers have these by now: what runs of them is cancelled. For any thread."""
        if self._home is not None:
            with suppress(RuntimeError):  # its event loop is closed: nothing runs
                self._home.call_soon_threadsafe(self._cancel_lost)

    def _cancel_lost(self) -> None:
        self._run.drop_lost()
        for task, entry in self._tasks.items():
            if self._run.is_lost(entry.transaction) and not self._run.is_settled(entry):
                task.cancel()
        self._changed.set()

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

    async def _drain(self) -> None:
        await self._wait(lambda: self._is_idle() or self._run.is_cut, self._run.left_to_drain())
        if not self._is_idle():
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

    def _is_idle(self) -> bool:
        return not self._tasks and (self._run.is_stopping or not self._run.backlog.waiting)

    async def _rest(self, sleep: Sleep) -> Cut | None:
        run = self._run
        await asyncio.sleep(0)  # a wait of nothing still lets others run
        await self._wait(lambda: run.is_stopping or (sleep.is_for_work and self._has_arrived), run.left(sleep.seconds))
        return run.interruption()

    async def _fetch(self, call: Call) -> Outcome:
        if self._run.is_crowded:
            await self._wait(lambda: self._run.is_stopping or not self._run.is_crowded, self._run.left())
        if self._run.interruption() is not None or self.work.fetch is None:
            return CUT
        deadlines = Deadlines(None, self._run.ends_at)
        limit = deadlines.limit(call.retry.timeout, is_bounded=False)
        self._has_arrived = False
        try:
            seconds = limit and limit.seconds
            keep: dict[str, Any] = {"abandoned": self._late, "late": self._release}
            batch = await run_with_timeout_async(self.work.fetch, seconds, call.argument, **keep)
        except LimitReached as error:
            if limit is None or error.function is not self.work.fetch:
                return classify_fetch(error)
            self._run.look_at_the_clock()
            return reached(limit, call, deadlines, None)
        except BaseException as error:
            if is_request_to_end(error) or _is_cancelled():
                raise
            return classify_fetch(error)
        self._run.in_hand = batch
        if batch and self._run.adopt():
            self._resize()
        self._run.observer.fetched(batch, await self._depth())
        return Success(batch)

    async def _take(self, source: Iterator[Any], size: int) -> Any:
        """In a thread: a source that waits must not keep the event loop."""
        try:
            return await run_with_timeout_async(asyncio.to_thread, self._run.left(), take, source, size)
        except LimitReached:
            return self._run.interruption() or CUT

    def _resize(self) -> None:
        """As many slots as the policy says by now; those beyond end with what they run."""
        self._slots = asyncio.Semaphore(max(0, self.work.concurrency - len(self._tasks)))

    async def _depth(self) -> int | None:
        if self.work.count is None or not self._run.observer.is_recording:
            return None
        try:
            return int(await run_with_timeout_async(self.work.count, self._run.left(), abandoned=self._late))
        except BaseException as error:  # a number for a chart is not worth a batch
            if is_request_to_end(error) or _is_cancelled():
                raise
            return None

    def _start(self, transactions: list[Any]) -> None:
        one = partial(self._run_one, self.work, self.work.plan)
        run = with_context_async(self._run.observer.batch_async(one, len(transactions)))
        # A batch in reserve, so that the next one is here before the slots run dry.
        self._room = max(self.work.concurrency, len(transactions))
        self._run.backlog.add(Entry(transaction.id, transaction, run) for transaction in transactions)
        self._run.in_hand = []
        self._employ()

    def _employ_soon(self) -> None:
        """A shared slot may be free. For any thread."""
        if self._home is not None:
            with suppress(RuntimeError):  # its event loop is closed
                self._home.call_soon_threadsafe(self._employ)

    def _employ(self) -> None:
        while not self._slots.locked() and (entry := self._next()) is not None:
            with suppress(StopIteration):  # there is room: to acquire it is not to wait
                self._slots.acquire().send(None)
            self._occupy(entry)

    def _next(self) -> Entry | None:
        """The transaction for a free slot, if one may begin."""
        run = self._run
        is_crowded = self.work.abandoned.occupied > 0 and run.is_crowded
        if is_crowded:
            run.is_holding_back = True
            self._changed.set()
        if is_crowded or run.is_stopping:
            run.take_none()
            return None
        return run.take()

    def _occupy(self, entry: Entry) -> None:
        task = entry.run(entry.transaction)
        self._tasks[task] = entry
        task.add_done_callback(self._vacate)

    def _vacate(self, task: "asyncio.Task[Outcome]") -> None:
        """A slot is free: it goes to the next in line, and only otherwise back to the semaphore."""
        run, entry = self._run, self._tasks.pop(task)
        run.end(entry, self._outcome_of(task))
        is_surplus = len(self._tasks) >= self.work.concurrency
        following = None if is_surplus else self._next()
        if following is not None:
            self._occupy(following)
        elif not is_surplus:
            self._slots.release()
        if not self._tasks or (self._is_room_awaited and run.backlog.waiting <= self._room):
            self._changed.set()

    def _outcome_of(self, task: "asyncio.Task[Outcome]") -> Outcome:
        if task.cancelled():
            return CUT
        error = task.exception()
        if error is not None:  # a slot must not die silently; told at the loop's end
            self._run.blame(error)
            return CUT
        return task.result()

    async def _await(self, *, for_room: bool) -> Cut | None:
        room = self._room if for_room else -1
        run = self._run
        self._is_room_awaited = for_room
        await self._wait(lambda: run.is_stopping or self._is_idle() or run.backlog.waiting <= room, run.left())
        self._is_room_awaited = False
        return run.interruption()

    async def _run_one(self, work: Work, plan: Plan, transaction: Any, trace: Trace | None = None) -> Outcome:
        """One lifecycle, from its first step to the acknowledgement, under the policy of its batch."""
        outcome = await self._live(work, plan, transaction, trace)
        acknowledge = work.acknowledge
        if isinstance(outcome, Cut) or not self._run.settle(transaction.id):
            return CUT
        if acknowledge is not None:
            try:
                await acknowledge(transaction, outcome)
            except BaseException as error:  # noqa: BLE001 (told at the loop's end)
                self._run.blame_connector(error, "take an outcome")
        return outcome

    async def _live(self, work: Work, plan: Plan, transaction: Any, trace: Trace | None) -> Outcome:
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
                    reply = await self._call(step, transaction, deadlines)
                    self._note(step, transaction, started, reply)
                case Sleep():
                    reply = await self._sleep(step, transaction, deadlines)
                case _:
                    reply = None
            if trace is not None:
                trace.after(step, reply)

    def _note(self, call: Call, transaction: Any, started: float, outcome: Outcome) -> None:
        work = self.work
        if work.note is not None and work.is_noted(call.stage, outcome):
            number, duration = call.attempt + 1, time.monotonic() - started
            work.note(
                transaction, AttemptRecord(call.stage, number, call.retry.max_attempts, started, duration, outcome)
            )

    async def _call(self, call: Call, transaction: Any, deadlines: Deadlines) -> Outcome:
        if call.stage in WORK and transaction.id in self._run.overdue:
            await self._let_end(self._run.overdue[transaction.id], deadlines)
        if self._run.is_over or (self.work.begin is not None and not await self.work.begin(transaction)):
            return CUT
        limit = deadlines.limit_of(call)
        if limit is not None and limit.seconds <= 0:
            return reached(limit, call, deadlines, transaction.id)
        announce(self.work, transaction, call, limit)
        handler = self.work.handlers[call.stage]
        arguments = (transaction,) if call.stage in WORK else (transaction, call.argument)
        try:
            if limit is None:
                value = await awaitable(handler(*arguments))
            else:
                value = await run_with_timeout_async(handler, limit.seconds, *arguments, abandoned=self._run.abandoned)
            return Success(checked_result(value, call.stage, is_async=True))
        except LimitReached as error:
            if limit is None or error.function is not handler:
                return classify(error, call, transaction.id)
            if error.call is not None:
                self._run.overdue[transaction.id] = error.call
            return reached(limit, call, deadlines, transaction.id)
        except BaseException as error:  # noqa: BLE001 (classified: one that asks to end the process, too)
            if isinstance(error, KeyboardInterrupt) and _is_raised_by_signals():
                self._run.blame(error)
                return CUT
            is_cut = self._run.is_over or self._run.is_lost(transaction)
            return CUT if is_cut else classify(error, call, transaction.id)

    async def _let_end(self, call: Any, deadlines: Deadlines) -> None:
        """The next execution of a transaction begins once the cancelled one has tidied up, or had its time for that."""
        if call is not None and not call.done():
            limit = deadlines.limit(self.work.cancel_grace, is_bounded=True)
            await asyncio.wait({call}, timeout=limit and limit.seconds)

    async def _sleep(self, sleep: Sleep, transaction: Any, deadlines: Deadlines) -> Outcome | None:
        limit = deadlines.limit(sleep.seconds, is_bounded=sleep.is_bounded)
        await asyncio.sleep(min(limit.seconds, threading.TIMEOUT_MAX) if limit else 0)
        return slept(limit, deadlines, transaction.id)

    async def _give_everything_back(self) -> None:
        """The caller's own task failed or was cancelled: nothing that runs counts any more, all of it is given back."""
        everything = self._run.give_up()
        for task, entry in self._tasks.items():
            if not self._run.is_settled(entry):
                task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CANCELLING)
        if self._releasing:
            await asyncio.wait(self._releasing, timeout=self._run.left_to_give_back())
        await self._release(everything)
        await self._flush()

    async def _flush(self) -> None:
        """Return once every outcome that was taken is safe, or the loop's time is up."""
        if self.work.flush is not None:
            await self._ask("keep outcomes", self.work.flush)

    async def _release(self, transactions: list[Any]) -> None:
        if transactions and self.work.release is not None:
            await self._ask("take transactions back", self.work.release, transactions)

    async def _ask(self, verb: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Of the connector, in time; what goes wrong is told at the loop's end."""
        try:
            seconds = self._run.left_to_give_back()
            await run_with_timeout_async(function, seconds, *arguments, abandoned=self._late)
        except BaseException as error:
            if _is_cancelled():
                raise
            self._run.blame_connector(error, verb)

    def _release_later(self, transaction: Any) -> None:
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
