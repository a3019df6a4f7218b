"""Workers with few database connections: what is claimed can be settled, whatever else is missing."""

import json
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.db import connection

from engines import workers
from engines.models import TransactionRecord
from tests.commands import hear
from tests.durable_transactions import consume, consumer, make_policy, states, submit, wait_until_started
from tests.factories import make_pipeline
from tests.processes import database_url, eventually, manage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]


@contextmanager
def role_with(connections: int) -> Iterator[str]:
    """The address of the database for a role that may have so many connections."""
    name, password = f"few_{secrets.token_hex(4)}", secrets.token_hex(8)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}' CONNECTION LIMIT {connections}")
        cursor.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}")
        cursor.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {name}")
    try:
        parts = urlsplit(database_url())
        host = f"{parts.hostname}:{parts.port}"
        yield urlunsplit(parts._replace(netloc=f"{name}:{password}@{host}"))
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP OWNED BY {name}")
            cursor.execute(f"DROP ROLE {name}")


def open_connections(address: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = %s", [urlsplit(address).username])
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("task", ["tests.act", "tests.act_async"])
def test_three_connections_are_enough_to_settle_everything(task: str) -> None:
    ids = submit(make_pipeline(task=task, policy=make_policy()), 100)
    with role_with(3) as address:
        run = consume("orders", "--drain", DATABASE_URL=address)
    assert run.code == 0, run.errors
    assert set(states(*ids)) == {"succeeded"}


def test_handlers_of_an_event_loop_ask_the_database_again_after_it_has_ended_their_connections() -> None:
    retried = {"steps": {"process": {"retry": {"max_attempts": 20, "backoff": 0.1}}}}
    pipeline = make_pipeline(task="tests.count_async", policy=make_policy("retried", retried))
    with consumer("orders") as process:
        wait_until_started(process)
        for _ in range(2):
            ids = submit(pipeline, 20)
            eventually(lambda: TransactionRecord.objects.filter(state__in=(0, 1)).count() == 0, "all have ended")
            assert set(states(*ids)) == {"succeeded"}
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )


@pytest.mark.parametrize("change", ["0 AND NEW.state = 1", "1 AND NEW.state = 2"], ids=["claims", "outcomes"])
def test_what_a_server_cannot_do_in_time_for_many_at_once_it_does_for_fewer(change: str) -> None:
    body = {"loop": {"concurrency": {"value": 50}, "batch": {"size": 200}}}
    pipeline = make_pipeline(task="tests.act_async", policy=make_policy("many", body))
    with consumer("orders", ERGON_DATABASE_TIMEOUT="1", ERGON_LEASE_SECONDS="30") as process:
        wait_until_started(process)
        quick = submit(pipeline, 500)  # so that it asks for many at once
        eventually(lambda: set(states(*quick)) == {"succeeded"}, "it has a pace")
        with slow_rows(change):
            slow = submit(pipeline, 200)
            eventually(lambda: set(states(*slow)) == {"succeeded"}, "these are done, too")


@contextmanager
def slow_rows(change: str) -> Iterator[None]:
    """The server takes long for each transaction whose state changes like this."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER slowly BEFORE UPDATE OF state ON engines_transactionrecord"
            f" FOR EACH ROW WHEN (OLD.state = {change}) EXECUTE FUNCTION slowly()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION slowly CASCADE")


def test_many_pipelines_need_no_more_connections_than_one() -> None:
    policy = make_policy()
    ids = [uid for number in range(60) for uid in submit(make_pipeline(f"orders-{number}", policy=policy), 5)]
    with role_with(workers.CONNECTIONS) as address, consumer(DATABASE_URL=address) as process:
        wait_until_started(process)
        eventually(lambda: set(states(*ids)) == {"succeeded"}, "everything is settled")
        assert open_connections(address) <= workers.CONNECTIONS
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "too many connections" not in errors


def test_a_worker_that_cannot_connect_what_settles_claims_nothing_and_ends_with_69() -> None:
    ids = submit(make_pipeline(policy=make_policy()), 20)
    with role_with(1) as address:
        run = consume("orders", "--drain", DATABASE_URL=address, ERGON_START_TIMEOUT="1")
    assert run.code == 69
    assert "too many connections" in run.errors
    assert "a worker needs 5" in run.errors
    assert set(TransactionRecord.objects.values_list("state", "attempts", "fencing_token")) == {(0, 0, 0)}
    assert set(states(*ids)) == {"pending"}


def test_a_worker_that_waits_for_connections_starts_when_there_are_enough() -> None:
    ids = submit(make_pipeline(policy=make_policy()), 20)
    with role_with(1) as address, consumer("orders", DATABASE_URL=address) as process:
        hear(process, "too many connections")
        assert set(states(*ids)) == {"pending"}
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER ROLE {urlsplit(address).username} CONNECTION LIMIT 5")
        wait_until_started(process)
        eventually(lambda: set(states(*ids)) == {"succeeded"}, "it works")


def test_a_worker_that_waits_for_connections_can_be_stopped() -> None:
    make_pipeline(policy=make_policy())
    with role_with(1) as address, consumer("orders", DATABASE_URL=address) as process:
        hear(process, "too many connections")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_nothing_is_claimed_while_outcomes_cannot_be_written() -> None:
    pipeline = make_pipeline(policy=make_policy())
    with role_with(3) as address, consumer("orders", DATABASE_URL=address) as process:
        wait_until_started(process)
        (before,) = submit(pipeline)
        eventually(lambda: states(before) == ["succeeded"], "it works")
        name = urlsplit(address).username
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER ROLE {name} CONNECTION LIMIT 1")
            cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [name])
        hear(process, "too many connections", "no transactions are claimed")
        ids = submit(pipeline, 20)
        assert set(states(*ids)) == {"pending"}
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER ROLE {name} CONNECTION LIMIT 5")
        eventually(lambda: set(states(*ids)) == {"succeeded"}, "it goes on by itself")
        assert set(TransactionRecord.objects.values_list("attempts", flat=True)) == {1}


def test_the_doctor_counts_connections() -> None:
    make_pipeline(policy=make_policy())
    with consumer("orders") as process:
        wait_until_started(process)
        done = manage("doctor", "--json")
    findings = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
    found = findings["connections"]
    assert found["level"] == "ok"
    assert "of 197 connections in use" in found["text"]
    assert "1 worker needs up to 5" in found["text"]
