"""The thread driver: the caller's thread fetches and waits, a pool of slots runs the lifecycles."""

import threading
from collections.abc import Callable, Sequence
from contextvars import Context
from math import inf
from typing import Any

from engines.connectors.base import collect
from engines.core.report import Report
from engines.drivers.loop import Loop
from engines.drivers.requests import Ask, Pause, Performance, Raised, Requests, Wait
from engines.drivers.run import Run
from engines.drivers.slots import ThreadSlots
from engines.drivers.timeouts import LimitReached, run_with_timeout
from engines.drivers.watcher import SupersededError, WatchedCall
from engines.drivers.work import Work
from engines.tasks.transaction import Transaction


class ThreadDriver:
    """Runs one loop: the caller's thread fetches and waits, a pool of slots runs the lifecycles."""

    def __init__(self, work: Work) -> None:
        # Reentrant: a signal handler may ask this very thread to stop while it holds the lock.
        self._changed = threading.Condition(threading.RLock())
        self._over = threading.Event()
        self._run = Run(work, self, is_async=False)
        self.slots = ThreadSlots(self._run, self._changed, self.perform)
        self._loop = Loop(self._run)

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
        try:
            with self._run.attached(self._arrive, self._lose, self.slots.fill_one):
                ending = self._serve(self._loop.run())
        except BaseException:
            self._give_everything_back()
            raise
        finally:
            self.slots.close()
        if self._run.is_cut:
            self._give_everything_back()
        else:
            self._serve(self._loop.finish())
        return self._run.conclude(ending)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

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

    def perform(self, lifecycle: Performance, reply: Any, go_on: Callable[[LimitReached], None]) -> Any:
        """Do what a lifecycle asks for in the thread of its slot; if that is late, another thread goes on."""
        requests, context = lifecycle  # the context is entered for moments only: another thread can go on in it
        while True:
            try:
                request: Any = context.run(requests.send, reply)
            except StopIteration as end:
                return end.value
            reply = None
            if type(request) is tuple:
                function, arguments = request
                try:
                    reply = context.run(function, *arguments)
                except BaseException as error:  # noqa: BLE001 (the lifecycle knows what to do about it)
                    reply = Raised(error)
            elif isinstance(request, Ask):
                reply = self._ask_in_slot(request, context, go_on)
            elif isinstance(request, Pause):
                reply = request.seconds > 0 and self._over.wait(request.seconds)
            # Nothing for LetEnd: a thread cannot be cancelled, the next attempt begins beside it.

    def _ask_in_slot(self, ask: Ask, context: Context, go_on: Callable[[LimitReached], None]) -> Any:
        function, arguments, seconds, abandoned, _ = ask
        try:
            call = WatchedCall(function, inf if seconds is None else seconds, abandoned, go_on)
            return call.run(context.copy(), arguments)  # in a copy: what a handler sets in its context is nobody else's
        except SupersededError:
            raise
        except BaseException as error:  # noqa: BLE001 (the lifecycle knows what to do about it)
            return Raised(error)

    def _serve(self, requests: Requests[Any]) -> Any:
        """Do what the loop asks for in the caller's thread."""
        reply: Any = None
        while True:
            try:
                request = requests.send(reply)
            except StopIteration as end:
                return end.value
            reply = None
            if isinstance(request, Ask):
                reply = self._ask(request)
            elif isinstance(request, Wait):
                self._wait(request)

    def _ask(self, ask: Ask) -> Any:
        function, arguments, seconds, abandoned, late = ask
        try:
            return run_with_timeout(function, seconds, *arguments, abandoned=abandoned, late=late)
        except BaseException as error:  # noqa: BLE001 (the loop or lifecycle knows what to do about it)
            return Raised(error)

    def _wait(self, wait: Wait) -> None:
        with self._changed:
            for left in self._run.waits(wait.is_over, wait.seconds):
                self._changed.wait(left)

    def fetch(self, size: int) -> list[Transaction]:
        connector = self._run.work.connector
        batch, error = collect(connector.fetch_transactions(size, **self._run.fetch_extra()), size)
        if error is not None:
            connector.release(batch)
            raise error
        return batch

    def release_late(self, transactions: list[Transaction]) -> None:
        self._serve(self._loop.release(transactions))

    def _give_everything_back(self) -> None:
        """An error of the caller's own thread: nothing that runs counts any more, and all of it is given back."""
        with self._changed:
            everything = self._run.give_up()
        self._over.set()
        if self._run.elsewhere is not None:
            self._run.elsewhere.halt()
        self._serve(self._loop.give_back(everything))
