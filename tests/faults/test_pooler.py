"""What works behind a pooler that shares server connections among transactions, with a real PgBouncer."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from engines import transactions
from engines.models import DeadLetter, TransactionRecord, Worker
from facts import ledger, provisioning
from facts.models import Fact
from tests import warm
from tests.durable_transactions import consume, consumer, make_policy, states, submit, wait_until_started
from tests.factories import make_pipeline
from tests.facts.drafts import OFFICE, PLANT, make_boundary
from tests.faults.pgbouncer import MAX_PREPARED_STATEMENTS, pgbouncer, require_pgbouncer, version
from tests.processes import PIPES, database_url, environment, eventually, manage

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

DECLARED = "?pooler=transaction"
UNAVAILABLE = os.EX_UNAVAILABLE


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One that the pooler's own user may pass through."""
    require_pgbouncer()
    path = Path(tempfile.mkdtemp(prefix="ergon-pooler-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def pooled(folder: Path, django_db_setup: None) -> Iterator[str]:
    """The test's database behind PgBouncer in transaction mode, as a plain address."""
    with pgbouncer(folder, database_url()) as address:
        yield address


def check_that_sessions_are_clean(address: str) -> None:
    """No session behind the pooler keeps anything of what was done in it."""
    with closing(psycopg.connect(address, autocommit=True, prepare_threshold=None)) as look:
        for _ in range(12):  # in turn: each session several times
            row = look.execute(
                "SELECT current_setting('enable_seqscan'), current_setting('enable_sort'),"
                " (SELECT count(*) FROM pg_prepared_statements WHERE name NOT LIKE 'PGBOUNCER%'),"
                " (SELECT count(*) FROM pg_cursors WHERE name <> ''), (SELECT count(*) FROM pg_listening_channels()),"
                " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"
            ).fetchone()
            assert row == ("on", "on", 0, 0, 0, 0)


@pytest.mark.parametrize(("query", "task"), [("", "tests.act"), (DECLARED, "tests.act"), (DECLARED, "tests.act_async")])
def test_consumers_work_behind_a_pooler_and_say_so_if_it_is_not_declared(pooled: str, query: str, task: str) -> None:
    pipeline = make_pipeline(task=task, policy=make_policy())
    ids = submit(pipeline, 200)
    bad = submit(pipeline, 2, fail="on purpose")
    patient = {"ERGON_LEASE_SECONDS": "60"}  # no lease is lost for being slow
    run = consume("orders", "--drain", "--processes", "2", DATABASE_URL=pooled + query, **patient)
    assert run.code == 0, run.errors
    assert set(states(*ids)) == {"succeeded"}
    assert set(states(*bad)) == {"failed"}
    assert DeadLetter.objects.count() == 2
    assert set(TransactionRecord.objects.values_list("attempts", "rescues")) == {(1, 0)}
    assert {worker.state for worker in Worker.objects.all()} == {"stopped"}
    is_hinted = "add ?pooler=transaction to DATABASE_URL" in run.errors
    assert is_hinted is (query == "")
    assert run.errors.count("arrivals_polled") == 2  # once in each process
    check_that_sessions_are_clean(pooled)


@pytest.mark.parametrize("task", ["tests.send", "tests.send_async"])
def test_producers_work_behind_a_pooler(pooled: str, task: str) -> None:
    pipeline = make_pipeline(task=task, direction="outbound")
    ids = submit(pipeline, 100)
    run = consume("orders", "--drain", command="produce", DATABASE_URL=pooled + DECLARED)
    assert run.code == 0, run.errors
    assert set(states(*ids)) == {"succeeded"}
    check_that_sessions_are_clean(pooled)


@pytest.mark.parametrize("query", ["", DECLARED], ids=["undeclared", "declared"])
def test_submitting_facts_and_calls_to_providers_work_behind_a_pooler(pooled: str, query: str) -> None:
    submitted, read = do_everything(pooled + query, 12)
    assert len(submitted) == len(set(submitted)) == 2 * 12 * 4
    assert TransactionRecord.objects.count() == len(submitted)
    assert Fact.objects.count() == 2 * 12 * 54
    assert read >= 2 * 12 * 54  # a page that both fetch before one confirms it is read twice
    check_that_sessions_are_clean(pooled)


def do_everything(address: str, count: int) -> tuple[list[str], int]:
    """Two processes with several threads each, on three sessions of the server; what they submitted, and read."""
    make_pipeline()
    make_boundary()
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    given = [str(count)], environment(DATABASE_URL=address)
    processes = [warm.start_module("tests.faults.behind_pooler", *given, **PIPES) for _ in range(2)]
    outputs = [process.communicate(timeout=100) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    told = [json.loads(output.splitlines()[-1]) for output, _ in outputs]
    return [uid for one in told for uid in one["submitted"]], sum(one["read"] for one in told)


def test_a_database_is_migrated_examined_and_maintained_through_a_pooler(pooled: str) -> None:
    with closing(psycopg.connect(database_url(), autocommit=True)) as direct:
        direct.execute("DROP DATABASE IF EXISTS pooled WITH (FORCE)")
        direct.execute("CREATE DATABASE pooled")
        address = pooled.rpartition("/")[0] + "/pooled" + DECLARED
        migrated = manage("migrate", "--verbosity", "0", DATABASE_URL=address)
        assert migrated.returncode == 0, migrated.stderr
        for command in (["maintain", "--once"], ["doctor", "--json"], ["status", "--json"]):
            done = manage(*command, DATABASE_URL=address)
            assert done.returncode == 0, done.stderr
            if command[0] == "doctor":
                assert "in transaction mode" in done.stdout
        direct.execute("DROP DATABASE pooled WITH (FORCE)")


def test_a_lone_transaction_is_found_behind_a_pooler_long_before_the_next_poll_of_its_loop(pooled: str) -> None:
    pipeline = make_pipeline(
        policy=make_policy("patient", {"loop": {"empty_queue": {"backoff": 600, "backoff_cap": 3600}}})
    )
    make_pipeline("paused", policy="patient")
    with consumer("orders", "paused", DATABASE_URL=pooled + DECLARED) as process:
        wait_until_started(process)
        for _ in range(3):
            (uid,) = submit(pipeline)
            eventually(lambda uid=uid: states(uid) == ["succeeded"], "it was found")  # type: ignore[misc]


def test_a_pooler_that_keeps_sessions_is_declared_and_then_everything_works_as_without(folder: Path) -> None:
    pipeline = make_pipeline(policy=make_policy())
    with pgbouncer(folder, database_url(), pool_mode="session", default_pool_size=30) as address:
        for query, is_hinted in (("?pooler=session", False), ("", True)):
            ids = submit(pipeline, 50)
            run = consume("orders", "--drain", DATABASE_URL=address + query)
            assert run.code == 0, run.errors
            assert set(states(*ids)) == {"succeeded"}
            assert ("?pooler=session" in run.errors) is is_hinted
            assert ("arrivals_polled" in run.errors) is is_hinted  # LISTEN works


def test_a_role_that_does_not_wait_for_the_disk_is_refused_behind_a_pooler_in_words(folder: Path) -> None:
    with _weak_commits(), pgbouncer(folder, database_url()) as address:
        for query in ("", DECLARED):
            done = manage("status", DATABASE_URL=address + query)
            assert done.returncode == UNAVAILABLE
            assert "synchronous_commit is off for this role" in done.stderr
            assert "SET synchronous_commit = on" in done.stderr
    done = manage("status", DATABASE_URL=database_url())
    assert done.returncode == 0


@contextmanager
def _weak_commits() -> Iterator[None]:
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        try:
            yield
        finally:
            cursor.execute(f'ALTER DATABASE "{name}" RESET synchronous_commit')


def passing_names_on() -> dict[str, int]:
    """Settings of a pooler that hands names of prepared statements to whatever session comes next."""
    return {"max_prepared_statements": 0} if version() >= MAX_PREPARED_STATEMENTS else {}


@pytest.mark.parametrize("is_oldest_next", [0, 1], ids=["the last one next", "the oldest one next"])
def test_the_doctor_tells_of_a_pooler_that_shares_what_it_was_declared_to_keep(
    folder: Path, is_oldest_next: int
) -> None:
    told = "declared as pooler=session, but it shares connections among transactions"
    with pgbouncer(folder, database_url(), server_round_robin=is_oldest_next) as address:
        assert told in manage("doctor", DATABASE_URL=address + "?pooler=session").stdout
    with pgbouncer(folder, database_url(), pool_mode="session", default_pool_size=20) as address:
        assert told not in manage("doctor", DATABASE_URL=address + "?pooler=session").stdout


def test_prepared_statements_are_refused_where_the_pooler_passes_their_names_on(folder: Path) -> None:
    with pgbouncer(folder, database_url(), **passing_names_on()) as address:
        done = manage("status", DATABASE_URL=address + DECLARED + "&prepared=1")
    assert done.returncode == UNAVAILABLE
    assert "prepared=1 needs PgBouncer 1.21 or newer" in done.stderr


def test_prepared_statements_work_where_the_pooler_knows_them(folder: Path) -> None:
    if version() < MAX_PREPARED_STATEMENTS:
        pytest.skip("needs PgBouncer 1.21 or newer")
    with pgbouncer(folder, database_url(), max_prepared_statements=20) as address:
        prepared = address + DECLARED + "&prepared=1"
        submitted, _ = do_everything(prepared, 12)
        run = consume("orders", "--drain", "--processes", "2", DATABASE_URL=prepared)
        assert run.code == 0, run.errors
        assert set(states(*submitted)) == {"succeeded"}
        check_that_sessions_are_clean(address)
        with closing(psycopg.connect(address)) as look:
            row = look.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement ILIKE %s", ["%insert%"])
            assert row.fetchone() != (0,)


@pytest.fixture
def undeclared() -> Iterator[None]:
    """This process may find out about a pooler, and forgets it afterwards."""
    settings = connection.settings_dict
    before = dict(settings)
    yield
    settings.clear()
    settings.update(before)
    connection.close()
    ledger.release_connection()


def forget_what_was_prepared() -> None:
    """As a pooler does that gives the client another session; psycopg would see through a plain DEALLOCATE."""
    with connection.cursor() as cursor:
        cursor.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")


def test_a_pooler_that_shares_what_it_was_declared_to_keep_is_known_by_its_symptom(folder: Path) -> None:
    with pgbouncer(folder, database_url(), **passing_names_on()) as address:
        submitted, _ = do_everything(address + "?pooler=session", 12)
    assert len(submitted) == len(set(submitted)) == TransactionRecord.objects.count() == 2 * 12 * 4
    assert Fact.objects.count() == 2 * 12 * 54


def test_a_symptom_within_a_transaction_rolls_it_back_with_a_hint(undeclared: None) -> None:
    make_pipeline()
    for _ in range(4):
        transactions.submit("orders", {})
    forget_what_was_prepared()
    with pytest.raises(OperationalError, match=r"add \?pooler=transaction"), transaction.atomic():
        transactions.submit("orders", {})
    assert TransactionRecord.objects.count() == 4
    transactions.submit("orders", {})
