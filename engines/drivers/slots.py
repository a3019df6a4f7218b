"""The slots of a loop: threads or asyncio tasks that run what waits in the backlog, as many as the policy allows."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from math import inf
from typing import Any, cast

import structlog

from engines.core.outcome import CUT, Outcome
from engines.drivers.requests import Ask, Entry, Raised
from engines.drivers.run import Run
from engines.drivers.timeouts import LimitReached, SpareThread
from engines.drivers.timer import TimedCall
from engines.drivers.watcher import SupersededError

log = structlog.get_logger("ergon.engines")
# How often a transaction that waits for a slot looks whether the loop is to end.
LOOK = 0.05


class ThreadSlots:
    """Threads that run transactions. Their counts change under the lock of `changed`, which also tells of changes."""

    def __init__(self, run: Run, changed: threading.Condition, perform: Callable[..., Any]) -> None:
        self._run, self._changed, self._perform = run, changed, perform
        self._name = f"ergon-{run.work.name}"
        self._is_closed = self._is_short = False
        self._serving = 0
        self._aside = self._returning = 0  # without a slot while they wait for a place elsewhere; and back from that
        self.room = -1  # the next batch is fetched when no more wait than this
        self.is_room_awaited = False

    @property
    def is_idle(self) -> bool:
        return self._serving + self._aside == 0 and (self._run.is_stopping or not self._run.backlog.waiting)

    def close(self) -> None:
        # No thread is joined: a slot whose handler does not return must not hold the caller.
        self._is_closed = True

    def resize(self) -> None:
        """As many slots as the policy says by now: those beyond end with what they run, new ones begin with work."""

    def add(self, entries: list[Entry]) -> None:
        with self._changed:
            self._run.add(entries)
            if self._run.is_stopping:
                return
            idle = self._vacancies()
            # A batch in reserve, so that the next one is here before the slots run dry; but what can begin at once
            # begins before anything else is asked for.
            self.room = 0 if idle >= len(entries) else max(self._run.work.concurrency, len(entries))
        self._fill(idle)

    def withdraw(self) -> None:
        with self._changed:
            self._run.withdraw()

    def fill(self) -> None:
        """Put idle slots to work."""
        self._fill(self._vacancies())

    def fill_one(self) -> None:
        """A shared slot may be free. In another thread: the caller holds the lock of another loop."""
        if self._is_closed:
            return
        try:
            SpareThread.take().call(self._name, self._serve_one)
        except RuntimeError:  # the machine has no more threads at present
            self._run.is_holding_back = True
            if self._changed.acquire(blocking=False):
                self._changed.notify_all()
                self._changed.release()

    @contextmanager
    def aside(self) -> Iterator[bool]:
        """Lend a slot to another transaction meanwhile; False if as many as there are slots are lent already."""
        with self._changed:
            is_aside = self._aside < self._run.work.concurrency and not self._run.is_stopping
            if is_aside:
                self._aside += 1
                self._serving -= 1
                self._run.leave_slot()
            idle = self._vacancies() if is_aside else 0
        self._fill(idle)
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
            while not (run.is_stopping or self._serving < run.work.concurrency) or not run.return_to_slot():
                self._changed.wait(LOOK)
            self._returning -= 1
            self._aside -= 1
            self._serving += 1

    def _vacancies(self) -> int:
        """The number of idle slots for waiting transactions; from now on they count as serving."""
        free = self._run.work.concurrency - self._serving - self._returning
        idle = max(0, min(free, self._run.backlog.waiting))
        self._serving += idle
        return idle

    def _fill(self, idle: int) -> None:
        for begun in range(idle):
            try:
                SpareThread.take().call(self._name, self._serve)
            except RuntimeError as error:
                self._do_without(idle - begun, error)
                return
        if idle:
            self._is_short = False

    def _do_without(self, missing: int, error: RuntimeError) -> None:
        """The machine has no more threads at present: other slots go on, and the loop tries again while it waits."""
        with self._changed:
            was_short, self._is_short = self._is_short, True
            self._serving -= missing
            self._run.is_holding_back = True
            self._changed.notify_all()
        if not was_short:
            log.warning("slots_wait_for_threads", slots=missing, error=str(error))

    def _serve_one(self) -> None:
        with self._changed:
            is_idle = self._serving < self._run.work.concurrency - self._returning
            self._serving += is_idle
        if is_idle:
            self._serve()

    def _serve(self, ended: Entry | None = None, outcome: Outcome = CUT) -> None:
        """Run transactions in one slot until none is left; at first one may have ended in it."""
        with suppress(SupersededError):
            while (entry := self._next_after(ended, outcome)) is not None:
                performance = entry.lifecycle(entry.transaction), entry.context.copy()
                outcome = self._outcome_of(entry, performance)
                ended = entry

    def _next_after(self, ended: Entry | None, outcome: Outcome) -> Entry | None:
        run = self._run
        with self._changed:
            if ended is not None:
                run.end(ended, outcome)
            is_surplus = self._serving > run.work.concurrency - self._returning
            entry = None if is_surplus else run.next_entry()
            if entry is None:
                self._serving -= 1
                self._changed.notify_all()
            elif self.is_room_awaited and run.backlog.waiting <= self.room:
                self.is_room_awaited = False
                self._changed.notify_all()
        return entry

    def _outcome_of(self, entry: Entry, lifecycle: Any, reply: Any = None) -> Outcome:
        try:
            outcome: Outcome = self._perform(lifecycle, reply, partial(self._go_on, entry, lifecycle))
        except SupersededError:
            raise
        except BaseException as error:  # noqa: BLE001 (a slot must not die silently; told at the loop's end)
            self._run.blame(error)
            return CUT
        return outcome

    def _go_on(self, entry: Entry, lifecycle: Any, late: LimitReached) -> None:
        """Take the place of a thread whose call has not ended in time."""
        with suppress(SupersededError):
            self._serve(entry, self._outcome_of(entry, lifecycle, Raised(late)))


class AsyncSlot:
    """A slot while a transaction runs in it: in one task, or in another that goes on in its place."""

    __slots__ = ("call", "context", "entry", "requests", "task")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.requests, self.context = entry.lifecycle(entry.transaction), entry.context.copy()
        self.task: asyncio.Task[None] | None = None  # until it is known: an eager one begins before that
        self.call: TimedCall | None = None  # of a handler that has a limit

    async def ask(self, ask: Ask, go_on: Callable[["AsyncSlot", BaseException], None]) -> Any:
        """Call a handler that has a limit; if it is late, another task is to go on."""
        function, arguments, seconds, abandoned, _ = ask
        limit = inf if seconds is None else seconds
        task = cast("asyncio.Task[None]", self.task or asyncio.current_task())
        call = self.call = TimedCall(function, limit, abandoned, task, partial(go_on, self))
        try:
            return await call.run(arguments)
        except SupersededError:
            raise
        except BaseException as error:  # noqa: BLE001 (the lifecycle knows what to do about it)
            return Raised(error)
        finally:
            if self.call is call:
                self.call = None

    def cancel(self, leave: Callable[["asyncio.Task[None]"], None]) -> None:
        """Cancel what runs. A task that has not begun would leave its slot in no other way than by that callback."""
        if self.task is not None:
            self.task.add_done_callback(leave)
            (self.call or self.task).cancel()


class AsyncSlots:
    """A semaphore, and a task for each transaction that runs. For the event loop's thread only."""

    def __init__(self, run: Run, changed: asyncio.Event, perform: Callable[..., Any]) -> None:
        self._run, self._changed, self._perform = run, changed, perform
        self._free = asyncio.Semaphore(run.work.concurrency)
        self._taken: set[AsyncSlot] = set()
        self.room = -1
        self.is_room_awaited = False

    @property
    def is_idle(self) -> bool:
        return not self._taken and (self._run.is_stopping or not self._run.backlog.waiting)

    @property
    def tasks(self) -> "set[asyncio.Task[None]]":
        return {slot.task for slot in self._taken if slot.task is not None}

    def resize(self) -> None:
        """As many slots as the policy says by now; those beyond end with what they run."""
        self._free = asyncio.Semaphore(max(0, self._run.work.concurrency - len(self._taken)))

    def add(self, entries: list[Entry]) -> None:
        # A batch in reserve, so that the next one is here before the slots run dry.
        self.room = max(self._run.work.concurrency, len(entries))
        self._run.add(entries)
        self.fill()

    def withdraw(self) -> None:
        self._run.withdraw()

    def aside(self) -> AbstractContextManager[bool]:
        return nullcontext(enter_result=False)

    def fill(self) -> None:
        """Put idle slots to work."""
        while not self._free.locked() and (entry := self._run.next_entry()) is not None:
            with suppress(StopIteration):  # there is room: to acquire it is not to wait
                self._free.acquire().send(None)
            self._begin(AsyncSlot(entry))

    def cancel_lost(self) -> None:
        """Cancel what another worker has by now."""
        self._run.drop_lost()
        self._cancel([slot for slot in self._taken if self._run.is_lost(slot.entry)])
        self._changed.set()

    def cancel(self) -> None:
        """Cancel all that runs."""
        self._cancel(list(self._taken))

    def _cancel(self, slots: list[AsyncSlot]) -> None:
        for slot in slots:
            if not self._run.is_settled(slot.entry):
                slot.cancel(partial(self._leave, slot))

    def _begin(self, slot: AsyncSlot, reply: Any = None) -> None:
        self._taken.add(slot)
        slot.task = asyncio.get_running_loop().create_task(self._perform(slot, reply), context=slot.context)

    def go_on(self, slot: AsyncSlot, late: BaseException) -> None:
        """Let another task take the place of one whose call has not ended in time."""
        slot.task = slot.call = None
        self._begin(slot, Raised(late))

    def _leave(self, slot: AsyncSlot, task: "asyncio.Task[None]") -> None:
        if slot in self._taken and slot.task is task:
            self.vacate(slot, CUT)

    def vacate(self, slot: AsyncSlot, outcome: Outcome) -> None:
        """A slot is free: it goes to the next in line, and only otherwise back to the semaphore.

        Called by its own task: a callback at the end of that would cost another turn of the event loop.
        """
        if slot.task is None:  # it has run within `_begin`, and the next one must not run within it
            asyncio.get_running_loop().call_soon(self.vacate, slot, outcome)
            return
        run = self._run
        self._taken.remove(slot)
        run.end(slot.entry, outcome)
        is_surplus = len(self._taken) >= run.work.concurrency
        following = None if is_surplus else run.next_entry()
        if following is not None:
            self._begin(AsyncSlot(following))
        elif not is_surplus:
            self._free.release()
        if not self._taken or (self.is_room_awaited and run.backlog.waiting <= self.room):
            self._changed.set()
