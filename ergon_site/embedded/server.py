"""The base of embedded servers: a folder that one process holds, a password, start and stop."""

import ctypes
import fcntl
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

START_LIMIT = 30.0
STOP_LIMIT = 30.0
START_ATTEMPTS = 5
_SET_PARENT_DEATH_SIGNAL = 1
_LIBC = ctypes.CDLL(None)


class ServerError(Exception):
    """An embedded server could not be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The parts of an embedded server that differ by kind."""

    home: Path
    command: Callable[[int], list[str]]
    address: Callable[[int], str]
    ping: Callable[[str], None]
    not_yet: tuple[type[Exception], ...] = ()  # what a ping raises besides OSError while the server starts
    process: dict[str, Any]
    stop_signal: signal.Signals
    port: int | None = None  # any that is free


@contextmanager
def running(server: Server) -> Iterator[str]:
    """The server from its first answer to its end, as its address."""
    process, address = _start(server)
    try:
        yield address
    finally:
        process.send_signal(server.stop_signal)
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def held(home: Path) -> Iterator[None]:
    """A folder that no other process uses meanwhile."""
    with (home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"another process already runs the server in {home}"
            raise ServerError(msg) from None
        yield


def kept_password(home: Path) -> str:
    path = home / "password"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(24))
        shutil.chown(path, home.stat().st_uid, home.stat().st_gid)
    return path.read_text()


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def package_of(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        msg = f"the package {name} is missing: install ergon[demo], or requirements/dev.txt of a clone"
        raise ServerError(msg)
    return Path(spec.submodule_search_locations[0])


def _start(server: Server) -> tuple[subprocess.Popen[bytes], str]:
    def die() -> None:
        """With the parent, even if that is killed."""
        _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, server.stop_signal)

    # Between choosing a free port and listening on it another process may take it: then try the next one.
    for _ in range(START_ATTEMPTS):
        port = server.port or free_port()
        with (server.home / "log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 (a command of our own)
                server.command(port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die if sys.platform == "linux" else None,  # noqa: PLW1509 (it makes one system call)
                **server.process,
            )
        if _answers(process, server, port):
            return process, server.address(port)
    msg = f"{server.command(0)[0]} does not start; its log is {server.home / 'log'}"
    raise ServerError(msg)


def _answers(process: subprocess.Popen[bytes], server: Server, port: int) -> bool:
    until = time.monotonic() + START_LIMIT
    while process.poll() is None and time.monotonic() < until:
        with suppress(OSError, *server.not_yet):
            server.ping(server.address(port))
            return True
        time.sleep(0.02)
    process.kill()
    process.wait()
    return False
