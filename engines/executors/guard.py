"""Sees to it that executors die with their worker, even one that is killed and cannot do it itself."""

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

PROGRAM = Path(__file__).with_name("keeper.py")


class Guard:
    """A process of its own that is told which process groups to kill when this one is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._keeper: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            self._tell(b"+%d\n" % group)

    def forget(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)
            self._tell(b"-%d\n" % group)

    def close(self) -> None:
        with self._lock:
            keeper, self._keeper = self._keeper, None
        if keeper is not None and keeper.stdin is not None:
            with suppress(OSError):
                keeper.stdin.close()
            keeper.wait()

    def _tell(self, line: bytes) -> None:
        """One that has died is replaced, and told everything anew."""
        if self._keeper is None or self._keeper.poll() is not None:
            self._keeper = _start()
            line = b"".join(b"+%d\n" % group for group in self._groups)
        with suppress(BrokenPipeError):
            assert self._keeper.stdin is not None  # noqa: S101 (it was started with a pipe)
            self._keeper.stdin.write(line)


def _start() -> "subprocess.Popen[bytes]":
    # Isolated and without site-packages: it starts at once, and nothing of the application's can break it.
    command = [sys.executable, "-I", "-S", str(PROGRAM)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, bufsize=0, start_new_session=True
    )
