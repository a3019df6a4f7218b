"""Bounding time and handing over context, for threads and for asyncio: only `watcher` and `timer` do so besides.

A thread cannot be killed and a coroutine can refuse to be cancelled. A call that outlives its limit is abandoned: its
late result reaches nobody, and it is counted until it ends.
"""

import asyncio
import inspect
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from queue import SimpleQueue
from types import CoroutineType
from typing import Any, ParamSpec, Protocol, TypeVar

import structlog

from engines.core.errors import headline

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("ergon.engines")

# How long a caller waits for a call that it has cancelled: after that the limit stands, and the call ends by itself.
CANCELLING = 0.02
# How long a cancelled call may take to tidy up before it counts as abandoned, unless a task says otherwise.
CANCEL_GRACE = 1.0


class Running(Protocol):
    """A call that has outlived its limit: an asyncio task, or what a thread carries out."""

    def done(self) -> bool: ...

    def add_done_callback(self, callback: Callable[[Any], Any], /) -> Any: ...


class LimitReached(TimeoutError):  # noqa: N818 (it reads as what happened)
    """`run_with_timeout` gave up on `function`."""

    def __init__(self, function: Callable[..., Any], seconds: float, call: "Running | None" = None) -> None:
        super().__init__(f"no result within {seconds:g} s")
        self.function = function
        self.call = call  # where it still runs


class Killed(LimitReached):
    """A process did not end in time and was killed; `details` is what is known of why."""

    def __init__(self, details: str = "") -> None:
        super().__init__(Killed, 0.0)
        self.details = details


class Abandoned:
    """Counts calls that still run after their time limit.

    A task has one for all its loops, since what a loop leaves behind outlives it. Each loop has its own within that,
    and is told when one begins.
    """

    def __init__(
        self,
        within: "Abandoned | None" = None,
        note: Callable[[], None] = lambda: None,
        cancel_grace: float = CANCEL_GRACE,
    ) -> None:
        self._lock = threading.Lock()
        self._within, self._note = within, note
        self.cancel_grace = cancel_grace
        self._crowded_since: float | None = None
        self.count = 0
        self.occupied = 0  # calls that still run after their limit: abandoned ones, and cancelled ones that clean up

    def begin(self) -> None:
        self._count(1)
        self._note()

    def end(self) -> None:
        self._count(-1)

    def begin_to_leave(self) -> None:
        """A coroutine was cancelled and tidies up: it occupies the machine, but is not abandoned."""
        self._count(0, leaving=1)

    def leave(self) -> None:
        self._count(0, leaving=-1)

    def crowded_for(self, ceiling: float) -> float | None:
        """For how many seconds there have been so many, from the first look that found it so; None if there are not."""
        with self._lock:
            if self.occupied < ceiling:
                self._crowded_since = None
                return None
            now = time.monotonic()
            self._crowded_since = self._crowded_since or now
            return now - self._crowded_since

    def _count(self, change: int, *, leaving: int = 0) -> None:
        if self._within is not None:
            self._within._count(change, leaving=leaving)  # noqa: SLF001 (of its own kind)
        with self._lock:
            self.count += change
            self.occupied += change + leaving


def log_late_error(error: BaseException) -> None:
    """Logs the error of an abandoned call, which changes nothing any more."""
    log.warning("abandoned_call_failed", error_type=type(error).__qualname__, error=headline(error))


def is_request_to_end(error: BaseException) -> bool:
    """Whether somebody wants the process to end: that is said in the main thread, by a signal."""
    is_request = isinstance(error, KeyboardInterrupt | SystemExit)
    return is_request and threading.current_thread() is threading.main_thread()


def is_raised_by_signals() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt in whatever code this thread happens to run."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


class _Errand:
    """A call carried out by another thread."""

    __slots__ = ("_abandoned", "_call", "_callbacks", "_done", "_late", "_state", "error", "is_done", "value")

    def __init__(self, call: Callable[[], Any], late: Callable[[Any], Any] | None) -> None:
        self._call = call
        self._late = late
        self._done = threading.Lock()
        self._done.acquire()
        self._state = threading.Lock()
        self._abandoned: Abandoned | None = None
        self._callbacks: list[Callable[[Any], Any]] = []
        self.is_done = False
        self.value: Any = None
        self.error: BaseException | None = None

    def carry_out(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:  # noqa: BLE001 (handed to the caller)
            self.error = error
        with self._state:
            abandoned, callbacks, self.is_done = self._abandoned, self._callbacks, True
            self._done.release()
        if abandoned is not None:
            abandoned.end()
            self.come_too_late()
            for callback in callbacks:
                callback(self)

    def come_too_late(self) -> None:
        """Nobody waits for the result any more."""
        if self.error is not None:
            log_late_error(self.error)
        elif self._late is not None:
            self._late(self.value)

    def done(self) -> bool:
        return self.is_done

    def add_done_callback(self, callback: Callable[[Any], Any], /) -> None:
        with self._state:
            if not self.is_done:
                self._callbacks.append(callback)
                return
        callback(self)

    def wait(self, seconds: float) -> bool:
        return self._done.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))

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
            if self._abandoned is None and not self.is_done:
                self._abandoned = abandoned
                abandoned.begin()
            return self._abandoned is not None


