"""A database that falls silent without a word: a frozen server, a link that swallows every packet."""

import json
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from engines.management.serving import LEAVING
from ergon_site import embedded
from tests.commands import hear, next_event, running as running_command
from tests.durable_transactions import consumer, wait_until_started
from tests.facts.drafts import draft
from tests.faults.relay import relay_to
from tests.processes import LIMIT, eventually, manage, serve

pytestmark = pytest.mark.once

QUICK = {"ERGON_DATABASE_TIMEOUT": "1", "ERGON_LEASE_SECONDS": "3"}
CONSUMERS = ["tests.act", "tests.wait_async"]

PREPARE = """
from engines import pipelines, policies, transactions
from tests.durable_transactions import QUICK
policies.write("quick", QUICK, kind="consumer", by="tests", reason="test")
pipelines.create("orders", pipelines.Plan(task={task!r}, policy="quick"), by="tests")
transactions.submit_many("orders", [transactions.Draft({{"until": {gate!r}, "cancelled": {gate!r}}})] * {count})
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A server of its own, with a migrated database to copy."""

    url: str
    folder: Path


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    path = Path(tempfile.mkdtemp(prefix="ergon-silence-"))
    path.chmod(0o755)  # the server's own user passes through
    with embedded.postgres(path, durable=False) as url:
        done = manage("migrate", "-v0", DATABASE_URL=url)
        assert done.returncode == 0, done.stderr
        yield Server(url, path)
    shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Scene:
    """A database of a test's own, and the folder where its transactions look for their gate."""

    url: str
    server: Server
    gate: Path


@pytest.fixture
def scene(running: Server, tmp_path: Path) -> Callable[..., Scene]:
    def make(*, task: str = "tests.act", count: int = 30) -> Scene:
        name, gate = f"scene_{secrets.token_hex(4)}", tmp_path / "gate"
        with closing(psycopg.connect(running.url.removesuffix("ergon") + "postgres", autocommit=True)) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE ergon")
        url = running.url.removesuffix("ergon") + name
        script = PREPARE.format(task=task, gate=str(gate), count=count)
        done = manage("shell", "-v0", "-c", script, DATABASE_URL=url)
        assert done.returncode == 0, done.stderr
        return Scene(url, running, gate)

    return make


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """The server and all its sessions stand still: the kernel still answers for them, they do not."""
    postmaster = next(server.folder.rglob("postmaster.pid"))
    process = psutil.Process(int(postmaster.read_text().splitlines()[0]))
    process.suspend()  # first, so that it starts no others
    family = process.children(recursive=True)
    for one in family:
        with suppress(psutil.NoSuchProcess):  # some come and go by themselves
            one.suspend()
    try:
        yield
    finally:
        for one in [*family, process]:
            with suppress(psutil.NoSuchProcess):
                one.resume()


def ask(url: str, question: str) -> Any:
    with closing(psycopg.connect(url, connect_timeout=5)) as connection:
        return connection.execute(question).fetchone()


def in_state(url: str, state: int) -> int:
    (count,) = ask(url, f"SELECT count(*) FROM engines_transactionrecord WHERE state = {state}")
    return int(count)


@pytest.mark.parametrize("task", CONSUMERS)
def test_a_worker_notices_a_frozen_server_and_goes_on_when_it_is_back(task: str, scene: Callable[..., Scene]) -> None:
    at = scene(task=task)
    url = at.url
    with consumer("orders", DATABASE_URL=url, **QUICK) as process:
        wait_until_started(process)
        eventually(lambda: in_state(url, 1) >= 10, "it has claimed")
        with frozen(at.server):
            hear(process, "has not answered within 1 s")
            at.gate.touch()
        eventually(lambda: in_state(url, 2) == 30, "everything has ended", within=2 * LIMIT)
        # Nothing ran twice. A claim whose answer was lost lapses: what it took was never begun, and is rescued.
        assert ask(url, "SELECT count(*), count(DISTINCT transaction_id) FROM engines_attempt") == (30, 30)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


