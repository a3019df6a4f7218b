"""`make demo`, as a person uses it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from ergon_site.demo.__main__ import PROCESSES
from ergon_site.demo.tasks import CUSTOMERS
from tests.processes import LIMIT, ROOT, eventually, free_port, is_alive, wait_for, words_of

pytestmark = pytest.mark.once

# Seconds for what is much work: to start or end all processes of the demo, and what they do at first.
MUCH = 300.0


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The folder of a demo, named by its port. The first test that asks for it migrates the demo's database."""
    folder = ROOT / "var" / "demo" / str(free_port())
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """Where it goes what the demo says: in a pipe that nobody reads it would get stuck."""
    return tmp_path / "said"


@contextmanager
def demo(port: int, said: Path) -> Iterator["subprocess.Popen[bytes]"]:
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    command = [sys.executable, "-m", "ergon_site.demo", "--port", str(port)]
    with (
        said.open("wb") as output,
        subprocess.Popen(
            command, cwd=ROOT, env=clean, start_new_session=True, stdout=output, stderr=subprocess.STDOUT
        ) as running,
    ):
        try:
            yield running
        finally:
            running.terminate()


def press_ctrl_c(running: "subprocess.Popen[bytes]") -> None:
    """The terminal's way: the whole foreground group is interrupted."""
    family = psutil.Process(running.pid).children(recursive=True)
    os.killpg(running.pid, signal.SIGINT)
    running.wait(timeout=MUCH)
    eventually(lambda: not any(map(is_alive, family)), "every process of the demo has ended")


@contextmanager
def logged_in(port: int, username: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", follow_redirects=True, timeout=30) as browser:
        page = browser.get("/").text
        found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert found is not None
        form = {"username": username, "password": "demo", "csrfmiddlewaretoken": found[1], "next": "/admin/"}
        browser.post("/admin/login/", data=form)
        yield browser


def shows(browser: httpx.Client, address: str, *words: str) -> None:
    eventually(
        lambda: all(word in browser.get(f"/admin/{address}").text for word in words), f"{address} shows {words}", MUCH
    )


INTERRUPTED = 130
INTERRUPTED_DEMO = """
import os, signal, sys, time, types
from ergon_site.demo import __main__ as demo

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

def wait_for_ever(_):
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        time.sleep(1)

def finalize(_):
    Finalized()

def fill(_):
    from django.contrib.auth.models import User
    {undo}
    {fill}(_)

{setup}
sys.modules["ergon_site.demo.data"] = types.SimpleNamespace(fill=fill)
sys.argv = ["demo", "--port", "{port}"]
demo.main()
"""


def interrupted(port: int, fill: str, setup: str = "", undo: str = "") -> "subprocess.CompletedProcess[str]":
    """A demo that gets Ctrl-C while it fills its database."""
    command = [sys.executable, "-c", INTERRUPTED_DEMO.format(setup=setup, fill=fill, undo=undo, port=port)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=MUCH, check=False)


@pytest.mark.parametrize(
    ("setup", "fill", "code"),
    [
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)", "wait_for_ever", INTERRUPTED),
        ("", "finalize", 0),
    ],
    ids=["in the background of a script", "while something is finalized"],
)
def test_ctrl_c_while_the_database_is_filled_ends_the_demo(setup: str, fill: str, code: int, folder: Path) -> None:
    # The next demo in this folder finds a database that nobody has begun to fill: it need not be migrated again.
    ended = interrupted(int(folder.name), fill, setup, undo="User.objects.all().delete()")
    (folder / "unfinished").unlink(missing_ok=True)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "processes …" not in ended.stdout


