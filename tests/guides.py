"""Follows a page of the documentation: saves its files, types its commands, compares what they print."""

import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from tests import warm
from tests.processes import LIMIT, ROOT

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What differs from run to run: times, durations, ids, hosts and process numbers.
VARYING = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?", "TIME"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\b[\w-]+:\d{2,}\b", "HOST:PID"),
    (r"\b\d+(\.\d+)? (ms|s)\b", "DURATION"),
    (r"\d+ migrations?", "MIGRATIONS"),
    (r"(/[\w.+-]+){3,}", "PATH"),
)


@dataclass(frozen=True)
class Block:
    """A block of code on a page, and the paragraph before it."""

    language: str
    text: str
    before: str

    @property
    def saved_as(self) -> str | None:
        """The file that the reader is told to save the block as."""
        found = re.search(r"(?:[Ss]ave|[Ww]rite)\b[^.`]* as `([^`]+)`", self.before)
        return found[1] if found else None


def blocks(page: str, changes: Mapping[str, str] | None = None) -> list[Block]:
    """The blocks of a page below `docs/`, in their order; where a port of the page may be taken, with another one."""
    text = (ROOT / "docs" / page).read_text()
    for written, instead in (changes or {}).items():
        text = text.replace(written, instead)
    found, end = [], 0
    for match in BLOCK.finditer(text):
        before = text[end : match.start()].strip().rpartition("\n\n")[2]
        found.append(Block(match[1], match[2], " ".join(before.split())))
        end = match.end()
    return found


def clone(folder: Path) -> Path:
    """A copy of the repository without data or settings of any run."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    copy = folder / "ergon"
    for name in filter(None, names.split("\0")):
        if not name.startswith(("tests/", "benchmarks/")) and (ROOT / name).is_file():
            # To compile everything anew takes seconds, and tells nothing of the page.
            for one in (Path(name), Path(cache_from_source(name))):
                if (ROOT / one).is_file():
                    (copy / one).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / one, copy / one)
    return copy


# The `python` of a reader's virtual environment: what it is asked for is run by a fork of a process that has loaded the
# clone's code, and ends, is interrupted and is told to end as if it were run here.
PYTHON = """#!{executable} -IS
import json, os, signal, socket, sys
if sys.argv[1:2] != ["manage.py"]:
    os.execv({executable!r}, [{executable!r}, *sys.argv[1:]])
told = {{signal.SIGINT, signal.SIGTERM}}
signal.pthread_sigmask(signal.SIG_BLOCK, told)
is_interruptible = signal.getsignal(signal.SIGINT) != signal.SIG_IGN
order = [sys.argv[1:], dict(os.environ), os.getcwd(), False, is_interruptible]
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
    line.connect({address!r})
    socket.send_fds(line, [json.dumps(order).encode()], [0, 1, 2])
    process = int(line.recv(20))
    for number in told:
        signal.signal(number, lambda number, _: os.kill(process, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, told)
    code = int(line.recv(20))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
ACTIVATE = 'export PATH="{folder}:{bin}:$PATH"\n'


@contextmanager
def installed(clone: Path) -> Iterator[None]:
    """A virtual environment in the clone, with the packages that are installed here."""
    programs, address = clone / ".venv" / "bin", str(clone / ".venv" / "line")
    programs.mkdir(parents=True)
    (programs / "activate").write_text(ACTIVATE.format(folder=programs, bin=Path(sys.executable).parent))
    (programs / "python").write_text(PYTHON.format(executable=sys.executable, address=address))
    (programs / "python").chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, ExitStack() as asked:
        listener.bind(address)
        listener.listen()
        accepting = threading.Thread(target=_accept, args=[listener, clone, asked])
        accepting.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()


def _accept(listener: socket.socket, clone: Path, asked: ExitStack) -> None:
    with suppress(OSError):
        while True:
            line, _ = listener.accept()
            running = threading.Thread(target=_run, args=[line, clone], daemon=True)
            running.start()
            asked.callback(running.join, LIMIT)


def _run(line: socket.socket, clone: Path) -> None:
    with line:
        text, pipes, *_ = socket.recv_fds(line, warm.LONGEST_ORDER, 3)
        process = warm.fork(warm.Order(*json.loads(text)), pipes, clone)
        for pipe in pipes:
            os.close(pipe)
        line.send(str(process).encode())
        _, status = os.waitpid(process, 0)
        line.send(str(os.waitstatus_to_exitcode(status)).encode())


@dataclass
class Terminal:
    """A shell in a folder. Its commands see no variable of the tests."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        clean = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8", **self.variables}
        self._shell = subprocess.Popen(
            ["/bin/bash", "--norc"],
            cwd=self.folder,
            env=clean,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._count = 0
        threading.Thread(target=self._read, daemon=True).start()

    def run(self, commands: str) -> str:
        """Type the commands and wait for their end; each must succeed. What they print."""
        self._count += 1
        mark = f"ended-{self._count}"
        self.begin(f"set -e\n{commands.rstrip()}\nset +e\necho\necho {mark}")
        return self._until(mark)

    def begin(self, commands: str) -> None:
        """Type commands that go on until they are interrupted."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{commands}\n")
        self._shell.stdin.flush()

    def press_ctrl_c(self, until: str | None = None) -> str:
        """Interrupt what runs here, as soon as it has printed this, and return all that it printed."""
        printed = self._until(until) if until else ""
        os.killpg(self._shell.pid, signal.SIGINT)
        return printed + self.run("")

    def close(self) -> None:
        if self._shell.poll() is None:
            os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.communicate(timeout=LIMIT)

    def _read(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _until(self, mark: str) -> str:
        printed, limit = "", time.monotonic() + 2 * LIMIT
        while True:
            try:
                line = self._lines.get(timeout=limit - time.monotonic())
            except (queue.Empty, ValueError):
                msg = f"not ended in time:\n{printed}"
                raise AssertionError(msg) from None
            assert line, f"a command of the page failed:\n{printed}"
            if line.rstrip("\n") == mark:
                return printed
            printed += line
            if mark in line:
                return printed


@contextmanager
def terminals(folder: Path, *names: str, **variables: str) -> Iterator[Any]:
    """Terminals in a folder; what runs in them is ended with the block."""
    opened = {name: Terminal(folder, variables) for name in names}
    try:
        yield opened.values() if len(names) > 1 else opened[names[0]]
    finally:
        for terminal in opened.values():
            terminal.close()


def save(folder: Path, block: Block) -> None:
    """Save a block as the file that the page names."""
    assert block.saved_as is not None
    path = folder / block.saved_as
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text)


def assert_prints(printed: str, expected: str) -> None:
    """The lines of the page come in this order among those printed, but for times, ids and hosts."""
    left = iter(_plain(printed.splitlines()))
    missing = [line for line in _plain(expected.splitlines()) if line not in left]
    assert not missing, f"the page says:\n{expected}\nbut the command printed:\n{printed}"


def _plain(lines: Iterable[str]) -> list[str]:
    return [_without_varying(line) for line in lines if line.strip()]


def _without_varying(line: str) -> str:
    for pattern, name in VARYING:
        line = re.sub(pattern, name, line)
    return " ".join(line.split())
