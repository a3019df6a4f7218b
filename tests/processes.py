"""Real processes on the test's database."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
from django.db import connection

from tests import ports, warm

ROOT = warm.ROOT
# For what takes seconds at most on a machine that has time: one that has none must not fail a test.
LIMIT = 180.0
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
free_port = ports.free_port


@dataclass(frozen=True, slots=True)
class Site:
    url: str
    process_id: int

    def processes(self) -> list[psutil.Process]:
        """The processes of its web server, the worker last."""
        main = psutil.Process(self.process_id)
        return [main, *main.children(recursive=True)]


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
        command, cwd=ROOT, env=environment(**changes), capture_output=True, text=True, timeout=2 * LIMIT, check=False
    )


def manage(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `manage.py` to its end."""
    return ended(warm.start(arguments, environment(**changes), **PIPES))


def run_module(name: str, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests to its end."""
    return ended(warm.start_module(name, arguments, environment(**changes), **PIPES))


def ended(process: subprocess.Popen[str], given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Wait for its end, and for what it prints until then; this is what it reads."""
    with process:
        try:
            output, errors = process.communicate(given, timeout=2 * LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


@contextmanager
def process(*command: str, log: Path | None = None, **changes: str) -> Iterator[subprocess.Popen[str]]:
    """A program of the virtual environment, running; asked to end when the block does."""
    program = Path(sys.executable).parent / command[0]
    with (log or Path(os.devnull)).open("wb") as output:
        options: dict[str, Any] = {"stdout": output, "stderr": output, "start_new_session": True}
        running = warm.start_program(program, command[1:], environment(**changes), **options)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(LIMIT)


@contextmanager
def serve(log: Path | None = None, threads: str = "4", **changes: str) -> Iterator[Site]:
    """The web server, answering."""
    port = free_port()
    listen = ["--interface", "wsgi", "--host", "127.0.0.1", "--port", str(port), "--no-ws"]
    # A worker that misses its order to end, as granian's rarely do, is killed; a supervisor does the same.
    crew = ["--blocking-threads", threads, "--backpressure", "64", "--workers-kill-timeout", "30"]
    with process("granian", *listen, *crew, "ergon_site.wsgi:application", log=log, **changes) as server:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/livez")
        yield Site(url, server.pid)


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def words_of(process: psutil.Process) -> str:
    """Its command line; nothing if it has ended a moment ago."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def wrong_clock(offset: str) -> dict[str, str]:
    """Variables of a process whose host's clock is wrong by so much (+1h, -10m)."""
    found = sorted(Path("/usr/lib").rglob("libfaketimeMT.so.1"))
    assert found, "needs the package faketime"
    return {"LD_PRELOAD": str(found[0]), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def wait_for(url: str, within: float = LIMIT) -> None:
    eventually(lambda: _answers(url), f"{url} answers", within)


def eventually(holds: Callable[[], bool], what: str, within: float = LIMIT) -> None:
    """Wait until something has come true in another process."""
    began = time.monotonic()
    until = began + within
    while not holds():
        looked = time.monotonic()
        assert looked < until, f"not within {within:.0f} s: {what}"
        # To look at a page takes the time of those who are waited for: the longer it takes, the less often.
        time.sleep(min(max(SHORTEST_PAUSE, 3 * (looked - began)), LONGEST_PAUSE))
        began = time.monotonic()


def _answers(url: str) -> bool:
    # Not with httpx, which reads all certificates first: that takes longer than the server's answer.
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 (ours)
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False
