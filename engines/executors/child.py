"""An executor's process with its pipes: started through a keeper, watched, and ended with all that it has started."""

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
from array import array
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from engines.executors.errors import SCARCITY, ExecutorNoRoomError, ExecutorStartError
from engines.executors.settings import ExecutorSettings

KEEPER = Path(__file__).with_name("keeper.py")
# Between SIGTERM and SIGKILL.
GRACE = 1.0


class Child:
    """Its pipes are numbers that never block. `death` becomes readable when it ends.

    Its parent is a keeper, a small process of Ergon's: see `keeper.py`.
    """

    def __init__(self, settings: ExecutorSettings, environment: Mapping[str, str]) -> None:
        self._ending, self._hearing = threading.Lock(), threading.Lock()
        self._code: int | None = None
        # The command and its environment, as the keeper reads them.
        pairs = [f"{name}={value}" for name, value in {**environment, **settings.env}.items()]
        if any("\0" in word for word in (*settings.command, *pairs)):
            raise _cannot_start(settings, settings.command[0], "embedded null byte")
        words = b"\0\0".join(b"\0".join(map(os.fsencode, words)) for words in (settings.command, pairs)) + b"\0\0"
        self._control, theirs = socket.socketpair()
        try:
            with theirs:
                self._keeper = _start_keeper(settings, theirs.fileno())
        except BaseException:
            self._control.close()
            raise
        try:
            self.pid = self._begin(settings, words)
            self.death = self._control.fileno()
            self.stdin, self.stdout = _pipe(self._keeper.stdin), _pipe(self._keeper.stdout)
        except BaseException:
            with suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)
            self._keeper.wait()
            self.close()
            self.stderr.close()
            raise

    @property
    def stderr(self) -> IO[bytes]:
        return self._keeper.stderr  # type: ignore[return-value]

    def has_ended(self, seconds: float = 0) -> bool:
        """Whether it ends within so many seconds."""
        if self._code is None:
            watch = select.poll()
            watch.register(self._control, select.POLLIN)
            if not watch.poll(seconds * 1000):
                return False
            with self._hearing:
                if self._code is None:
                    # A keeper that was killed tells nothing; its executor is killed with it.
                    self._code = int(_received(self._control) or -signal.SIGKILL)
        return True

    @property
    def is_deaf(self) -> bool:
        """Whether the reading end of its standard input is closed."""
        watch = select.poll()
        watch.register(self.stdin, 0)
        return bool(watch.poll(0))

    @property
    def unread(self) -> int:
        """The number of bytes that were written to it and not yet read."""
        count = array("i", [0])
        with suppress(OSError):
            fcntl.ioctl(self.stdin, termios.FIONREAD, count)
        return count[0]

    @property
    def code(self) -> str:
        """Its exit code as a shell gives it: 128 plus the signal's number if it was killed."""
        code = -signal.SIGKILL if self._code is None else self._code
        if code >= 0:
            return str(code)
        try:
            name = signal.Signals(-code).name
        except ValueError:  # one of the many that are for real time have no name
            name = f"signal {-code}"
        return f"{128 - code} ({name})"

    def kill(self) -> None:
        """SIGTERM to the whole group, a second, SIGKILL to all that it has started; returns when nothing is left."""
        with self._ending:
            if self._keeper.returncode is not None:
                return
            if not self.has_ended():
                self._order(b"T")
                self.has_ended(GRACE)
            self._order(b"K")
            self.has_ended(GRACE)
            if self._keeper.wait() != 0:  # it was killed, and could not do it
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Give the pipes back, all but stderr; from now on their numbers may be another's."""
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._control.close()

    def _begin(self, settings: ExecutorSettings, words: bytes) -> int:
        with suppress(BrokenPipeError, ConnectionResetError):
            self._control.sendall(words)
        told = _received(self._control)
        if told.isdigit():
            return int(told)
        number = int(told[1:] or 0)
        reason = os.strerror(number) if number else "its keeper was killed"
        raise _cannot_start(settings, settings.command[0], reason, number)

    def _order(self, letter: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self._control.send(letter)


def _start_keeper(settings: ExecutorSettings, control: int) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            # Isolated and without site-packages: it starts at once, and nothing of the application's can break it.
            [sys.executable, "-I", "-S", str(KEEPER), str(control)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=settings.cwd,
            start_new_session=True,
            pass_fds=[control],
        )
    except (OSError, ValueError) as error:
        # Of a folder that is not there it is the folder that the system names.
        what = getattr(error, "filename", None) or settings.command[0]
        reason, number = getattr(error, "strerror", None) or str(error), getattr(error, "errno", None)
        raise _cannot_start(settings, what, reason, number) from error


def _cannot_start(settings: ExecutorSettings, what: str, reason: str, number: int | None = None) -> ExecutorStartError:
    kind = ExecutorNoRoomError if number in SCARCITY else ExecutorStartError
    return kind(f"executor {settings.name!r} cannot be started: {what}: {reason}")


def _received(control: socket.socket) -> bytes:
    """The next line of a keeper; nothing if it has ended."""
    line = b""
    with suppress(ConnectionResetError):
        while not line.endswith(b"\n") and (byte := control.recv(1)):
            line += byte
    return line.strip()


def _pipe(pipe: IO[bytes] | None) -> int:
    fileno: Any = pipe and pipe.fileno()
    os.set_blocking(fileno, False)
    return int(fileno)
