"""Time limits of coroutines that run in the task of their slot.

A handler that keeps to its limit needs no task of its own, and one that never waits not even a timer. When its time is
up it is cancelled. If it goes on all the same it keeps its task, which its own timeouts and groups know it by, and
another task goes on in its place.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, copy_context
from types import CoroutineType, coroutine
from typing import Any

from engines.drivers.timeouts import CANCELLING, Abandoned, LimitReached, awaitable, leave_behind, log_late_error
from engines.drivers.watcher import SupersededError


class TimedCall:
    """A call in the task of its slot. Its end or its timer decides: one of them comes first in the event loop."""

    __slots__ = ("_abandoned", "_cancels", "_ends_at", "_error", "_function", "_go_on", "_seconds", "_task", "_timer")

    def __init__(
        self,
        function: Callable[..., Any],
        seconds: float,
        abandoned: Abandoned,
        task: "asyncio.Task[Any]",
        go_on: Callable[[BaseException], None],
    ) -> None:
        self._function, self._seconds, self._abandoned = function, seconds, abandoned
        self._task, self._go_on = task, go_on
        self._cancels = task.cancelling()
        self._ends_at = task.get_loop().time() + min(seconds, threading.TIMEOUT_MAX)
        self._timer: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None  # why it was cancelled

    async def run(self, arguments: tuple[Any, ...]) -> Any:
        """The result, unless another task goes on by now: then this one is to leave everything as it is."""
        try:
            value = await self._drive(copy_context(), arguments)
        except GeneratorExit:  # its event loop is gone: nothing can be awaited any more
            raise
        except BaseException as error:
            await self._forget()
            if self._error is None:
                raise
            if not isinstance(error, asyncio.CancelledError):
                log_late_error(error)
        else:
            if self._timer is not None or self._task.cancelling() > self._cancels:
                await self._forget()
            if self._error is None:
                return value
        raise self._error

    def cancel(self) -> None:
        """Ask it to end before its time."""
        if self._error is None:
            self._give_up(asyncio.CancelledError())

    @coroutine
    def _drive(self, context: Context, arguments: tuple[Any, ...]) -> Generator[Any, Any, Any]:
        """Await the function in a context of its own, although it has no task of its own."""
        call = context.run(self._begin, arguments)
        resume, argument = call.send, None
        while True:
            try:
                awaited = context.run(resume, argument)
            except StopIteration as end:
                return end.value
            finally:
                argument = None  # an error's traceback holds this frame, which must not hold the error
            if self._timer is None:
                self._timer = self._task.get_loop().call_at(self._ends_at, self._expire)
            try:
                argument = yield awaited
                resume = call.send
            except BaseException as error:  # noqa: BLE001 (thrown into the call)
                resume, argument = call.throw, error

    def _begin(self, arguments: tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
        call = awaitable(self._function(*arguments))
        return call if isinstance(call, CoroutineType) else _awaited(call)

    def _expire(self) -> None:
        self._give_up(LimitReached(self._function, self._seconds))

    def _give_up(self, error: BaseException) -> None:
        self._error = error
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._task.get_loop().call_later(CANCELLING, self._supersede, error)
        self._task.cancel()

    def _supersede(self, error: BaseException) -> None:
        """Let another task go on: the call was cancelled and has not ended."""
        self._error = SupersededError()
        if isinstance(error, LimitReached):
            error.call = self._task
        leave_behind(self._task, self._abandoned)
        self._go_on(error)

    async def _forget(self) -> None:
        """Forget the timer, and every cancellation of the task meanwhile: it was meant for the call."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task.cancelling() > self._cancels:
            while self._task.cancelling() > self._cancels:
                self._task.uncancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # where one that is on its way arrives


async def _awaited(call: Any) -> Any:
    return await call
