"""`manage.py`, a server or a module of the tests, as a process of its own that starts in a fraction of the time.

Most of a start goes into loading: Django, psycopg, Celery, Ergon itself. One process does that once and is forked for
each command, which has its own environment and pipes and is a child of the tests. It reads Ergon's settings anew, as
any command does first: nothing that is loaded has asked for them. A project of somebody else can be loaded in the
same way, with its own settings. Tests of starting itself start an interpreter as people do. The passes of a whole run
are forked likewise, each with a copy of the loaded process for the commands of its tests.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from django.utils.functional import empty

from tests.servers import OURS, stack

ROOT = Path(__file__).resolve().parent.parent
OUR_SETTINGS = "ergon_site.settings"
# Besides the commands, of which each loads what it needs.
LOADED = (
    *("celery.apps.worker", "celery.bin.celery", "drf_spectacular.views", "granian.cli", "sqlparse"),
    *("django.contrib.postgres.forms", "django.db.backends.postgresql.base", "django.db.backends.sqlite3.base"),
    *("engines.admin", "ergon_site.access.admin", "ergon_site.console", "facts.admin", "providers.admin"),
    *("opentelemetry.exporter.prometheus", "opentelemetry.sdk.metrics", "rich.pretty", "yaml"),
)
# What these hold is told by the environment, and so must not be known before the command's own is there.
OF_THE_ENVIRONMENT = ("ERGON_", "CELERY_", "OTLP_", "SECRET_KEY", "STORAGES")
KEPT = {"DATABASE_URL", "ERGON_DATA_DIR"}
LONGEST_ORDER = 1 << 20
# To the copy of the loaded process, for the pass that left it.
LINE = "TESTS_LINE"
_given = os.environ.pop(LINE, "")
# Where a process that is forked looks for modules, and last where this one is.
_path: list[str] = []
_LIBC = ctypes.CDLL(None)
_TAKE_IN_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a process loads that is forked: the code in a folder, with settings that may be those of a project."""

    folder: Path
    python: str = sys.executable
    settings: str = OUR_SETTINGS


ERGON = Loaded(ROOT)


def start(arguments: Sequence[str], env: Mapping[str, str], **pipes: Any) -> subprocess.Popen[str]:
    """`manage.py` with these arguments, running; started the long way where there is no other."""
    return start_python(["manage.py", *arguments], env, **pipes)


def start_module(name: str, arguments: Sequence[str], env: Mapping[str, str], **pipes: Any) -> subprocess.Popen[str]:
    """`python -m` with this module and these arguments, running."""
    return start_python(["-m", name, *arguments], env, **pipes)


def start_program(path: Path, arguments: Sequence[str], env: Mapping[str, str], **pipes: Any) -> subprocess.Popen[str]:
    """A program of the virtual environment that is written in Python, such as a server, running."""
    return start_python([str(path), *arguments], env, **pipes)


def start_python(
    argv: Sequence[str], env: Mapping[str, str], loaded: Loaded = ERGON, **pipes: Any
) -> subprocess.Popen[str]:
    """An interpreter with these arguments, running."""
    # What is loaded has asked whether this is for debugging, and been told that it is not.
    is_possible = sys.platform == "linux" and not {"LD_PRELOAD", "DJANGO_DEBUG"} & set(env)
    kind: Any = partial(_Forked, loaded) if is_possible else subprocess.Popen
    process: subprocess.Popen[str] = kind([loaded.python, *argv], cwd=loaded.folder, env=env, text=True, **pipes)
    return process


