"""`make demo`, as a person uses it."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest

from tests.processes import ROOT, eventually, free_port, wait_for

pytestmark = pytest.mark.once


@pytest.fixture
def port() -> Iterator[int]:
    port = free_port()
    yield port
    shutil.rmtree(ROOT / "var" / "demo" / str(port), ignore_errors=True)


@contextmanager
def demo(port: int) -> Iterator[subprocess.Popen[str]]:
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    command = [sys.executable, "-m", "ergon_site.demo", "--port", str(port)]
    output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=clean, start_new_session=True, **output) as running:
        try:
            wait_for(f"http://127.0.0.1:{port}/readyz")
            yield running
        finally:
            running.terminate()


def press_ctrl_c(running: subprocess.Popen[str]) -> str:
    """The terminal's way: the whole foreground group is interrupted."""
    family = psutil.Process(running.pid).children(recursive=True)
    os.killpg(running.pid, signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    eventually(lambda: not any(child.is_running() for child in family), "every process of the demo has ended")
    return output


def log_in(port: int, username: str, password: str) -> httpx.Response:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", follow_redirects=True) as browser:
        page = browser.get("/").text
        found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert found is not None
        form = {"username": username, "password": password, "csrfmiddlewaretoken": found[1], "next": "/admin/"}
        return browser.post("/admin/login/", data=form)


def test_the_demo_lets_a_person_in_ends_at_ctrl_c_and_starts_again(port: int) -> None:
    with demo(port) as running:
        assert re.search(r"\d+ things? needs? a person", log_in(port, "admin", "demo").text)
        assert "Dashboard" in log_in(port, "viewer", "demo").text
        output = press_ctrl_c(running)
    assert f"http://127.0.0.1:{port}/" in output
    assert "Traceback" not in output
    with demo(port) as running:
        press_ctrl_c(running)


def test_a_taken_port_is_one_clear_line(port: int) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        command = [sys.executable, "-m", "ergon_site.demo", "--port", str(port)]
        refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert refused.returncode != 0
    assert refused.stderr.strip().startswith(f"ergon: port {port} cannot be used")
    assert len(refused.stderr.splitlines()) == 1