class SpareThread(threading.Thread):
    """A daemon thread that makes one call after the other. It is never joined: a call need not return."""

    idle: list["SpareThread"] = []

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._calls: SimpleQueue[tuple[str, Callable[[], None]]] = SimpleQueue()
        self.start()

    @classmethod
    def take(cls) -> "SpareThread":
        """One that is free, or a new one."""
        try:
            return cls.idle.pop()
        except IndexError:
            return cls()

    def call(self, name: str, function: Callable[[], None]) -> None:
        """Call the function, and meanwhile be named like this for whoever looks at the threads of a process."""
        self._calls.put((name, function))

    def put_back(self) -> None:
        self.idle.append(self)

    def run(self) -> None:
        while True:
            self.name = "ergon-spare"
            self.name, call = self._calls.get()
            call()
            self.idle.append(self)


# A forked process has none of its parent's threads.
os.register_at_fork(after_in_child=SpareThread.idle.clear)

_all_abandoned = Abandoned()


def with_context(function: Callable[P, T], context: Context | None = None) -> Callable[P, T]:
    """The function bound to the context of now: every call, in whatever thread, runs in its own copy of it."""
    bound = copy_context() if context is None else context

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
    SpareThread.take().call("ergon-attempt", errand.carry_out)
    try:
        is_late = not errand.wait(timeout) and errand.abandon(abandoned)
    except BaseException:
        if not errand.abandon(abandoned):
            errand.come_too_late()
        raise
    if is_late:
        raise LimitReached(function, timeout, errand)
    return errand.result()  # type: ignore[no-any-return]


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
        value: T = await awaitable(function(*args, **kwargs))
        return value
    task = asyncio.ensure_future(_contained(function, *args, **kwargs))
    try:
        done, _ = await asyncio.wait({task}, timeout=min(timeout, threading.TIMEOUT_MAX))
    except asyncio.CancelledError:
        await _give_up_on(task, abandoned, late)
        raise
    if done:
        request, value = task.result()
        if request is not None:
            raise request
        return value
    await _give_up_on(task, abandoned, late)
    raise LimitReached(function, timeout, None if task.done() else task)


async def _contained(
    function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any
) -> tuple[BaseException | None, Any]:
    # Let loose in a task of its own, a request to leave would tear down the event loop.
    try:
        return None, await awaitable(function(*args, **kwargs))
    except (KeyboardInterrupt, SystemExit) as request:
        return request, None


_stragglers: set["asyncio.Task[Any]"] = set()


async def _give_up_on(
    task: "asyncio.Future[Any]", abandoned: Abandoned, late: Callable[[Any], Coroutine[Any, Any, Any]] | None
) -> None:
    def ended(task: "asyncio.Future[Any]") -> None:
        if task.cancelled():
            return
        request, value = (task.exception(), None) if task.exception() is not None else task.result()
        if request is not None:
            log_late_error(request)
        elif late is not None:
            straggler = asyncio.ensure_future(late(value))
            _stragglers.add(straggler)
            straggler.add_done_callback(_stragglers.discard)

    task.add_done_callback(ended)
    task.cancel()
    await asyncio.wait({task}, timeout=CANCELLING)
    if not task.done():
        leave_behind(task, abandoned)


def leave_behind(task: "asyncio.Future[Any]", abandoned: Abandoned) -> None:
    """Count a task that was cancelled and runs on: as one that tidies up for a grace, then as abandoned."""

    def abandon() -> None:
        task.remove_done_callback(leave)
        if not task.done():
            abandoned.begin()
            abandoned.leave()
            task.add_done_callback(lambda _: abandoned.end())

    def leave(_: Any) -> None:
        grace.cancel()
        abandoned.leave()

    abandoned.begin_to_leave()
    grace = asyncio.get_running_loop().call_later(abandoned.cancel_grace, abandon)
    task.add_done_callback(leave)


def awaitable(value: Any) -> Awaitable[Any]:
    if type(value) is CoroutineType or inspect.isawaitable(value):
        return value
    msg = "a handler of an async task must be a coroutine function; this one returned a plain value"
    raise TypeError(msg)