@pytest.mark.parametrize("task", CONSUMERS)
def test_a_worker_notices_a_link_that_swallows_everything(task: str, scene: Callable[..., Scene]) -> None:
    at = scene(task=task)
    url = at.url
    with relay_to(url) as link, consumer("orders", DATABASE_URL=link.address, **QUICK) as process:
        wait_until_started(process)
        eventually(lambda: in_state(url, 1) >= 10, "it has claimed")
        link.silence()
        hear(process, "has not answered within 1 s")
        at.gate.touch()
        link.resume()
        eventually(lambda: in_state(url, 2) == 30, "everything has ended", within=2 * LIMIT)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


def test_work_that_is_alive_is_not_rescued_after_a_silence_that_was_longer_than_a_lease(
    scene: Callable[..., Scene],
) -> None:
    """By nobody: not by its own worker, not by another one, not by the process that does the chores."""
    changes = {**QUICK, "ERGON_LEASE_SECONDS": "20"}
    at = scene(count=4)
    url = at.url
    with consumer("orders", DATABASE_URL=url, **changes) as first:
        wait_until_started(first)
        eventually(lambda: in_state(url, 1) == 4, "it has claimed")
        with (
            consumer("orders", DATABASE_URL=url, **changes) as second,
            consumer(command="maintain", DATABASE_URL=url, **changes),
        ):
            wait_until_started(second)
            (owner,) = ask(url, "SELECT min(lease_owner) FROM engines_transactionrecord")
            with frozen(at.server):
                hear(first, "has not answered within")
                hear(second, "has not answered within")
                time.sleep(20.0)  # a lease: what is tested is that nothing happens after one
            hear(first, "database_answers_again")
            at.gate.touch()
            eventually(lambda: in_state(url, 2) == 4, "everything has ended")
        assert ask(url, "SELECT max(rescues), max(attempts) FROM engines_transactionrecord") == (0, 1)
        assert ask(url, "SELECT min(worker), max(worker) FROM engines_attempt") == (owner, owner)


def test_a_worker_that_is_stopped_while_its_database_is_silent_says_that_nothing_was_given_back(
    scene: Callable[..., Scene],
) -> None:
    at = scene()
    url = at.url
    with consumer("orders", "--grace", "0.5", DATABASE_URL=url, **QUICK) as process:
        wait_until_started(process)
        eventually(lambda: in_state(url, 1) >= 10, "it has claimed")
        with frozen(at.server):
            hear(process, "has not answered within 1 s")
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=90)
        assert process.returncode == 69, errors
        assert "the database does not answer" in errors
        last = [json.loads(line) for line in output.splitlines()][-1]
        assert (last["event"], last["given_back"], last["code"]) == ("stopped", 0, 69)


def test_a_worker_that_is_stopped_in_an_outage_waits_for_the_database_beyond_its_grace(
    scene: Callable[..., Scene],
) -> None:
    """For up to a lease, so that what has run need not run again."""
    at = scene(count=4)
    url = at.url
    changes = {**QUICK, "ERGON_LEASE_SECONDS": "60"}
    with consumer("orders", "--grace", "0.5", DATABASE_URL=url, **changes) as process:
        wait_until_started(process)
        eventually(lambda: in_state(url, 1) == 4, "it has claimed")
        with frozen(at.server):
            at.gate.touch()
            hear(process, "has not answered within 1 s")
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5 + LEAVING + 1)
        _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, errors
    assert in_state(url, 2) == 4


OVERDUE = """
from datetime import timedelta
from django.utils import timezone
from engines import schedules
from engines.models import Schedule
schedules.create("nightly", schedules.Plan(pipeline="orders", cron="0 2 * * *"), by="tests")
Schedule.objects.update(next_run_at=timezone.now() - timedelta(seconds=5))
"""
LOST = "the database does not answer"


