"""Progress of long commands on a terminal: a bar, a count, a rate and the time left."""

import os
import shutil
import stat
import time
from typing import IO, Any

EVERY = 0.2
START_AND_CLEAR = "\r\x1b[2K"
CELLS = 20
# Below it, the time left is a guess from too little.
LEAST_FRACTION = 0.01


class LiveLine:
    """One line of a terminal, written again a few times a second."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.is_live = bool(stream.isatty())
        self._next = 0.0

    def show(self, text: str) -> None:
        now = time.monotonic()
        if self.is_live and now >= self._next:
            self._next = now + EVERY
            self._write(START_AND_CLEAR + text[: shutil.get_terminal_size().columns - 1])

    def end(self) -> None:
        """Leave the place to what is printed next."""
        if self.is_live:
            self._write(START_AND_CLEAR)

    def leave(self, text: str) -> None:
        """Write a line that stays."""
        self._write(f"{START_AND_CLEAR}{text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text, str, "")
        self._stream.flush()


class ProgressBar:
    """Shows on a terminal how far long work is; nothing where standard error is a file or a pipe."""

    def __init__(self, stream: Any, done: str, *, total: int | None = None) -> None:
        self._line, self._done, self._total = LiveLine(stream), done, total
        self._started, self._count = time.monotonic(), 0

    def advance(self, count: int, fraction: float | None = None) -> None:
        """So many more are done; that makes this fraction of all, if it is known otherwise than by the total."""
        self._count += count
        if fraction is None and self._total:
            fraction = self._count / self._total
        elapsed = time.monotonic() - self._started
        self._line.show(text(self._count, self._done, elapsed, fraction=fraction, total=self._total))

    def end(self) -> None:
        """Leave the place to what is printed next."""
        self._line.end()

    close = end

    def conclude(self, told: str = "") -> None:
        """Leave a line that says what was done, where the output itself went elsewhere."""
        if self._line.is_live:
            told = told or f"{self._count:,} {self._done}"
            self._line.leave(f"{told} in {time.monotonic() - self._started:.1f} s")


def text(count: int, done: str, elapsed: float, *, fraction: float | None = None, total: int | None = None) -> str:
    """The line: `[#####---------------]  25 %  500 of 2,000 submitted, 250/s, 0:06 left`."""
    counted = f"{count:,} of {total:,}" if total else f"{count:,}"
    rate = count / max(elapsed, 0.001)
    return f"{bar(fraction)}{counted} {done}, {rate:,.0f}/s{time_left(fraction, elapsed)}"


def bar(fraction: float | None) -> str:
    if fraction is None:
        return ""
    fraction = min(max(fraction, 0.0), 1.0)
    full = int(fraction * CELLS)
    return f"[{'#' * full}{'-' * (CELLS - full)}] {int(fraction * 100):3} %  "


def time_left(fraction: float | None, elapsed: float) -> str:
    """The time left if the rest takes as long as what is done; empty while that cannot be said."""
    if fraction is None or not LEAST_FRACTION <= fraction < 1:
        return ""
    minutes, seconds = divmod(round(elapsed * (1 - fraction) / fraction), 60)
    hours, minutes = divmod(minutes, 60)
    return f", {hours}:{minutes:02}:{seconds:02} left" if hours else f", {minutes}:{seconds:02} left"


def fraction_read(file: IO[bytes]) -> float | None:
    """How much of a file has been read; None for a pipe, whose end nobody knows."""
    try:
        about = os.fstat(file.fileno())
        return file.tell() / about.st_size if stat.S_ISREG(about.st_mode) and about.st_size else None
    except OSError:
        return None
