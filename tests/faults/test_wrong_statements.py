"""A statement that is wrong is told from a database that is away: one is a defect, the other passes."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from django.db import OperationalError, ProgrammingError, connection

from engines.worker.database_retry import DatabaseRetry
from ergon_site.access.database.group_commit import Lane
from ergon_site.access.models import AuditEntry
from ergon_site.dashboard import providers
from providers import calls
from providers.calls import journal
from providers.models import ProviderExecutionMetric
from tests.database import NO_SPACE, refusing
from tests.providers.scripted_providers import scripted

pytestmark = pytest.mark.django_db(transaction=True)
WRONG = ["SELECT 1 FROM nowhere", "SELECT gone FROM access_auditentry", "SELEC 1", "SELECT gone(1)"]


def run(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@contextmanager
def renamed(table: str) -> Iterator[None]:
    """A table that nobody finds: whatever names it is wrong."""
    run(f"ALTER TABLE {table} RENAME TO elsewhere")
    try:
        yield
    finally:
        run(f"ALTER TABLE elsewhere RENAME TO {table}")


@pytest.mark.parametrize("statement", WRONG)
def test_a_wrong_statement_is_no_outage(statement: str) -> None:
    with pytest.raises(ProgrammingError):
        run(statement)


def test_many_wrong_statements_are_none_either() -> None:
    with pytest.raises(ProgrammingError), connection.cursor() as cursor:
        cursor.executemany("INSERT INTO nowhere VALUES (%s)", [[1], [2]])


def test_a_full_disk_is_an_outage() -> None:
    with refusing("access_auditentry"), pytest.raises(OperationalError, match=NO_SPACE):
        AuditEntry.objects.create(actor="test", action="test")


def test_a_file_that_another_has_locked_or_that_may_only_be_read_is_an_outage() -> None:
    if connection.vendor != "sqlite":
        return
    with closing(connection.copy()) as other, other.cursor() as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        run("PRAGMA busy_timeout = 0")
        with pytest.raises(OperationalError, match="locked"):
            AuditEntry.objects.create(actor="test", action="test")
        cursor.execute("ROLLBACK")
    run("PRAGMA query_only = ON")
    with pytest.raises(OperationalError, match="readonly"):
        AuditEntry.objects.create(actor="test", action="test")
    connection.close()


def test_a_worker_does_not_wait_for_a_wrong_statement_to_come_right() -> None:
    with pytest.raises(ProgrammingError):
        DatabaseRetry("test").wait_out(lambda: run(WRONG[0]))


def test_the_ledger_does_not_connect_anew_for_a_wrong_statement() -> None:
    lane, tried = Lane(), []

    def work(wrapper: object) -> None:
        tried.append(wrapper)
        with wrapper.cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute("SELECT 1" if len(tried) == 1 else WRONG[0])

    lane.carry_out(work)
    with pytest.raises(ProgrammingError):
        lane.carry_out(work)
    lane.close()
    assert len(tried) == 2


@pytest.mark.parametrize("table", ["provider_gates", "provider_policies"])
def test_a_provider_is_not_called_by_wrong_statements(table: str) -> None:
    provider = scripted({"rank": 1}, on_store_failure="local")
    with renamed(table), pytest.raises(ProgrammingError):
        provider.ask()
    assert (provider.calls, calls.waiting()) == ([], 0)


def test_whoever_cannot_settle_by_a_wrong_statement_is_told_and_its_outcome_is_kept() -> None:
    provider = scripted({"rank": 1})
    with renamed("provider_minutes"):
        with pytest.raises(ProgrammingError):
            provider.ask()
        assert journal.replay() == 0
    assert calls.waiting() == 1
    [finding] = [one for one in providers.findings() if one.check == "journal of providers"]
    assert finding.level == "warning"
    assert journal.replay() == 1
    assert len(provider.calls) == ProviderExecutionMetric.objects.count() == 1


def test_an_outcome_that_finds_no_room_is_kept_without_an_error() -> None:
    provider = scripted({"rank": 1})
    with refusing("provider_execution_metrics"):
        assert not provider.ask().is_kept
    assert calls.waiting() == 1
    assert provider.ask().is_kept
    assert calls.waiting() == 0
