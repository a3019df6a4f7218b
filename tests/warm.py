"""`manage.py`, a server or a module of the tests, as a process of its own that starts in a fraction of the time.

Most of a start goes into loading what others wrote: Django, psycopg, Celery. One process does that once and is forked
for each command, which has its own environment and pipes and is a child of the tests. When an environment is met again,
a process of its own reads Ergon's settings and models in it, as any command does first, and is forked for the commands
that follow. Tests of starting itself start an interpreter as people do.
"""

import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from tests.servers import stack

ROOT = Path(__file__).resolve().parent.parent
# Of others only, and nothing that asks for settings: these are each command's own.
LOADED = (
    *("django.contrib.admin.sites", "django.contrib.postgres.forms", "django.core.management", "django.db.models"),
    *("django.db.backends.sqlite3.base", "django.forms", "django.http", "django.template", "django.views.generic"),
    *("celery.app.base", "celery.result", "kombu.entity", "opentelemetry.metrics", "opentelemetry.trace", "psycopg"),
    *("requests", "rest_framework.serializers", "rich.pretty", "sqlparse", "structlog.dev", "yaml"),
)
LONGEST_ORDER = 1 << 20
MOST_PREPARED = 4
_LIBC = ctypes.CDLL(None)
_TAKE_IN_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER


def start(arguments: Sequence[str], env: Mapping[str, str], **pipes: Any) -> subprocess.Popen[str]:
    """`manage.py` with these arguments, running; started the long way where there is no other."""
    return _start(["manage.py", *arguments], env, pipes)


def start_module(name: str, arguments: Sequence[str], env: Mapping[str, str], **pipes: Any) -> subprocess.Popen[str]:
    """`python -m` with this module and these arguments, running."""
    return _start(["-m", name, *arguments], env, pipes)


def start_program(path: Path, arguments: Sequence[str], env: Mapping[str, str], **pipes: Any) -> subprocess.Popen[str]:
    """A program of the virtual environment that is written in Python, such as a server, running."""
    return _start([str(path), *arguments], env, pipes)


def _start(argv: Sequence[str], env: Mapping[str, str], pipes: Mapping[str, Any]) -> subprocess.Popen[str]:
    is_possible = sys.platform == "linux" and "LD_PRELOAD" not in env
    kind: Any = _Forked if is_possible else subprocess.Popen
    process: subprocess.Popen[str] = kind([sys.executable, *argv], cwd=ROOT, env=env, text=True, **pipes)
    return process


class _Forked(subprocess.Popen[Any]):
    """A process like any other, but for how it comes into being."""

    def _execute_child(self, *given: Any) -> None:
        asked = signature(super()._execute_child).bind(*given).arguments  # type: ignore[misc]
        pipes = {name: asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")}
        theirs = [pipes["p2cread"], pipes["c2pwrite"], pipes["errwrite"]]
        inherited = [pipe if pipe >= 0 else number for number, pipe in enumerate(theirs)]
        order = {"argv": asked["args"][1:], "env": dict(asked["env"]), "is_leader": asked["start_new_session"]}
        self.pid = _fork(order, inherited)
        self._child_created = True
        self._close_pipe_fds(*pipes.values())  # type: ignore[attr-defined]


def _fork(order: Mapping[str, Any], pipes: Sequence[int]) -> int:
    is_plain = order["argv"][0] != "-m" and not os.isatty(pipes[2])  # settings ask whether it is a terminal
    line = (is_plain and _prepared_for(order["env"])) or _line()
    with _taking_in_orphans():
        socket.send_fds(line, [json.dumps(order).encode()], pipes)
        return int(line.recv(20))


@cache
def _line() -> socket.socket:
    """To the process that is forked; it ends when the run does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    variables = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    with theirs:
        command = [sys.executable, "-m", "tests.warm", str(theirs.fileno())]
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )
    stack.callback(process.wait)
    return stack.enter_context(ours)


def _prepared_for(env: Mapping[str, str]) -> socket.socket | None:
    """To the process that has read the settings in this environment; none at first, or where they are wrong."""
    name = json.dumps({**env, "PYTEST_CURRENT_TEST": ""}, sort_keys=True)  # which nobody but pytest reads
    if name not in _met:
        _met.add(name)
        return None
    one = _prepared.pop(name, None) or _prepare(env)
    if len(_prepared) == MOST_PREPARED:
        _prepared.pop(next(iter(_prepared))).end()
    _prepared[name] = one  # the last that was used is the last to be given up
    return one.line


def _prepare(env: Mapping[str, str]) -> "_Prepared":
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        nowhere = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
        process = start_module("tests.warm", ["prepared"], env, stdin=theirs, **nowhere)
    one = _Prepared(process, ours, is_ready=bool(ours.recv(20)))
    stack.callback(one.end)
    return one


@dataclass(frozen=True, slots=True)
class _Prepared:
    process: subprocess.Popen[str]
    opened: socket.socket
    is_ready: bool

    @property
    def line(self) -> socket.socket | None:
        return self.opened if self.is_ready else None

    def end(self) -> None:
        self.opened.close()
        self.process.wait()


_met: set[str] = set()
_prepared: dict[str, _Prepared] = {}


@contextmanager
def _taking_in_orphans() -> Iterator[None]:
    """What is left behind by its parent meanwhile becomes a child of this process."""
    _LIBC.prctl(_TAKE_IN_ORPHANS, 1, 0, 0, 0)
    try:
        yield
    finally:
        _LIBC.prctl(_TAKE_IN_ORPHANS, 0, 0, 0, 0)


def main() -> None:
    match sys.argv[1:]:
        case ["prepared"]:
            line = socket.socket(fileno=os.dup(sys.stdin.fileno()))
            os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ergon_site.settings")
            import_module("ergon_site.command_line")
            import_module("django").setup()
            line.send(b"ready")
        case [number]:
            line = socket.socket(fileno=int(number))
            for name in LOADED:
                import_module(name)
    gc.collect()
    gc.freeze()  # a command need not look through, and so copy, what stays the same
    with line:
        order = _wait_for_orders(line)
    match order and order["argv"]:
        case ["-m", name, *arguments]:
            sys.argv[:] = [name, *arguments]
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        case [path, *_] as argv:
            sys.argv[:] = argv
            runpy.run_path(path, run_name="__main__")


def _wait_for_orders(line: socket.socket) -> Any:
    """Returns with the order in each process that is forked for one, and with none when the tests have ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        text, pipes, *_ = socket.recv_fds(line, LONGEST_ORDER, 3)
        if not text:
            return None
        order = json.loads(text)
        if _is_forked(line, is_leader=order["is_leader"]):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _take_over(pipes, order["env"])
            return order
        for pipe in pipes:
            os.close(pipe)


def _is_forked(line: socket.socket, *, is_leader: bool) -> bool:
    """Fork twice: who stands between is gone before the tests are told, and so the command is theirs."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if between := os.fork():
            os.waitpid(between, 0)
            line.send(ours.recv(20))
        elif os.fork():
            os._exit(0)
        else:
            if is_leader:
                os.setsid()
            theirs.send(str(os.getpid()).encode())
        return not between


def _take_over(pipes: Sequence[int], variables: Mapping[str, str]) -> None:
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[1:1] = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))


if __name__ == "__main__":
    main()
