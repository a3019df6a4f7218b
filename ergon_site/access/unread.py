"""Output that nobody may read any more, a frozen log shipper or a pager at its end: it must not stop the work."""

import logging
import select
from collections.abc import Callable
from typing import Any

# A pipe that can be written to takes 4096 bytes at once, whatever is in it: so many characters at most.
AT_ONCE = 4096 // 4
# Seconds that a line waits for its reader. Those after it do not, until somebody reads again.
PATIENCE = 1.0


class Lines:
    """Writes lines, leaves them out while nobody reads them, and later says how many."""

    def __init__(self, excuse: Callable[[int], str]) -> None:
        """`excuse` words the line that stands for so many."""
        self._excuse = excuse
        self._left_out = 0
        self._is_cut = False  # the last line was begun, and not ended

    def write(self, stream: Any, line: str, **how: Any) -> None:
        patience = 0.0 if self._left_out else PATIENCE
        before = "\n" * self._is_cut + self._excuse(self._left_out) if self._left_out else ""
        text = before + line
        for begin in range(0, len(text), AT_ONCE):
            if not is_taken(stream, patience):
                self._left_out += 1
                self._is_cut = self._is_cut or begin > 0
                return
            stream.write(text[begin : begin + AT_ONCE], **how)
            stream.flush()
        self._left_out, self._is_cut = 0, False


class StderrHandler(logging.StreamHandler[Any]):
    """Standard error that leaves lines out while nobody reads it, and later says how many."""

    def __init__(self, stream: Any = None) -> None:
        super().__init__(stream)
        self._lines = Lines(self._excuse)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.write(self.stream, self.format(record) + self.terminator)
        except Exception:  # noqa: BLE001 (as every handler: what cannot be logged is no fault of who logs)
            self.handleError(record)

    def _excuse(self, left_out: int) -> str:
        about = {"name": "ergon.log", "levelno": logging.WARNING, "levelname": "WARNING"}
        told = f"log lines left out, as nobody read them: {left_out}"
        return self.format(logging.makeLogRecord({**about, "msg": told})) + self.terminator


def is_taken(stream: Any, seconds: float = 0.0) -> bool:
    """Whether the next characters can be written without waiting for longer than this."""
    try:
        number = stream.fileno()
    except (AttributeError, OSError, ValueError):  # somebody has put something else in its place
        return True
    waiting = select.poll()
    waiting.register(number, select.POLLOUT)
    return bool(waiting.poll(seconds * 1000))