def test_the_demo_lets_a_person_in_ends_at_ctrl_c_and_starts_again(folder: Path, said: Path) -> None:
    port, unfinished = int(folder.name), folder / "unfinished"
    stopped = interrupted(port, fill="wait_for_ever")
    assert (stopped.returncode, "processes …" in stopped.stdout) == (INTERRUPTED, False), stopped.stderr
    assert unfinished.exists(), "the next one begins anew"
    with demo(port, said) as running:
        wait_for(f"http://127.0.0.1:{port}/readyz", within=MUCH)
        assert not unfinished.exists()
        with logged_in(port, "viewer") as browser:
            assert "Dashboard" in browser.get("/admin/").text
        with logged_in(port, "admin") as browser:
            attention = re.compile(r"\d+ items? needs? attention")
            eventually(lambda: bool(attention.search(browser.get("/admin/").text)), "something needs attention", MUCH)
            shows(browser, "facts/consumer/", "orders", "39", ">0<")
            shows(browser, "facts/forwardedfact/", "order-39-released")
            shows(browser, "engines/executor/", "reports", "LookupError: there are no figures for week 53 yet")
            shows(browser, "engines/deadlettergroup/", "LookupError")
            shows(browser, "providers/gate/", "crawl_fetch", "open", "of 80")
            assert_the_shop_is_open(browser)
        assert_output_is_short(port, said)
        press_ctrl_c(running)
    with demo(port, said) as running:
        eventually(lambda: "running, log in" in said.read_text(), "it starts its processes", MUCH)
        assert_commands_reach_the_demo(port)
        (forwarder,) = (one for one in psutil.Process(running.pid).children() if "forward" in words_of(one))
        forwarder.kill()
        assert running.wait(timeout=MUCH) != 0
    assert f"  forwarder  stopped (rc=-9), see var/demo/{port}/log/forwarder.log\n" in said.read_text()
    assert "Traceback" not in said.read_text()


def first_link(browser: httpx.Client, pipeline: str) -> str:
    """The page of a transaction that has succeeded, once there is one."""
    found: list[str] = []

    def looks() -> bool:
        rows = browser.get("/admin/engines/transactionrecord/", params={"pipeline": pipeline, "state": "succeeded"})
        found[:] = re.findall(r"/admin/engines/transactionrecord/\d+/change/", rows.text)
        return bool(found)

    eventually(looks, f"{pipeline} has done something")
    return found[0]


def assert_the_shop_is_open(browser: httpx.Client) -> None:
    """Orders come in by themselves, and the pages do not show whose they are."""
    for pipeline in ("shop-orders", "shop-parcels", "notifications"):
        found = first_link(browser, pipeline)
        page = browser.get(found).text
        assert "@mail.example" not in page
        assert not any(name in page for name in CUSTOMERS)


def assert_output_is_short(port: int, said: Path) -> None:
    """One line per process with its state, and the banner last; what the processes print is in files."""
    eventually(lambda: "Ctrl-C ends everything" in said.read_text(), "the banner is printed")
    lines = [line for line in said.read_text().splitlines() if line.strip()]
    folder = f"var/demo/{port}"
    assert lines[2:-6] == [
        f"Ergon: starting {len(PROCESSES)} processes …",
        *(f"  {name:<10} running, log in {folder}/log/{name}.log" for name in PROCESSES),
    ], said.read_text()
    assert lines[-6] == f"  Ergon runs at   http://127.0.0.1:{port}/"
    assert lines[-1] == f"  Ctrl-C ends everything; the data stays in {folder}."
    assert '{"' not in said.read_text()
    log = ROOT / folder / "log" / "consumer.log"
    eventually(lambda: "transaction_failed" in log.read_text(), "the consumer's failures are in its log")


def assert_commands_reach_the_demo(port: int) -> None:
    """The line of the banner that points manage.py at the demo, typed in a shell."""
    clean = {"PATH": os.environ["PATH"]}
    typed = f'eval "$(make demo-env PORT={port})" && python manage.py status --json'
    told = subprocess.run(["/bin/sh", "-c", typed], cwd=ROOT, env=clean, capture_output=True, text=True, check=True)
    status = json.loads(told.stdout)
    assert status["database"].startswith("PostgreSQL ")
    assert "invoices" in {pipeline["name"] for pipeline in status["pipelines"]}
    assert (ROOT / "var" / "demo" / str(port) / "env.sh").stat().st_mode & 0o077 == 0


def test_without_a_demo_its_variables_are_one_clear_line(port: int) -> None:
    # As from a shell: a make that another make started tells its folder on standard output.
    shell = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    refused = subprocess.run(
        ["make", "demo-env", f"PORT={port}"], cwd=ROOT, capture_output=True, text=True, check=False, env=shell
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.splitlines()[0] == f"there is no demo: start it with make demo PORT={port}"


def test_a_taken_port_is_one_clear_line(port: int) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        command = [sys.executable, "-m", "ergon_site.demo", "--port", str(port)]
        refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert refused.returncode != 0
    assert refused.stderr.strip().startswith(f"ergon: port {port} cannot be used")
    assert len(refused.stderr.splitlines()) == 1


def test_a_port_that_is_none_is_refused_in_words() -> None:
    command = [sys.executable, "-m", "ergon_site.demo", "--port", "99999"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert refused.returncode == 2
    assert refused.stderr.endswith("argument --port: must be a whole number from 1 to 65,535, not '99999'\n")
