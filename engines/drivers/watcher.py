"""Time limits of calls that run in the thread of their slot.

Nothing is handed over while calls keep to their limits: a thread of its own watches when they must have ended. One that
has not is left behind with its thread, and another thread goes on in its place.
"""

import os
import threading
import time
from collections.abc import Callable
from contextvars import Context
from math import inf
from typing import Any

import structlog

from engines.drivers.timeouts import Abandoned, LimitReached, SpareThread, log_late_error

log = structlog.get_logger("ergon.engines")
# After so many seconds it is tried once more to find a thread that goes on.
TRY_AGAIN = 0.5


class SupersededError(BaseException):
    """Another thread goes on in the place of this one, whose call has just ended, too late. Nobody is to catch it."""


class WatchedCall:
    """A call in the thread of its slot. Whoever takes its lock first decides: the call by its end, or the watcher."""

    __slots__ = ("_abandoned", "_callbacks", "_decided", "_go_on", "_is_done", "ends_at", "function", "seconds")

    def __init__(
        self, function: Callable[..., Any], seconds: float, abandoned: Abandoned, go_on: Callable[[LimitReached], None]
    ) -> None:
        self.function, self.seconds = function, seconds
        self.ends_at = inf
        self._abandoned, self._go_on = abandoned, go_on
        self._decided = threading.Lock()
        self._is_done = False
        self._callbacks: list[Callable[[Any], Any]] = []

    def run(self, context: Context, arguments: tuple[Any, ...]) -> Any:
        """The result, unless another thread goes on by now: then this one is to leave everything as it is."""
        _watcher.watch(self)
        try:
            value = context.run(self.function, *arguments)
        except BaseException as error:
            if self._ends():
                raise
            log_late_error(error)
        else:
            if self._ends():
                return value
        self._leave()
        raise SupersededError

    def supersede(self) -> None:
        """Let another thread go on, if the call has not ended just now."""
        try:
            thread = SpareThread.take()
        except RuntimeError as refusal:  # the machine has no more threads at present
            self.ends_at = time.monotonic() + TRY_AGAIN
            log.warning("attempt_not_abandoned", limit=self.seconds, error=str(refusal))
            return
        if self._decided.acquire(blocking=False):
            _watcher.forget(self)
            self._abandoned.begin()
            error = LimitReached(self.function, self.seconds, self)
            thread.call("ergon-slot", lambda: self._go_on(error))
        else:
            thread.put_back()

    def done(self) -> bool:
        return self._is_done

    def add_done_callback(self, callback: Callable[[Any], Any], /) -> None:
        self._callbacks.append(callback)
        if self._is_done:
            self._tell()

    def _ends(self) -> bool:
        _watcher.forget(self)
        return self._decided.acquire(blocking=False)

    def _leave(self) -> None:
        self._abandoned.end()
        self._is_done = True
        self._tell()

    def _tell(self) -> None:
        """Each callback is told once, whichever thread finds it."""
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback(self)


class _Watcher:
    """A thread that looks when a call must have ended.

    Calls come and go without a lock: a set's changes are atomic. One that must end before the next look brings that
    forward. A look stays appointed when its call has ended: if each call woke the watcher, calls that are soon over
    would cost several times as much.
    """

    def __init__(self) -> None:
        self._calls: set[WatchedCall] = set()
        self._changed = threading.Condition()
        self._looks_at = inf
        self._thread: threading.Thread | None = None

    def watch(self, call: WatchedCall) -> None:
        """From now on it has its time. Where the machine has no more threads, it waits until it can be watched."""
        while self._thread is None and not self._start():
            time.sleep(TRY_AGAIN)
        call.ends_at = time.monotonic() + call.seconds
        self._calls.add(call)
        if call.ends_at < self._looks_at:
            self._appoint(call.ends_at)

    def forget(self, call: WatchedCall) -> None:
        self._calls.discard(call)

    def _start(self) -> bool:
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name="ergon-watcher", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    log.warning("attempt_waits_for_a_thread")
                    return False
                self._thread = thread
        return True

    def _appoint(self, moment: float) -> None:
        with self._changed:
            self._looks_at = min(self._looks_at, moment)
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            self._await_look()
            now = time.monotonic()
            for call in list(self._calls):
                if call.ends_at <= now:
                    call.supersede()
            self._appoint(min((call.ends_at for call in self._calls.copy()), default=inf))

    def _await_look(self) -> None:
        with self._changed:
            while (left := self._looks_at - time.monotonic()) > 0:
                self._changed.wait(None if left > threading.TIMEOUT_MAX else left)
            self._looks_at = inf  # whatever begins from now on appoints the next one


_watcher = _Watcher()


def _start_anew() -> None:
    global _watcher  # noqa: PLW0603 (a forked process has none of its parent's threads, and perhaps a held lock)
    _watcher = _Watcher()


os.register_at_fork(after_in_child=_start_anew)
