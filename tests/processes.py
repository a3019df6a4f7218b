"""Real processes on the test's database."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
from django.db import connection

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 30.0


@dataclass(frozen=True, slots=True)
class Site:
    url: str


def database_url() -> str:
    """The address of the database that this run's tests use."""
    name = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    return urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}"))


def environment(**changes: str) -> dict[str, str]:
    """A child's environment: this one's, on the test's database."""
    return {**os.environ, "DATABASE_URL": database_url(), **changes}


def run(*command: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in the project's folder."""
    return subprocess.run(
        command, cwd=ROOT, env=environment(**changes), capture_output=True, text=True, timeout=60, check=False
    )


def manage(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "manage.py", *arguments, **changes)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(*command: str, log: Path | None = None, **changes: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of the virtual environment, running; asked to end when the block does."""
    with (log or Path(os.devnull)).open("wb") as output:
        running = subprocess.Popen(
            [str(Path(sys.executable).parent / command[0]), *command[1:]],
            cwd=ROOT,
            env=environment(**changes),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield running
    finally:
        running.terminate()
        running.wait(LIMIT)


@contextmanager
def serve(log: Path | None = None, **changes: str) -> Iterator[Site]:
    """The web server, answering."""
    port = free_port()
    listen = ["--interface", "wsgi", "--host", "127.0.0.1", "--port", str(port), "--no-ws"]
    threads = ["--blocking-threads", "4", "--backpressure", "16"]
    with process("granian", *listen, *threads, "ergon_site.wsgi:application", log=log, **changes):
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/livez")
        yield Site(url)


def wait_for(url: str) -> None:
    eventually(lambda: _answers(url), f"{url} answers")


def eventually(holds: Callable[[], bool], what: str, within: float = LIMIT) -> None:
    """Wait until something has come true in another process."""
    until = time.monotonic() + within
    while not holds():
        assert time.monotonic() < until, f"not within {within:.0f} s: {what}"
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).is_success
    except httpx.TransportError:
        return False
