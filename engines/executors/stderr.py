"""Logs what executors write to their stderr: line by line, with a name to each, and not more than a reader can take."""

import os
import select
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import IO

import structlog

from engines.core.failures import storable
from engines.core.text_redaction import redact_line

LONGEST = 4096
A_SECOND = 100  # lines of one process
KEPT = 20
# What operators see of a line.
SHOWN = 300

log = structlog.get_logger("ergon.executor")


class Voice:
    """The stderr of one process; its last lines are kept, for who wants to know why it died.

    `said` keeps the last ones of all processes of its executor.
    """

    def __init__(self, executor: str, pid: int, pipe: IO[bytes], said: deque[str]) -> None:
        self._executor, self._pid, self._pipe, self._all_said = executor, pid, pipe, said
        self.fileno = pipe.fileno()
        self.job_id: str | None = None
        self.last: deque[str] = deque(maxlen=KEPT)
        self.is_over = threading.Event()
        self._begun = b""
        self._is_cut = self._is_in_key = False
        self._second, self._said, self._unsaid = 0, 0, 0
        os.set_blocking(self.fileno, False)

    def begin(self, job_id: str) -> None:
        """Attribute lines from now on to this job; lines of the start may explain why the first job fails."""
        if self.job_id is not None:
            self.last.clear()
        self.job_id = job_id

    def read(self) -> bool:
        """Take what there is; False at the end."""
        try:
            chunk = os.read(self.fileno, 65536)
        except BlockingIOError:
            return True
        *lines, rest = (self._begun + chunk).split(b"\n")
        if len(lines) > A_SECOND + KEPT:  # nobody would read them all
            self._unsaid += len(lines) - A_SECOND - KEPT
            lines[A_SECOND:-KEPT] = []
        for line in lines:
            self._hear(line)
        self._begun = rest
        if len(rest) > LONGEST:
            self._hear(rest)
            self._begun, self._is_cut = b"", True
        if not chunk and rest:
            self._hear(rest)
        return bool(chunk)

    def close(self) -> None:
        self._pipe.close()
        self._say_how_many_more()
        self.is_over.set()

    def _hear(self, line: bytes) -> None:
        is_rest, self._is_cut = self._is_cut, False
        text = storable(line[:LONGEST].decode("utf-8", "replace").rstrip("\r"))
        if is_rest or not text:
            return  # the end of a line that was too long
        # Whole, for the attempt and the dead letter: secrets are looked for in all the lines together.
        self.last.append(text)
        text, self._is_in_key = redact_line(text, is_in_key=self._is_in_key)
        self._all_said.append(f"{datetime.now(UTC):%H:%M:%S} {self._pid}: {text[:SHOWN]}")
        second = int(time.monotonic())
        if second != self._second:
            self._say_how_many_more()
            self._second, self._said = second, 0
        self._said += 1
        if self._said > A_SECOND:
            self._unsaid += 1
            return
        with suppress(Exception):  # a log that cannot be written is no reason to stop listening
            log.info("executor_said", executor=self._executor, pid=self._pid, job=self.job_id, line=text)

    def _say_how_many_more(self) -> None:
        unsaid, self._unsaid = self._unsaid, 0
        if unsaid:
            with suppress(Exception):
                log.warning("executor_said_more", executor=self._executor, pid=self._pid, lines=unsaid)


class Listener:
    """A thread that reads the standard error of all processes of a worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._voices: dict[int, Voice] = {}
        self._left: list[Voice] = []
        self._woken = self._wake = -1
        self._poll = select.poll()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Before each voice; if the machine has no pipe or thread to spare, the next one tries again."""
        with self._lock:
            if self._wake < 0 and not self._is_closing:
                self._woken, self._wake = os.pipe()
                self._poll.register(self._woken, select.POLLIN)
            if self._thread is None:
                thread = threading.Thread(target=self._listen, name="ergon-stderr", daemon=True)
                thread.start()
                self._thread = thread

    def attach(self, voice: Voice) -> None:
        with self._lock:
            if self._wake < 0:
                msg = "the worker is ending"
                raise RuntimeError(msg)
            self._voices[voice.fileno] = voice
            self._poll.register(voice.fileno, select.POLLIN)
            os.write(self._wake, b".")

    def detach(self, voice: Voice) -> None:
        """Listen no longer, though the pipe is still open."""
        with self._lock:
            self._left.append(voice)
            if self._wake >= 0:
                os.write(self._wake, b".")

    def close(self) -> None:
        self._is_closing = True
        if self._wake < 0:
            return
        os.write(self._wake, b".")
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            os.close(self._wake)
            os.close(self._woken)
            self._wake = -1

    def _listen(self) -> None:
        while not self._is_closing:
            for fileno, _ in self._poll.poll():
                if fileno == self._woken:
                    os.read(self._woken, 4096)
                elif voice := self._voices.get(fileno):
                    with suppress(OSError):
                        if voice.read():
                            continue
                    self._end(voice)
            while self._left:
                self._end(self._left.pop())
        for left in list(self._voices.values()):
            self._end(left)

    def _end(self, voice: Voice) -> None:
        with self._lock:
            if self._voices.get(voice.fileno) is not voice:  # over already; the number may be another's
                return
            del self._voices[voice.fileno]
            self._poll.unregister(voice.fileno)
        voice.close()
