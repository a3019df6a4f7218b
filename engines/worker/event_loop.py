"""An event loop for the async tasks of a worker: one that lives as long as its pipeline, and is never waited for."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from engines.worker.thread_pool import ThreadPool

T = TypeVar("T")

# How long what is left behind may take to heed its cancellation, and a loop that is blocked to answer at all.
LEAVING = 0.5
NAME = "ergon-event-loop"


class EventLoop:
    """Runs coroutines one after the other; what one leaves behind runs on beside the next.

    `asyncio.run` would wait at its end for every task that ignores its cancellation and for every thread of
    `asyncio.to_thread`, which may be for ever.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._threads = ThreadPool(thread_name_prefix=NAME)
        self._threads.submit(int)  # one from the start: later there may be none to be had
        self._loop.set_default_executor(self._threads)
        threading.Thread(target=self._run, name=NAME, daemon=True).start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result or error, in the caller's thread."""
        error, value = asyncio.run_coroutine_threadsafe(_contained(coroutine), self._loop).result()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def close(self) -> None:
        """Cancel what is left. What does not heed that stays behind in a thread that keeps nobody."""
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._leave(), self._loop).result(2 * LEAVING)
        self._threads.shutdown(wait=False)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _leave(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        _, stubborn = await asyncio.wait(left, timeout=LEAVING) if left else (left, set())
        if not stubborn:
            await self._loop.shutdown_asyncgens()
            self._loop.call_soon(self._loop.stop)


def is_anybody_left() -> bool:
    """Whether threads of `asyncio.to_thread` still run after a moment: Python would wait for them at its end."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(f"{NAME}_")]
    for thread in threads:
        thread.join(LEAVING)
    return any(thread.is_alive() for thread in threads)


async def _contained(coroutine: Coroutine[Any, Any, T]) -> tuple[BaseException | None, T | None]:
    # Let loose in a task, a request to leave would tear down the event loop and reach nobody.
    try:
        return None, await coroutine
    except BaseException as error:  # noqa: BLE001 (raised in the caller's thread)
        return error, None
