"""A process with pipes, in a group of its own: started, watched, and ended with all that it has started."""

import fcntl
import os
import select
import signal
import subprocess
import termios
import threading
import time
from array import array
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from engines.executors.errors import ExecutorStartError
from engines.executors.guard import Guard
from engines.executors.settings import ExecutorSettings

# Between SIGTERM and SIGKILL.
GRACE = 1.0
# Where the kernel cannot tell that a process has ended, it is asked this often.
LOOK = 0.01


class Child:
    """Its pipes are numbers that never block. `death` becomes readable when it ends, where the kernel has that."""

    def __init__(self, settings: ExecutorSettings, environment: Mapping[str, str], guard: Guard) -> None:
        self._guard = guard
        self._process = _start(settings, environment)
        self.pid = self._process.pid
        self._ending = threading.Lock()
        self.death = _pidfd(self.pid)
        try:
            self.stdin, self.stdout = _pipe(self._process.stdin), _pipe(self._process.stdout)
            guard.watch(self.pid)
        except BaseException:
            self.kill(grace=0)
            self.close()
            self.stderr.close()
            raise

    @property
    def stderr(self) -> IO[bytes]:
        return self._process.stderr  # type: ignore[return-value]

    def has_ended(self, seconds: float = 0) -> bool:
        """Whether it ends within so many seconds; it is not reaped by asking."""
        if self._process.returncode is not None:
            return True
        if self.death is not None:
            watch = select.poll()
            watch.register(self.death, select.POLLIN)
            return bool(watch.poll(seconds * 1000))
        until = time.monotonic() + seconds
        while not (is_over := _is_zombie(self.pid)) and time.monotonic() < until:
            time.sleep(LOOK)
        return is_over

    @property
    def is_deaf(self) -> bool:
        """Whether nobody can read any more what it is told."""
        watch = select.poll()
        watch.register(self.stdin, 0)
        return bool(watch.poll(0))

    @property
    def unread(self) -> int:
        """How many bytes it was told and has not read yet."""
        count = array("i", [0])
        with suppress(OSError):
            fcntl.ioctl(self.stdin, termios.FIONREAD, count)
        return count[0]

    @property
    def code(self) -> str:
        """How it ended, as a shell tells it: 128 and the signal's number for one that was killed."""
        code = self._process.returncode
        return str(code) if code >= 0 else f"{128 - code} ({_name(-code)})"

    def kill(self, grace: float = GRACE) -> None:
        """SIGTERM to the whole group, a second, SIGKILL; returns when it is reaped."""
        with self._ending:
            if self._process.returncode is not None:
                return
            if grace and not self.has_ended():
                self._signal(signal.SIGTERM)
                self.has_ended(grace)
            # Before it is reaped: until then nobody else can have its number.
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._guard.forget(self.pid)

    def close(self) -> None:
        """Give the pipes back, all but stderr; from now on their numbers may be another's."""
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        if self.death is not None:
            os.close(self.death)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _start(settings: ExecutorSettings, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            settings.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=settings.cwd,
            env={**environment, **settings.env},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        # Of a folder that is not there it is the folder that the system names.
        what = getattr(error, "filename", None) or settings.command[0]
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"executor {settings.name!r} cannot be started: {what}: {reason}"
        raise ExecutorStartError(msg) from error


def _pipe(pipe: IO[bytes] | None) -> int:
    fileno: Any = pipe and pipe.fileno()
    os.set_blocking(fileno, False)
    return int(fileno)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _is_zombie(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the many that are for real time have no name
        return f"signal {number}"
