"""Standard error for log lines: whoever has stopped reading it, a log shipper or a pager, must not stop the work."""

import logging
import select
from typing import Any

# A pipe that can be written to takes 4096 bytes at once, whatever is in it: so many characters at most.
AT_ONCE = 4096 // 4
# Seconds that a line waits for its reader. Those after it do not, until somebody reads again.
PATIENCE = 1.0


class StderrHandler(logging.StreamHandler[Any]):
    """Standard error that leaves lines out while nobody reads it, and later says how many."""

    def __init__(self, stream: Any = None) -> None:
        super().__init__(stream)
        self._left_out = 0
        self._is_cut = False  # the last line was begun, and not ended

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(self.format(record) + self.terminator)
        except Exception:  # noqa: BLE001 (as every handler: what cannot be logged is no fault of who logs)
            self.handleError(record)

    def _write(self, line: str) -> None:
        patience = 0.0 if self._left_out else PATIENCE
        text = self._excuse() + line
        for begin in range(0, len(text), AT_ONCE):
            if not self._is_taken(patience):
                self._left_out += 1
                self._is_cut = self._is_cut or begin > 0
                return
            self.stream.write(text[begin : begin + AT_ONCE])
            self.flush()
        self._left_out, self._is_cut = 0, False

    def _excuse(self) -> str:
        """What stands before the next line, if any are missing."""
        if not self._left_out:
            return ""
        about = {"name": "ergon.log", "levelno": logging.WARNING, "levelname": "WARNING"}
        told = f"log lines left out, as nobody read them: {self._left_out}"
        record = logging.makeLogRecord({**about, "msg": told})
        return self.terminator * self._is_cut + self.format(record) + self.terminator

    def _is_taken(self, seconds: float) -> bool:
        """Whether the next characters can be written without waiting for longer than this."""
        try:
            number = self.stream.fileno()
        except (AttributeError, OSError, ValueError):  # somebody has put something else in its place
            return True
        waiting = select.poll()
        waiting.register(number, select.POLLOUT)
        return bool(waiting.poll(seconds * 1000))
