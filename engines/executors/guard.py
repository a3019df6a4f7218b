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
            if self._groups or self._keeper is not None:
                self._tell(b"-%d\n" % group)

    def close(self) -> None:
        with self._lock:
            keeper, self._keeper = self._keeper, None
            self._groups.clear()
        if keeper is not None:
            _dismiss(keeper)

    def _tell(self, line: bytes) -> None:
        """One that has died is replaced, and told everything anew."""
        if self._keeper is None or self._keeper.poll() is not None or not _told(self._keeper, line):
            if self._keeper is not None:
                _dismiss(self._keeper)
            self._keeper = _start()
            _told(self._keeper, b"".join(b"+%d\n" % group for group in self._groups))


def _told(keeper: "subprocess.Popen[bytes]", line: bytes) -> bool:
    try:
        keeper.stdin.write(line)  # type: ignore[union-attr]
    except BrokenPipeError:
        return False
    return True


def _dismiss(keeper: "subprocess.Popen[bytes]") -> None:
    """Without its pipe it kills what it still knows, and ends."""
    with suppress(OSError):
        keeper.stdin.close()  # type: ignore[union-attr]
    keeper.wait()


def _start() -> "subprocess.Popen[bytes]":
    # Isolated and without site-packages: it starts at once, and nothing of the application's can break it.
    command = [sys.executable, "-I", "-S", str(PROGRAM)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, bufsize=0, start_new_session=True
    )
