"""A line on a terminal that is written over and over; nowhere else is it shown at all."""

import shutil
import time
from typing import Any

EVERY = 0.2
START_AND_CLEAR = "\r\x1b[2K"


class LiveLine:
    """Shows how far something is, a few times a second."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._is_shown = bool(stream.isatty())
        self._next = 0.0

    @property
    def is_live(self) -> bool:
        return self._is_shown

    def show(self, text: str) -> None:
        now = time.monotonic()
        if self._is_shown and now >= self._next:
            self._next = now + EVERY
            self._write(START_AND_CLEAR + text[: shutil.get_terminal_size().columns - 1])

    def end(self) -> None:
        """Leave the place to what is printed next."""
        if self._is_shown:
            self._write(START_AND_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text, str, "")
        self._stream.flush()
