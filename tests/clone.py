"""A clone of the repository for the readers of its pages, and a `python` that starts in a fraction of the time."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from tests import warm
from tests.installation import copy_bytecode
from tests.processes import LIMIT, ROOT


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
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
            copy_bytecode(ROOT / name, copy / name)
    return copy


# What this `python` is asked for is run by a fork of a process that has loaded the code, and ends, is interrupted and
# is told to end as if it were run here.
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
    programs = clone / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "activate").write_text(ACTIVATE.format(folder=programs, bin=Path(sys.executable).parent))
    with python_in(programs, warm.Loaded(clone)):
        yield


@contextmanager
def python_in(folder: Path, loaded: warm.Loaded) -> Iterator[None]:
    """A program `python` in a folder, for shells that find it there."""
    program, address = folder / "python", str(folder / "line")
    program.write_text(PYTHON.format(executable=sys.executable, address=address))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, ExitStack() as asked:
        listener.bind(address)
        listener.listen()
        accepting = threading.Thread(target=_accept, args=[listener, loaded, asked])
        accepting.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()


def _accept(listener: socket.socket, loaded: warm.Loaded, asked: ExitStack) -> None:
    with suppress(OSError):
        while True:
            line, _ = listener.accept()
            running = threading.Thread(target=_run, args=[line, loaded], daemon=True)
            running.start()
            asked.callback(running.join, LIMIT)


def _run(line: socket.socket, loaded: warm.Loaded) -> None:
    with line:
        text, pipes, *_ = socket.recv_fds(line, warm.LONGEST_ORDER, 3)
        order = warm.Order(*json.loads(text))
        with _prepared(order, loaded.folder / ".venv" / "migrated.sqlite3"):
            process = warm.fork(order, pipes, loaded)
            for pipe in pipes:
                os.close(pipe)
            line.send(str(process).encode())
            _, status = os.waitpid(process, 0)
        line.send(str(os.waitstatus_to_exitcode(status)).encode())


@contextmanager
def _prepared(order: warm.Order, kept: Path) -> Iterator[None]:
    """The first `migrate` makes a database of an empty file; the next ones find a copy of it where they would do so.

    Each would make the same, of which it would take seconds.
    """
    if order.argv[1:2] != ["migrate"]:
        yield
        return
    database = _database(order)
    if kept.exists() and not database.exists():
        shutil.copy(kept, database)
    yield
    if not kept.exists():
        with closing(sqlite3.connect(database)) as made:
            made.execute("VACUUM INTO ?", [str(kept)])
        with closing(sqlite3.connect(kept, isolation_level=None)) as copy:
            copy.execute("DELETE FROM facts_zone")  # which each `migrate` names by its own environment


def _database(order: warm.Order) -> Path:
    """The file of the database that a command would use."""
    if address := order.env.get("DATABASE_URL"):
        return Path(address.removeprefix("sqlite:///"))
    folder = Path(order.cwd, order.env.get("ERGON_DATA_DIR", "var"))
    folder.mkdir(parents=True, exist_ok=True)  # as any command does
    return folder / "ergon.sqlite3"
