"""Threads to which calls are handed, also where the machine has no more of them for a while."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class NoThreadError(RuntimeError):
    """The machine has no more threads at present."""


class ThreadPool(ThreadPoolExecutor):
    """Calls for which no other thread can be started wait for the threads that there are.

    Python's own pool refuses such a call and makes it all the same, later, when nobody waits for its result.
    """

    def submit_or_none(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T] | None:
        """None if there is not a single thread, and none can be had at present."""
        try:
            return self.submit(function, *args, **kwargs)
        except NoThreadError:
            return None

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError as error:
            if not self._threads:
                self._work_queue.get_nowait()
                raise NoThreadError(*error.args) from error
