"""What a job carries and what its handler does: about 200 bytes with its number, and a note of when it was entered.

A note is one write of eight bytes into a file in memory, at the job's number: it costs a fraction of a microsecond,
the same for every contender. The first job of each worker process waits at a gate until all of them have begun, so
that no process works alone while another still starts.
"""

import mmap
import os
import struct
import threading
import time
from array import array
from pathlib import Path
from typing import Any

PADDING = "x" * 180
GATE_LIMIT = 20.0
# In place of its number, in a job that fails.
FAILING = -1
_ENTRY = struct.Struct("@q")
_opening = threading.Lock()
_opened: list[mmap.mmap] = []


def payload(number: int) -> dict[str, Any]:
    return {"number": number, "padding": PADDING}


def enter(number: int) -> None:
    """The handler, all of it."""
    entries = _opened[0] if _opened else _open()
    _ENTRY.pack_into(entries, number * _ENTRY.size, time.time_ns())


def _open() -> mmap.mmap:
    with _opening:
        if not _opened:
            folder = Path(os.environ["BENCHMARK_FOLDER"])
            _pass_gate(folder / "gate", int(os.environ["BENCHMARK_PROCESSES"]))
            with (folder / "entries").open("r+b") as file:
                _opened.append(mmap.mmap(file.fileno(), 0))
        return _opened[0]


def _pass_gate(gate: Path, processes: int) -> None:
    (gate / str(os.getpid())).touch()
    until = time.monotonic() + GATE_LIMIT
    while len(list(gate.iterdir())) < processes and time.monotonic() < until:
        time.sleep(0.001)


class Entries:
    """When each job was entered, as its watcher sees it."""

    def __init__(self, folder: Path, count: int) -> None:
        (folder / "gate").mkdir()
        (folder / "entries").write_bytes(bytes(count * _ENTRY.size))
        with (folder / "entries").open("rb") as file:
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.count = count

    def of(self, number: int) -> int:
        """In nanoseconds since the epoch; 0 if it has not been entered."""
        return int(_ENTRY.unpack_from(self._memory, number * _ENTRY.size)[0])

    def all(self) -> "array[int]":
        return array("q", bytes(self._memory))

    def are_complete(self) -> bool:
        # Queues are first in, first out but for a few: the last one is asked first, and all of them only then.
        return self.of(self.count - 1) != 0 and 0 not in self.all()
