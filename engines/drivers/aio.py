"""The asyncio driver: the caller's task fetches and waits, a semaphore of slots runs the lifecycles as tasks."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import CoroutineType
from typing import Any

from engines.connectors.base import collect
from engines.core.outcome import CUT, Outcome
from engines.core.report import Report
from engines.drivers.loop import Loop
from engines.drivers.requests import Ask, LetEnd, Pause, Raised, Requests, Wait
from engines.drivers.run import Run
from engines.drivers.slots import AsyncSlot, AsyncSlots
from engines.drivers.timeouts import CANCELLING, awaitable, run_with_timeout_async
from engines.drivers.watcher import SupersededError
from engines.drivers.work import Work
from engines.tasks.transaction import Transaction


class AsyncDriver:
    """Runs one loop: the caller's task fetches and waits, a semaphore of slots runs the lifecycles as tasks."""

    def __init__(self, work: Work) -> None:
        self._changed = asyncio.Event()
        self._releasing: set[asyncio.Task[None]] = set()
        self._home: asyncio.AbstractEventLoop | None = None
        self._caller: asyncio.Task[Any] | None = None
        self._run = Run(work, self, is_async=True)
        self.slots = AsyncSlots(self._run, self._changed, self.perform)
        self._loop = Loop(self._run)

    def stop(self) -> None:
        """Begin no more; let what runs end. For any thread and for signal handlers."""
        self._run.is_stopping = True
        self.wake()

    def cut(self) -> None:
        """Wait no longer for what runs: it is given back, and what it still does counts for nothing."""
        self._run.is_cut = True
        self.stop()

    async def run(self) -> Report:
        """Run the loop to its end and account for it."""
        self._home, self._caller = asyncio.get_running_loop(), asyncio.current_task()
        try:
            with self._run.attached(
                self._arrive,
                lambda _: self._call_soon(self.slots.cancel_lost),
                lambda: self._call_soon(self.slots.fill),
            ):
                ending = await self._serve(self._loop.run())
        except BaseException:
            await self._give_everything_back()
            raise
        if self._run.is_cut:
            await self._give_everything_back()
        else:
            await self._serve(self._loop.finish())
        return self._run.conclude(ending)

    def _call_soon(self, callback: Callable[[], None]) -> None:
        """In the thread of the event loop. For any thread."""
        if self._home is not None:
            with suppress(RuntimeError):  # its event loop is closed: nothing runs
                self._home.call_soon_threadsafe(callback)

    def wake(self) -> None:
        self._call_soon(self._changed.set)

    def _arrive(self) -> None:
        """There may be work: look before the wait is over. For any thread."""
        self._loop.has_arrived = True
        self.wake()

    async def perform(self, slot: AsyncSlot, reply: Any) -> None:
        """Do what a lifecycle asks for in the task of its slot, then leave it; if it is late, another task goes on."""
        requests = slot.requests
        outcome: Outcome = CUT
        try:
            while True:
                try:
                    request: Any = requests.send(reply)
                except StopIteration as end:
                    outcome = end.value
                    break
                reply = None
                if type(request) is tuple:
                    function, arguments = request
                    try:
                        reply = function(*arguments)
                        reply = await (reply if type(reply) is CoroutineType else awaitable(reply))
                    except BaseException as error:  # noqa: BLE001 (the lifecycle knows what to do about it)
                        reply = Raised(error)
                elif isinstance(request, Ask):
                    reply = await slot.ask(request, self.slots.go_on)
                elif isinstance(request, Pause):
                    await asyncio.sleep(request.seconds)
                elif isinstance(request, LetEnd):
                    await asyncio.wait({request.call}, timeout=request.seconds)
        except SupersededError:
            return
        except BaseException as error:  # noqa: BLE001 (a slot must not die silently; told at the loop's end)
            requests.close()  # here and now, whoever has cancelled this task
            if not isinstance(error, asyncio.CancelledError):
                self._run.blame(error)
        self.slots.vacate(slot, outcome)

    async def _serve(self, requests: Requests[Any]) -> Any:
        """Do what the loop asks for in the caller's task."""
        reply: Any = None
        try:
            while True:
                try:
                    request = requests.send(reply)
                except StopIteration as end:
                    return end.value
                reply = None
                if isinstance(request, Ask):
                    reply = await self._ask(request)
                elif isinstance(request, Wait):
                    await self._wait(request)
        finally:
            requests.close()  # here and now, whoever has cancelled this task

    async def _ask(self, ask: Ask) -> Any:
        function, arguments, seconds, abandoned, late = ask
        try:
            return await run_with_timeout_async(function, seconds, *arguments, abandoned=abandoned, late=late)
        except BaseException as error:
            caller = self._caller
            if caller is not None and caller is asyncio.current_task() and caller.cancelling():
                raise  # who cancels the caller's task ends the loop
            return Raised(error)

    async def _wait(self, wait: Wait) -> None:
        await asyncio.sleep(0)  # a wait of nothing still lets others run
        for left in self._run.waits(wait.is_over, wait.seconds):
            self._changed.clear()
            timer = None if left is None else asyncio.get_running_loop().call_later(left, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    async def fetch(self, size: int) -> list[Transaction]:
        connector = self._run.work.connector
        batch, error = collect(await connector.fetch_transactions_async(size, **self._run.fetch_extra()), size)
        if error is not None:
            await connector.release_async(batch)
            raise error
        return batch

    async def _give_everything_back(self) -> None:
        """The caller's own task failed or was cancelled: nothing that runs counts any more, all of it is given back."""
        everything = self._run.give_up()
        self.slots.cancel()
        if tasks := self.slots.tasks:
            await asyncio.wait(tasks, timeout=CANCELLING)
        if self._releasing:
            await asyncio.wait(self._releasing, timeout=self._run.left_to_give_back())
        await self._serve(self._loop.give_back(everything))

    def release_late(self, transactions: list[Transaction]) -> "asyncio.Task[None]":
        """Give back what ended after the loop, or was fetched after its limit; nobody waits for that."""
        task = asyncio.ensure_future(self._serve(self._loop.release(transactions)))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)
        return task