def test_maintain_notices_a_frozen_server_and_goes_on_when_it_is_back(scene: Callable[..., Scene]) -> None:
    """Whoever leads and who stands by, each of them; both can be stopped before and after they have noticed."""
    at = scene(count=0)
    maintain: dict[str, Any] = {"command": "maintain", "DATABASE_URL": f"{at.url}?connect_timeout=5", **QUICK}
    with consumer(**maintain) as first, consumer(**maintain) as second, consumer(**maintain) as third:
        for process in (first, second, third):
            next_event(process, "leading", "standing_by")
        with frozen(at.server):
            third.send_signal(signal.SIGTERM)
            hear(first, LOST)
            hear(second, LOST)
            second.send_signal(signal.SIGTERM)
            for process in (second, third):
                _, errors = process.communicate(timeout=LIMIT)
                assert process.returncode == 0, errors
        next_event(first, "database_lost")
        next_event(first, "database_back")
        in_shell_of(at.url, OVERDUE)
        while next_event(first, "done")["chore"] != "scheduled":
            pass
        first.send_signal(signal.SIGTERM)
        _, errors = first.communicate(timeout=60)
    assert first.returncode == 0, errors


def test_a_single_round_ends_when_the_server_is_frozen_during_a_chore(scene: Callable[..., Scene]) -> None:
    at = scene(count=0)
    with closing(psycopg.connect(at.url)) as other:
        other.execute("LOCK engines_schedule IN ACCESS EXCLUSIVE MODE")
        with consumer("--once", command="maintain", DATABASE_URL=f"{at.url}?connect_timeout=5", **QUICK) as process:
            eventually(lambda: ask(at.url, "SELECT count(*) FROM pg_locks WHERE NOT granted") > (0,), "a chore waits")
            with frozen(at.server):
                _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 69, errors
    assert LOST in errors


STUCK = """
import sys
from django.db import connection
from engines.worker.maintenance import Chore, Maintenance

def chore(name, every):
    waits = iter([3600])  # seconds; afterwards longer than a statement of the leader may take
    def run():
        with connection.cursor() as cursor:
            say(name, "begins")
            cursor.execute("SELECT pg_sleep(%s)", [next(waits, 2)])
        return 1
    return Chore(name, every, run)

def say(*words):
    sys.stdout.write(" ".join(words) + "\\n")  # at once, beside another thread
    sys.stdout.flush()

def tell(event, **fields):
    say(event, *filter(None, [fields.get("chore")]))

Maintenance(tell, chores=[chore("quick", 1.0), chore("long", 600.0)]).run()
"""


def test_chores_that_wait_for_a_frozen_server_are_cut_and_done_again_whatever_time_they_take(
    scene: Callable[..., Scene],
) -> None:
    at = scene(count=0)
    with in_shell(STUCK, DATABASE_URL=at.url, **QUICK) as process:
        read_until(process, "quick begins", "long begins")
        with frozen(at.server):
            hear(process, LOST)
        read_until(process, "database_lost", "database_back", "leading", "done quick", "done long")


def read_until(process: subprocess.Popen[str], *lines: str) -> None:
    """Wait until a process has printed each of these, and no failure; one that does not in time is ended."""
    assert process.stdout is not None
    missing, limit = set(lines), threading.Timer(2 * LIMIT, process.kill)
    limit.start()
    try:
        while missing and (line := process.stdout.readline().rstrip()):
            assert not line.startswith("failed"), line
            missing.discard(line)
    finally:
        limit.cancel()
    assert not missing, missing


def test_a_web_process_whose_database_is_silent_is_not_ready_until_it_is_back(scene: Callable[..., Scene]) -> None:
    at = scene(count=0)
    with serve(None, "2", DATABASE_URL=at.url, **QUICK) as site, httpx.Client(base_url=site.url, timeout=LIMIT) as web:
        # The first answer needs every migration to be loaded, within the second that the database has.
        eventually(lambda: web.get("/readyz").status_code == 200, "it is ready")
        with frozen(at.server):
            answer = web.get("/readyz")
            assert (answer.status_code, answer.json()["checks"]["database"]) == (503, "does not answer")
        eventually(lambda: web.get("/readyz").status_code == 200, "it is ready again")


