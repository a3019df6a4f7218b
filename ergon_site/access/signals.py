"""What signal handlers may do: they interrupt the main thread wherever it is.

That may be while it holds the lock of an event on which it is about to wait, and a handler that sets this event would
wait for ever. Putting something into a `SimpleQueue` waits for no lock, and releasing a lock waits for none.
"""

from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread


class Deputy:
    """Makes a call whenever a signal handler asks for it, in a thread of its own."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._serve, name="ergon-signals", daemon=True).start()

    def ask(self) -> None:
        self._asked.put(self._call)

    def dismiss(self) -> None:
        """End its thread."""
        self._asked.put(None)

    def _serve(self) -> None:
        while call := self._asked.get():
            call()


class StopEvent:
    """An event that is set once, also by a signal handler in the middle of a wait for it."""

    def __init__(self) -> None:
        self._is_set = False
        self._until_set = Lock()
        self._until_set.acquire()

    def set(self) -> None:
        self._is_set = True
        with suppress(RuntimeError):  # it was set before
            self._until_set.release()

    def wait(self, seconds: float) -> bool:
        """Whether it is set by then."""
        if not self._is_set and self._until_set.acquire(timeout=max(0.0, seconds)):
            self.set()  # for others who wait
        return self._is_set
