"""Who holds an old snapshot is named, with what to do, and never with the text of a query."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest
from django.db import connection
from django.test import Client

from engines.reads import old_snapshots
from engines.reads.doctor.finding import Level
from engines.reads.doctor.ground import snapshots
from tests.factories import make_pipeline
from tests.processes import database_url

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

SECRET = "a payload"


@contextmanager
def session(*statements: str, address: str = "") -> Iterator[int]:
    """A session in a transaction, and its process id."""
    with closing(psycopg.connect(address or database_url(), application_name="report")) as open_for_long:
        for statement in statements:
            open_for_long.execute(statement)
        yield open_for_long.info.backend_pid


READS = ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", f"SELECT '{SECRET}'")
WRITES = ("CREATE TEMPORARY TABLE mine (n int)", f"SELECT '{SECRET}'")


@pytest.mark.parametrize("statements", [READS, WRITES])
def test_a_session_is_named_with_its_user_application_address_and_time(
    monkeypatch: pytest.MonkeyPatch, statements: tuple[str, ...]
) -> None:
    monkeypatch.setattr(old_snapshots, "LONG", 0.0)
    with session(*statements) as pid:
        (holder,) = (one for one in old_snapshots.holders() if one.name == str(pid))
    user = connection.settings_dict["USER"]
    assert holder.title == f"Session {pid} of {user} holds an old snapshot"
    assert holder.detail.startswith("application report, from 127.0.0.1, idle in transaction, open for ")
    assert holder.remedy.endswith(f"SELECT pg_terminate_backend({pid})")
    assert SECRET not in repr(holder)


def test_a_transaction_that_is_young_or_holds_nothing_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with session(*READS), session("SELECT 1") as idle:
        assert list(old_snapshots.holders()) == []
        monkeypatch.setattr(old_snapshots, "LONG", 0.0)
        assert str(idle) not in [one.name for one in old_snapshots.holders()]


@pytest.mark.parametrize(("very_long", "level"), [(3600.0, Level.WARNING), (0.0, Level.PROBLEM)])
def test_the_doctor_names_it_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, very_long: float, level: Level
) -> None:
    monkeypatch.setattr(old_snapshots, "LONG", 0.0)
    monkeypatch.setattr(old_snapshots, "VERY_LONG", very_long)
    with session(*READS) as pid:
        (finding,) = (one for one in snapshots() if f"Session {pid}" in one.text)
    assert finding.level is level
    assert "pg_terminate_backend" in finding.hint
    assert SECRET not in repr(finding)


def test_a_calm_database_is_well() -> None:
    assert [(one.level, one.text) for one in snapshots()] == [
        (Level.OK, "no transaction has been open for 5 min"),
    ]


def test_the_dashboard_has_it_among_what_needs_attention(monkeypatch: pytest.MonkeyPatch, browse: Client) -> None:
    monkeypatch.setattr(old_snapshots, "LONG", 0.0)
    make_pipeline()
    with session(*READS) as pid:
        page = browse.get("/admin/").content.decode()
    assert f"Session {pid} of" in page
    assert f"pg_terminate_backend({pid})" in page
    assert SECRET not in page


def test_without_the_right_to_see_others_it_says_what_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_snapshots, "MANY", -1)
    with session(*READS) as pid, _as_plain_user():
        found = list(snapshots())
    named, unseen = (next(one for one in found if words in one.text) for words in (f"Session {pid}", "cannot see"))
    assert "application report" in named.text
    assert "transactions old" in named.text
    assert "127.0.0.1" not in named.text
    assert unseen.hint.startswith("GRANT pg_read_all_stats TO ")


@contextmanager
def _as_plain_user() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE tests_plain")
        try:
            cursor.execute("SET SESSION AUTHORIZATION tests_plain")
            yield
        finally:
            cursor.execute("RESET SESSION AUTHORIZATION")
            cursor.execute("DROP ROLE tests_plain")
