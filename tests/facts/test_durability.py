"""What was confirmed stays: the disk has it, and nothing writes over it."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections, transaction

from ergon_site.access import audit
from ergon_site.access.database.group_commit import Lane
from ergon_site.access.models import AuditEntry
from facts import ledger, provisioning, retiring
from facts.ledger import postgresql
from facts.models import Fact
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def usual() -> Iterator[Any]:
    """Sets what new connections to the test's database begin with."""

    def execute(statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f'ALTER DATABASE "{connection.settings_dict["NAME"]}" {statement}')

    yield lambda value: execute(f"SET synchronous_commit = '{value}'")
    execute("RESET synchronous_commit")


def commit_of(wrapper: Any) -> str:
    with wrapper.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        return str(cursor.fetchone()[0])


def in_a_thread() -> str:
    """What a thread that has had no connection so far is given."""
    told = []

    def ask() -> None:
        told.append(commit_of(connections["default"]))
        connections.close_all()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return told[0]


@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("set_to", "used"),
    [
        ("off", "on"),
        ("local", "on"),
        ("remote_write", "on"),
        ("on", "on"),
        ("remote_apply", "remote_apply"),
    ],
)
def test_every_connection_waits_for_the_disk_whatever_the_database_is_set_to(
    usual: Any, set_to: str, used: str
) -> None:
    usual(set_to)
    lane = Lane()
    assert lane.carry_out(commit_of) == used
    lane.close()
    assert in_a_thread() == used


@pytest.mark.postgresql
def test_a_connection_that_was_lost_waits_for_the_disk_again(usual: Any) -> None:
    usual("off")
    lane = Lane()
    lane.carry_out(commit_of)
    lane.close()
    assert lane.carry_out(commit_of) == "on"
    lane.close()


REPLACE = {
    "sqlite": "INSERT OR REPLACE INTO {table} ({names}) SELECT {changed} FROM {table}",
    "postgresql": "INSERT INTO {table} ({names}) SELECT {changed} FROM {table} "
    "ON CONFLICT ({key}) DO UPDATE SET {column} = EXCLUDED.{column}",
}


@pytest.mark.parametrize(
    ("table", "column", "key"),
    [
        ("access_auditentry", "actor", "id"),
        ("facts_fact", "subject", 'boundary_id, "offset"'),
        ("facts_fact", "subject", "boundary_id, message_id"),
    ],
)
def test_an_insert_that_replaces_is_a_change_and_refused(table: str, column: str, key: str) -> None:
    make_boundary()
    ledger.append(draft(1))
    audit.record(actor="bob", action="x", target="y")
    model = Fact if table == "facts_fact" else AuditEntry
    before = list(model.objects.values())
    names = [f'"{field.column}"' for field in model._meta.concrete_fields if field.column]
    changed = ["'eve:1'" if name == f'"{column}"' else name for name in names]
    given = {"table": table, "key": key, "column": column, "names": ", ".join(names), "changed": ", ".join(changed)}
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(REPLACE[connection.vendor].format(**given))
    assert list(model.objects.values()) == before


@pytest.mark.postgresql
def test_the_server_ends_whoever_stands_still_with_a_boundary_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    make_boundary()
    limits: list[str] = []

    def look(*_: Any, **__: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            limits.append(cursor.fetchone()[0])

    def counted(*given: Any) -> Any:
        look()
        return count(*given)

    count = postgresql._counted
    monkeypatch.setattr(postgresql, "_counted", counted)
    ledger.append_many(draft(number) for number in range(postgresql.COPIED_FROM))
    monkeypatch.setattr(audit, "record", look)
    provisioning.close_gate(PLANT, OFFICE, by="ada", reason="the link is down")
    retiring.retire_boundary(PLANT, OFFICE, by="ada", reason="no longer used")
    assert limits == ["5s"] * 3