class _Forked(subprocess.Popen[Any]):
    """A process like any other, but for how it comes into being."""

    def __init__(self, loaded: Loaded, *given: Any, **named: Any) -> None:
        self._loaded = loaded
        super().__init__(*given, **named)

    def _execute_child(self, *given: Any) -> None:
        asked = signature(super()._execute_child).bind(*given).arguments  # type: ignore[misc]
        pipes = {name: asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")}
        theirs = [pipes["p2cread"], pipes["c2pwrite"], pipes["errwrite"]]
        inherited = [pipe if pipe >= 0 else number for number, pipe in enumerate(theirs)]
        order = Order(asked["args"][1:], dict(asked["env"]), str(asked["cwd"]), asked["start_new_session"])
        self.pid = fork(order, inherited, self._loaded)
        self._child_created = True
        self._close_pipe_fds(*pipes.values())  # type: ignore[attr-defined]


class Order(NamedTuple):
    """What is to be run, and where."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    is_leader: bool = False
    is_interruptible: bool = True


def fork(order: Order, pipes: Sequence[int], loaded: Loaded) -> int:
    """Have an order carried out by a child of this process that has something loaded; its number."""
    line = _line(loaded)
    with _forking, _taking_in_orphans():
        socket.send_fds(line, [json.dumps(order).encode()], pipes)
        return int(line.recv(20))


_forking = threading.Lock()


# Where this module is comes last: only it is found there.
LOADING = f"import os, sys; sys.path[0] = os.getcwd(); sys.path.append('{ROOT}'); from tests.warm import main; main()"


@cache
def _line(loaded: Loaded) -> socket.socket:
    """To the process that is forked; it ends when the run does."""
    if _given and loaded == ERGON:
        return stack.enter_context(socket.socket(fileno=int(_given)))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Not what the test that is the first to start something has set.
    kept = {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(OURS)}
    with theirs:
        process = subprocess.Popen(
            [loaded.python, "-c", LOADING, str(theirs.fileno())],
            cwd=loaded.folder,
            env={**kept, "DJANGO_SETTINGS_MODULE": loaded.settings, "PYTHONPATH": ""},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    stack.callback(process.wait)
    return stack.enter_context(ours)


@contextmanager
def _taking_in_orphans() -> Iterator[None]:
    """What is left behind by its parent meanwhile becomes a child of this process."""
    _LIBC.prctl(_TAKE_IN_ORPHANS, 1, 0, 0, 0)
    try:
        yield
    finally:
        _LIBC.prctl(_TAKE_IN_ORPHANS, 0, 0, 0, 0)


def main() -> None:
    _path[:] = sys.path
    _load()
    gc.collect()
    gc.freeze()  # a command need not look through, and so copy, what stays the same
    _serve(socket.socket(fileno=int(sys.argv[1])))


def leave_copy() -> None:
    """Leave a copy of this process, in which Ergon is loaded and nothing else, to be forked for commands."""
    if not _path:
        return  # nothing is loaded: processes are started the long way here
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        ours.close()
        _serve(theirs)
    theirs.close()
    os.environ[LINE] = str(ours.detach())


def _serve(line: socket.socket) -> NoReturn:
    with line:
        order = _wait_for_orders(line)
    _end(_run(order.argv) if order else None)


def _run(argv: list[str]) -> Any:
    """What the program says when it exits."""
    try:
        match argv:
            case ["-m", name, *arguments]:
                sys.argv[:] = [name, *arguments]
                runpy.run_module(name, run_name="__main__", alter_sys=True)
            case [path, *_]:
                sys.argv[:] = argv
                runpy.run_path(path, run_name="__main__")
    except SystemExit as ended:
        return ended.code
    return None


def _end(code: Any) -> NoReturn:
    """As the interpreter ends, but for freeing what is loaded: that takes longer than what most commands do."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # nobody reads it any more, of which the interpreter has its own way to tell
    os._exit((code or 0) & 0xFF)


def _load() -> None:
    import_module("ergon_site.command_line")
    import_module("django").setup()
    settings = import_module("django.conf").settings
    for name in LOADED if _is_ours() else [settings.ROOT_URLCONF]:
        import_module(name)
    # As in the process of the tests: a password is verified all the same.
    import_module("django.contrib.auth.hashers").PBKDF2PasswordHasher.iterations = 1
    management = import_module("django.core.management")
    for command, app in management.get_commands().items():
        management.load_command_class(app, command)
    asked = [name for name in vars(settings) if name.startswith(OF_THE_ENVIRONMENT)]
    assert not (asked and _is_ours()), f"read while loading, and so the same for every command: {asked}"


def _is_ours() -> bool:
    return os.environ["DJANGO_SETTINGS_MODULE"] == OUR_SETTINGS


def _forget_settings() -> None:
    """Whoever asks for them next reads them, and sets up the database and the logs by them."""
    # Those of a project may have begun with ours.
    for name in {OUR_SETTINGS, os.environ.get("DJANGO_SETTINGS_MODULE", OUR_SETTINGS)}:
        sys.modules.pop(name, None)
    import_module("django.conf").settings._wrapped = empty
    connections = import_module("django.db").connections
    connections.__init__()
    vars(connections).pop("settings", None)


def _wait_for_orders(line: socket.socket) -> Order | None:
    """Returns with the order in each process that is forked for one, and with none when the tests have ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        text, pipes, *_ = socket.recv_fds(line, LONGEST_ORDER, 3)
        if not text:
            return None
        order = Order(*json.loads(text))
        if _is_forked(line, is_leader=order.is_leader):
            signal.signal(signal.SIGINT, signal.default_int_handler if order.is_interruptible else signal.SIG_IGN)
            _take_over(pipes, order)
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


def _take_over(pipes: Sequence[int], order: Order) -> None:
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    os.chdir(order.cwd)
    _forget_settings()
    os.environ.clear()
    os.environ.update(order.env)
    folder, *others, _ = _path
    sys.path[:] = [folder, *filter(None, order.env.get("PYTHONPATH", "").split(os.pathsep)), *others]
