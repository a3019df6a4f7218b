"""What consumers survive of their database: gone and back, read-only, and a host whose clock is wrong."""

import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import psycopg
import pytest
from django.db import connection, transaction

from engines import transactions
from engines.models import Attempt, TransactionRecord
from ergon_site import embedded
from tests.commands import hear
from tests.database import refusing
from tests.durable_transactions import consume, consumer, count, make_policy, states, submit, wait_until_started
from tests.factories import make_pipeline
from tests.processes import LIMIT, eventually, manage, wrong_clock

RUNNING = 1
CONSUMERS = ["tests.act", "tests.act_async"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that the server's own user may pass through."""
    path = Path(tempfile.mkdtemp(prefix="ergon-fault-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


PREPARE = """
from django.core.management import call_command
call_command("migrate", verbosity=0)
from engines import pipelines, policies, transactions
from tests.durable_transactions import QUICK
policies.write("quick", QUICK, kind="consumer", by="tests", reason="test")
pipelines.create("orders", pipelines.Plan(task="tests.act", policy="quick"), by="tests")
drafts = [*[{{"sleep": 0.005}}] * 300, *[{{"until": "{gate}"}}] * 300]
transactions.submit_many("orders", [transactions.Draft(draft) for draft in drafts])
"""


def ended(url: str) -> int:
    """How many have succeeded; -1 while the server is away."""
    try:
        with closing(psycopg.connect(url, connect_timeout=2)) as look:
            row = look.execute("SELECT count(*) FROM engines_transactionrecord WHERE state = 2").fetchone()
            return int(row[0]) if row else -1
    except psycopg.Error:
        return -1


@contextmanager
def killed_and_started_again(data: Path) -> Iterator[None]:
    """The server dies without a word; after the block the same one runs again on the same port."""
    server = psutil.Process(int((data / "postmaster.pid").read_text().splitlines()[0]))
    command, owner = server.cmdline(), server.uids().real
    family = [server, *server.children(recursive=True)]
    for process in family:
        process.kill()
    psutil.wait_procs(family, 10)
    yield
    # A connection that somebody else opens may have been given its port meanwhile: then it is tried again.
    eventually(lambda: starts_again(command, owner, data), "the server is back on its port")


def starts_again(command: list[str], owner: int, data: Path) -> bool:
    pid = data / "postmaster.pid"
    pid.unlink(missing_ok=True)
    again = subprocess.Popen(command, user=owner, cwd=data, stderr=subprocess.DEVNULL, start_new_session=True)
    eventually(lambda: again.poll() is not None or "ready" in (pid.read_text() if pid.exists() else ""), "it has begun")
    started.append(again)
    return again.poll() is None


started: list[subprocess.Popen[bytes]] = []


@pytest.mark.once
def test_a_consumer_waits_for_a_database_that_is_killed_and_goes_on_by_itself(folder: Path) -> None:
    with embedded.postgres(folder, durable=False) as url:
        done = manage("shell", "-v0", "-c", PREPARE.format(gate=folder / "gate"), DATABASE_URL=url)
        assert done.returncode == 0, done.stderr
        data = next(folder.rglob("postmaster.pid")).parent
        try:
            with consumer("orders", DATABASE_URL=url) as process:
                wait_until_started(process)
                eventually(lambda: ended(url) >= 50, "it is in mid-drain")
                with killed_and_started_again(data):
                    assert process.poll() is None
                    (folder / "gate").touch()
                eventually(lambda: ended(url) == 600, "everything has ended")
                process.send_signal(signal.SIGTERM)
                _, errors = process.communicate(timeout=LIMIT)
            assert process.returncode == 0, errors
            assert "database_refuses" in errors
            assert "database_answers_again" in errors
            assert len(errors.splitlines()) < 40  # one line as it goes and one as it comes, for each that noticed
        finally:
            for server in started:
                server.send_signal(signal.SIGINT)
                server.wait(LIMIT)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_database_that_takes_no_writes_is_said_clearly_and_waited_for() -> None:
    pipeline = make_pipeline(policy=make_policy())
    name = connection.settings_dict["NAME"]
    with consumer("orders") as process:
        wait_until_started(process)
        with connection.cursor() as cursor:
            cursor.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
            cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        try:
            (uid,) = submit(pipeline)
            hear(process, "read-only transaction")
            before = psutil.Process(process.pid).cpu_times().user
            time.sleep(1.5)
            assert process.poll() is None
            spent = psutil.Process(process.pid).cpu_times().user - before
            assert states(uid) == ["pending"]
            assert spent < 1  # it waits, it does not spin
        finally:
            with connection.cursor() as cursor:
                cursor.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
                cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        eventually(lambda: states(uid) == ["succeeded"], "it goes on by itself")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, errors
    assert errors.count("database_refuses") <= 12


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", CONSUMERS)
def test_what_a_pipeline_claims_after_its_end_is_given_back_while_others_of_its_process_go_on(task: str) -> None:
    brief = make_pipeline("brief", task, policy=make_policy("brief", {"loop": {"timeout": 3.0}}))
    other = make_pipeline("other", task, policy=make_policy())
    ids = submit(brief, 5)
    patient = {"ERGON_DATABASE_TIMEOUT": "600", "ERGON_LEASE_SECONDS": "30"}
    with consumer("brief", "other", **patient) as first:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE engines_transactionrecord IN EXCLUSIVE MODE")  # a look gets through, no claim
            wait_until_started(first)
            hear(first, "the pipeline 'brief' has ended by its policy's loop.timeout")
        with consumer("brief", "--timeout", "3600", **patient):
            eventually(lambda: set(states(*ids)) == {"succeeded"}, "another worker has done everything")
        good = submit(other)
        eventually(lambda: states(*good) == ["succeeded"], "the first one goes on")
    assert set(TransactionRecord.objects.values_list("rescues", flat=True)) == {0}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", CONSUMERS)
def test_a_worker_whose_time_is_up_ends_although_the_database_takes_no_claim(task: str) -> None:
    pipeline = make_pipeline(task=task, policy=make_policy())
    ids = submit(pipeline, 5)
    with refusing("engines_transactionrecord", "UPDATE"):
        run = consume("orders", "--timeout", "2")
    assert run.code == 0, run.errors
    assert set(states(*ids)) == {"pending"}


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", CONSUMERS)
def test_a_worker_that_is_stopped_gives_back_its_reserve_on_new_connections(task: str) -> None:
    pipeline = make_pipeline(task=task, policy=make_policy())
    ids = submit(pipeline, 20, sleep=3600)
    with consumer("orders", "--grace", "0.5", ERGON_LEASE_SECONDS="30") as process:
        wait_until_started(process)
        eventually(lambda: count(RUNNING) >= 10, "it has a reserve")
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 3, errors
    assert set(states(*ids)) == {"pending"}
    assert set(TransactionRecord.objects.values_list("attempts", "rescues")) == {(0, 0)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", CONSUMERS)
def test_a_worker_that_is_stopped_and_can_give_nothing_back_ends_with_69(task: str) -> None:
    """Also if its leases can still be renewed."""
    submit(make_pipeline(task=task, policy=make_policy()), 20, sleep=3600)
    with consumer("orders", "--grace", "0.5", ERGON_LEASE_SECONDS="30") as process:
        wait_until_started(process)
        eventually(lambda: count(RUNNING) >= 10, "it has a reserve")
        with refusing("engines_transactionrecord", "UPDATE OF state"):
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 69, errors
    assert f"{count(RUNNING)} transactions run again when their leases expire" in errors
    assert json.loads(output.splitlines()[-1])["given_back"] == 0


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("offset", ["+1h", "-1h"])
def test_a_host_whose_clock_is_wrong_by_an_hour_changes_nothing(offset: str) -> None:
    pipeline = make_pipeline(policy=make_policy())
    (due,) = submit(pipeline, sleep=0.01)
    soon = transactions.submit("orders", {}, available_at=datetime.now(UTC) + timedelta(minutes=30)).id
    (long,) = submit(pipeline, sleep=3.0)
    lease = {"ERGON_LEASE_SECONDS": "20"}  # none is lost for being slow
    with consumer("orders", **lease) as right:
        wait_until_started(right)
        run = consume("orders", "--drain", **lease, **wrong_clock(offset))
        eventually(lambda: states(long) == ["succeeded"], "the long one has ended")
    assert run.code == 0, run.errors
    assert states(due, soon, long) == ["succeeded", "pending", "succeeded"]
    assert set(TransactionRecord.objects.values_list("rescues", flat=True)) == {0}
    now = datetime.now(UTC)
    assert all(abs(now - attempt.started_at) < timedelta(minutes=5) for attempt in Attempt.objects.all())
