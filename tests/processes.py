"""Real processes on the test's database."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
from django.db import connection

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT = 30.0


@dataclass(frozen=True, slots=True)
class Site:
    url: str


def test_database_url() -> str:
    """The address of the database that this run's tests use."""
    name = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    return urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}"))


test_database_url.__test__ = False  # type: ignore[attr-defined]


def environment(**changes: str) -> dict[str, str]:
    """A child's environment: this one's, on the test's database."""
    return {**os.environ, "DATABASE_URL": test_database_url(), **changes}


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
def serve(**changes: str) -> Iterator[Site]:
    """The web server, answering."""
    port = free_port()
    command = ["granian", "--interface", "wsgi", "--host", "127.0.0.1", "--port", str(port), "--no-ws"]
    options = ["--blocking-threads", "4", "--backpressure", "16", "ergon_site.wsgi:application"]
    process = subprocess.Popen(
        [str(Path(sys.executable).parent / command[0]), *command[1:], *options],
        cwd=ROOT,
        env=environment(**changes),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/livez")
        yield Site(url)
    finally:
        process.terminate()
        process.wait(START_LIMIT)


def wait_for(url: str) -> None:
    until = time.monotonic() + START_LIMIT
    while time.monotonic() < until:
        try:
            if httpx.get(url, timeout=2).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    msg = f"{url} does not answer"
    raise AssertionError(msg)