ORDERS = "/api/v1/pipelines/orders"
CLIENT = """
from ergon_site.access import clients
from tests.facts.drafts import OFFICE, PLANT
grant = clients.Grant(scopes=["transactions:read", "facts:append"], zones=[PLANT], target_zones=[OFFICE])
print(clients.create("tests", grant, by="tests").token.text)
"""


@contextmanager
def site_with_token(**changes: str) -> Iterator[httpx.Client]:
    """A web process with two threads, and a client of its API."""
    done = manage("shell", "-v0", "-c", CLIENT, **changes)
    assert done.returncode == 0, done.stderr
    headers = {"Authorization": f"Bearer {done.stdout.strip()}"}
    with (
        serve(None, "2", **changes) as site,
        httpx.Client(base_url=site.url, headers=headers, timeout=2 * LIMIT) as web,
    ):
        yield web


def test_requests_that_wait_for_a_silent_database_are_told_and_the_next_have_another_connection(
    scene: Callable[..., Scene],
) -> None:
    """All threads of the process wait; whoever waits for a database that answers others waits on."""
    at = scene(count=0)
    in_shell_of(at.url, BOUNDARY)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with site_with_token(DATABASE_URL=f"{at.url}?connect_timeout=5", **QUICK) as web, ThreadPoolExecutor(2) as pool:
        # Here and below: a fresh server may need more than its second, and may have kept the fact all the same.
        eventually(lambda: web.post("/api/v1/facts", json=draft(1)).status_code in {200, 201}, "a fact is in")
        with closing(psycopg.connect(at.url)) as other:
            other.execute("LOCK engines_pipeline IN ACCESS EXCLUSIVE MODE")
            asked = [pool.submit(web.get, ORDERS) for _ in range(2)]
            eventually(lambda: ask(at.url, waiting) == (2,), "both wait")
            # Longer than what a silent database is given: what is tested is that nothing happens.
            assert not wait(asked, 4 * float(QUICK["ERGON_DATABASE_TIMEOUT"])).done
            with frozen(at.server):
                assert [one.result().status_code for one in asked] == [503, 503]
                assert web.get(ORDERS).status_code == 503
                # By a connection of all threads.
                assert web.post("/api/v1/facts", json=draft(2)).status_code == 503
                page = web.get("/admin/", headers={"Cookie": f"sessionid={'x' * 32}"})
                assert (page.status_code, "The database is busy or does not answer" in page.text) == (503, True)
        eventually(lambda: web.get(ORDERS).status_code == 200, "it answers again")
        eventually(lambda: web.post("/api/v1/facts", json=draft(2)).status_code in {200, 201}, "the next fact is in")


BOUNDARY = "from tests.facts.drafts import make_boundary; make_boundary()"
APPEND = "from facts import ledger; from tests.facts.drafts import draft; ledger.append(draft({number}))"


def test_forward_notices_a_frozen_server_and_goes_on_when_it_is_back(scene: Callable[..., Scene]) -> None:
    at = scene(count=0)
    in_shell_of(at.url, BOUNDARY, APPEND.format(number=1))
    forward: dict[str, Any] = {"command": "forward", "DATABASE_URL": f"{at.url}?connect_timeout=5", **QUICK}
    with consumer(**forward) as first, consumer(**forward) as second:
        events = {next_event(process, "handed_over", "held")["event"] for process in (first, second)}
        assert events == {"handed_over", "held"}
        with closing(psycopg.connect(at.url)) as other:
            # One of them rests, the other waits in a handoff.
            other.execute("LOCK facts_forwardedfact IN EXCLUSIVE MODE")
            in_shell_of(at.url, APPEND.format(number=2))
            eventually(lambda: ask(at.url, "SELECT count(*) FROM pg_locks WHERE NOT granted") > (0,), "it waits")
            with frozen(at.server):
                hear(first, "has not answered within 1 s")
                hear(second, "has not answered within 1 s")
                second.send_signal(signal.SIGTERM)
                _, errors = second.communicate(timeout=LIMIT)
                assert second.returncode == 0, errors
        eventually(lambda: ask(at.url, "SELECT count(*) FROM facts_forwardedfact") == (2,), "all is handed over")
        first.send_signal(signal.SIGTERM)
        _, errors = first.communicate(timeout=60)
    assert first.returncode == 0, errors


