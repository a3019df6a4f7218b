"""A database that takes no changes: pages say so in words, nothing is half done, and everything can still be read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, OperationalError, connection
from django.test import Client
from django.utils import timezone

from engines import policies, rehearsals
from engines.dead_letters import bulk
from engines.dead_letters.bulk import Terms
from engines.models import BulkOperation, DeadLetter, PolicyRehearsal, TransactionRecord
from ergon_site.access.models import AuditEntry
from tests.api.api_clients import client_with, post, problem
from tests.console import records
from tests.console.test_forms_pages import ATTEMPTS, filled
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db(transaction=True)

SAID = "The database takes no changes: it is read-only, or its disk is full."
TABLES: list[Any] = [AuditEntry, BulkOperation, DeadLetter, PolicyRehearsal, TransactionRecord]
ON = {"postgresql": "SET default_transaction_read_only = on", "sqlite": "PRAGMA query_only = on"}
OFF = {"postgresql": "RESET default_transaction_read_only", "sqlite": "PRAGMA query_only = off"}


@contextmanager
def read_only() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(ON[connection.vendor])
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(OFF[connection.vendor])


@contextmanager
def full() -> Iterator[None]:
    """A file of SQLite's that may not grow, and has no page left."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE filling (bytes BLOB)")
        (most,) = cursor.execute("PRAGMA max_page_count").fetchone()
        (pages,) = cursor.execute("PRAGMA page_count").fetchone()
        cursor.execute(f"PRAGMA max_page_count = {pages}")
        for size in (1_000_000, 100_000, 4000):
            with suppress(OperationalError):
                while True:
                    cursor.execute("INSERT INTO filling VALUES (zeroblob(%s))", [size])
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA max_page_count = {most}")
            cursor.execute("DROP TABLE filling")


def counts() -> list[int]:
    return [table.objects.count() for table in TABLES]


@pytest.fixture
def person(client: Client, hire: Callable[[str], User]) -> Client:
    client.force_login(hire("administrator"))
    client.raise_request_exception = False
    return client


@pytest.fixture
def letters() -> list[DeadLetter]:
    policies.write("patient", {}, kind="consumer", by="ada", reason="for the slow provider")
    orders = make_pipeline("orders", policy="patient")
    return [records.fail(orders, {"n": number}) for number in range(3)]


def is_told(answer: Any) -> bool:
    """Whether a page of the console, with its menu, says that nothing was changed."""
    page = answer.content.decode()
    assert "Traceback" not in page
    assert "/admin/engines/pipeline/" in page
    return answer.status_code == 503 and SAID in page and "Nothing was changed" in page


def test_bulk_operations_exports_and_rehearsals_say_that_the_database_takes_no_changes(
    person: Client, letters: list[DeadLetter]
) -> None:
    before, selected = counts(), {"_selected_action": [str(letter.pk) for letter in letters]}
    sent = {**selected, "_form_submitted": "on", "reason": "the bank is back", "canary": "1", "rate": "10", "cap": ""}
    policy = policies.find("patient")
    group = f"/admin/engines/deadlettergroup/{letters[0].group_id}/"
    with read_only():
        assert is_told(person.post("/admin/engines/deadletter/selected/replay/", sent))
        assert is_told(person.post("/admin/engines/deadletter/selected/export/", sent))
        assert is_told(person.post(f"{group}replay-all/", sent))
        changed = filled(policy, **{ATTEMPTS: "2"})
        assert is_told(person.post(f"/admin/engines/policy/{policy.pk}/change/", changed))
        assert person.get(f"{group}change/").status_code == 200
        export = person.get("/admin/engines/deadletter/export.csv")
        assert letters[0].uid in b"".join(export).decode()
    assert counts() == before


def test_a_page_is_shown_although_its_session_cannot_be_renewed(
    person: Client, letters: list[DeadLetter], settings: Any
) -> None:
    session: Any = person.session
    session.set_expiry(timezone.now() + timedelta(minutes=5))
    session.save()
    settings.SESSION_COOKIE_AGE = 3600
    with read_only():
        answer = person.get("/admin/engines/deadletter/")
    assert answer.status_code == 200
    assert letters[0].uid in answer.content.decode()


@pytest.mark.parametrize("password", ["a right password", "a wrong one"])
def test_a_login_says_that_the_database_takes_no_changes(client: Client, password: str) -> None:
    User.objects.create_superuser("eve", password="a right password")
    client.raise_request_exception = False
    with read_only():
        assert client.get("/admin/login/").status_code == 200
        answer = client.post("/admin/login/", {"username": "eve", "password": password})
    page = answer.content.decode()
    assert answer.status_code == 503
    assert "Nobody can log in now" in page
    assert SAID in page
    assert "/admin/engines/pipeline/" not in page
    assert client.post("/admin/login/", {"username": "eve", "password": "a right password"}).status_code == 302


def test_what_runs_in_the_background_goes_on_when_changes_are_taken_again(letters: list[DeadLetter]) -> None:
    operation = bulk.begin("replay", letters[0].group_id, Terms(canary=3), by="ada", reason="the bank is back")
    asked = rehearsals.begin(policies.find("patient"), {"loop": {"limit": 9}}, by="ada")
    before = counts()
    with read_only():
        for chore in (bulk.advance, rehearsals.advance):
            with pytest.raises(DatabaseError):
                chore()
    assert counts() == before
    assert (bulk.advance(), rehearsals.advance()) == (3, 1)
    operation.refresh_from_db()
    asked.refresh_from_db()
    assert (operation.state, operation.done, asked.state) == ("running", 3, "done")


def test_the_api_says_so_too(letters: list[DeadLetter]) -> None:
    api = client_with("policies:read", "policies:write")
    with read_only():
        answer = post(api, "policies/patient/rehearsals", {"policy": {"loop": {"limit": 9}}})
    problem(answer, 503, "unavailable")
    assert answer.json()["detail"] == SAID


@pytest.mark.once
def test_a_full_disk_is_told_and_leaves_nothing_behind(person: Client, letters: list[DeadLetter]) -> None:
    before = counts()
    sent = {"_selected_action": [str(letters[0].pk)], "_form_submitted": "on", "reason": "x" * 900, "rate": "10"}
    with full():
        answers = [person.post("/admin/engines/deadletter/selected/discard/", sent) for _ in range(20)]
        done = [answer.status_code != 503 for answer in answers]
    assert is_told(answers[-1])
    assert BulkOperation.objects.count() == before[TABLES.index(BulkOperation)] + sum(done)
