"""Signal handling of `consume` and `produce`."""

import atexit
import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from ergon_site.access.signals import Deputy

NUMBERS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """SIGTERM and SIGINT ask to stop; the second one ends the process at once.

    Whoever tells a whole group of processes tells one of several twice: by itself, and by way of its parent.
    """

    def __init__(self, *, same_within: float = 0.0) -> None:
        self._same_within = same_within
        self._stop: Callable[[], None] | None = None
        self._asked_at: float | None = None
        self._deputy = Deputy(self._obey)
        self._before = {number: signal.signal(number, self._handle) for number in NUMBERS}

    @property
    def is_asked(self) -> bool:
        return self._asked_at is not None

    def stop_with(self, stop: Callable[[], None]) -> None:
        """From now on there is something to stop; at once, if the order has come already."""
        self._stop = stop
        if self._asked_at is not None:
            self._obey()

    def work_is_done(self) -> None:
        """There is nothing left to stop. A process that is about to be gone ends as it would have without an order."""
        self._stop = None

    def conclude(self, *, is_process_ending: bool) -> None:
        self.work_is_done()
        self._deputy.dismiss()
        if is_process_ending:
            deaf_at_exit()
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
            self._deputy.ask()
        elif now - self._asked_at >= self._same_within:
            os._exit(128 + number)

    def _obey(self) -> None:
        if (stop := self._stop) is not None:
            stop()


def deaf_at_exit() -> None:
    """The interpreter lets go of its handlers before it is gone: an order in that moment would look like a death."""
    for number in NUMBERS:
        atexit.register(signal.signal, number, signal.SIG_IGN)