def test_a_parent_of_processes_waits_no_longer_for_a_statement_than_its_children(scene: Callable[..., Scene]) -> None:
    at = scene()
    with consumer("orders", "--processes", "2", DATABASE_URL=at.url, **QUICK) as parent:
        started = wait_until_started(parent)
        eventually(lambda: in_state(at.url, 1) >= 10, "it has claimed")
        with closing(psycopg.connect(at.url)) as other:
            other.execute(f"SELECT FROM engines_worker WHERE id = {started['worker']} FOR UPDATE")
            psutil.Process(started["process"]).kill()
            hear(parent, "give back what a dead process held")
        hear(parent, "database_answers_again")
        at.gate.touch()
        eventually(lambda: in_state(at.url, 2) == 30, "everything has ended")
        parent.send_signal(signal.SIGTERM)
        _, errors = parent.communicate(timeout=LIMIT)
    assert parent.returncode == 0, errors


def in_shell_of(url: str, *scripts: str) -> None:
    done = manage("shell", "-v0", "-c", "\n".join(scripts), DATABASE_URL=url)
    assert done.returncode == 0, done.stderr


# The second is more than a connection takes up before the server reads.
SUBMITS = {
    "one": "transactions.submit('orders', {}, id='a')",
    "many": "transactions.submit_many('orders',"
    " ({'id': f'a{n or str()}', 'payload': 'x' * 20_000} for n in range(1_200)))",
}


@pytest.mark.parametrize("submit", SUBMITS.values(), ids=list(SUBMITS))
def test_whoever_submits_to_a_silent_database_is_told(scene: Callable[..., Scene], submit: str) -> None:
    """Whether it was kept is not known then: a server that wakes reads what had been sent to it."""
    at = scene(count=1)
    url = at.url
    quick: dict[str, Any] = {"DATABASE_URL": url, **QUICK}
    script = (
        "from django.db import connection\n"
        "from engines import transactions\n"
        "connection.ensure_connection()\n"
        "print('connected', flush=True)\n"
        "input()\n"
        "try:\n"
        f"    {submit}\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, flush=True)\n"
    )
    with in_shell(script, **quick) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == "connected\n"
        with frozen(at.server):
            program.stdin.write("go on\n")
            program.stdin.flush()
            assert program.stdout.readline() == "DatabaseTimeoutError\n"
    with in_shell("from engines import transactions; transactions.submit('orders', {}, id='a')", **quick) as program:
        assert program.wait(60) == 0
    assert ask(url, "SELECT count(*) FROM engines_transactionrecord WHERE uid = 'a'") == (1,)


@contextmanager
def in_shell(script: str, **changes: str) -> Iterator[subprocess.Popen[str]]:
    with running_command("shell", "-v0", "-c", script, **changes) as process:
        yield process


def until(seconds: float) -> Callable[[], bool]:
    ends_at = time.monotonic() + seconds
    return lambda: time.monotonic() < ends_at


@pytest.mark.soak
def test_servers_frozen_again_and_again_lose_nothing(scene: Callable[..., Scene]) -> None:
    at = scene(count=5000)
    url = at.url
    at.gate.touch()
    with consumer("orders", DATABASE_URL=url, **QUICK) as process:
        wait_until_started(process)
        with frozen(at.server):
            hear(process, "has not answered within 1 s")
        goes_on = until(60)
        while goes_on():
            # Longer than a statement may take. A thread that has not found back since the last time says nothing anew.
            with frozen(at.server):
                time.sleep(2)
            before = in_state(url, 2)
            eventually(lambda done=before: in_state(url, 2) > done or in_state(url, 2) == 5000, "it goes on")  # type: ignore[misc]
        eventually(lambda: in_state(url, 2) == 5000, "everything has ended", within=4 * LIMIT)
        assert ask(url, "SELECT count(*), count(DISTINCT transaction_id) FROM engines_attempt") == (5000, 5000)
