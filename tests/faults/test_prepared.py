"""Prepared statements that the server has forgotten: prepared again, once, wherever Ergon remembers one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.db import connection, transaction

from engines import transactions
from engines.models import TransactionRecord
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.database import pooler
from facts import ledger
from facts.ledger import postgresql
from facts.models import Fact
from providers.database import sql
from tests.factories import make_pipeline
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.processes import LIMIT, serve

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]
ROUNDS = 4
MANY = 2 * postgresql.COPIED_FROM
Lose = Callable[[], None]


def roll_back() -> None:
    """psycopg deallocates everything that the session has prepared, what others have prepared in it included."""
    with transaction.atomic():
        TransactionRecord.objects.exists()
        transaction.set_rollback(True)


def discard() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DISCARD ALL")


def deallocate_in_a_function() -> None:
    """Behind the back of psycopg, which looks at what each command says it has done."""
    with connection.cursor() as cursor:
        cursor.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")


def reconnect() -> None:
    connection.close()


LOSSES = [roll_back, discard, deallocate_in_a_function, reconnect]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """A connection on which nothing is prepared, and none that is taken for a pooler's afterwards."""
    connection.close()
    settings = dict(connection.settings_dict)
    yield
    connection.settings_dict.clear()
    connection.settings_dict.update(settings)
    connection.close()
    ledger.release_connection()


def prepared() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql")
        found: int = cursor.fetchone()[0]
        return found


def append(*names: str) -> list[int]:
    """Their offsets, appended on this thread's connection."""
    results = ledger.append_many([draft(name) for name in names])
    return [result.offset for result in results if isinstance(result, ledger.Appended)]


@pytest.mark.parametrize("lose", LOSSES)
def test_facts_are_appended_after_the_server_has_forgotten_the_statement(lose: Lose) -> None:
    make_boundary()
    make_pipeline()
    for _ in range(4):
        transactions.submit("orders", {})  # from here on psycopg prepares on this connection, too
    for number in range(ROUNDS):
        assert append(f"few-{number}") == [number * (1 + MANY)]
        assert len(append(*(f"many-{number}-{place}" for place in range(MANY)))) == MANY
        assert prepared()
        lose()
    assert Fact.objects.count() == ROUNDS * (1 + MANY)
    assert not pooler.is_shared(connection)


@pytest.mark.parametrize("lose", LOSSES)
def test_transactions_are_submitted_after_the_server_has_forgotten_the_statement(lose: Lose) -> None:
    make_pipeline()
    for _ in range(ROUNDS):
        for _ in range(4):
            transactions.submit("orders", {})
        assert prepared()
        lose()
    assert TransactionRecord.objects.count() == 4 * ROUNDS
    assert not pooler.is_shared(connection)


@pytest.mark.parametrize("lose", LOSSES)
def test_providers_are_called_after_the_server_has_forgotten_the_statement(lose: Lose) -> None:
    for _ in range(ROUNDS):
        for number in range(4):
            assert sql.rows("SELECT %(x)s::int", {"x": number}) == [(number,)]
        assert prepared()
        lose()
    assert not pooler.is_shared(connection)


def test_a_fact_in_the_callers_transaction_survives_the_loss() -> None:
    make_boundary()
    make_pipeline()
    for _ in range(4):
        transactions.submit("orders", {})
    for number in range(ROUNDS):
        with transaction.atomic():
            assert append(f"first-{number}", f"second-{number}") == [2 * number, 2 * number + 1]
        deallocate_in_a_function()
    assert Fact.objects.count() == 2 * ROUNDS
    assert not pooler.is_shared(connection)


def test_a_rollback_in_one_request_does_not_fail_the_batches_of_facts_after_it(tmp_path: Path) -> None:
    make_boundary()
    make_pipeline()
    grant = Grant(scopes=["facts:append", "transactions:submit", "platform"], zones=[PLANT], target_zones=[OFFICE])
    headers = {"Authorization": f"Bearer {clients.create('mes', grant, by='tests').token.text}"}
    with (
        serve(log=tmp_path / "log", threads="1") as site,
        httpx.Client(base_url=f"{site.url}/api/v1", headers=headers, timeout=LIMIT) as api,
    ):
        for number in range(3):
            _append_over_http(api, f"before-{number}")
        for number in range(4):
            answer = api.post("/transactions", json={"pipeline": "orders", "payload": {"n": number}})
            assert answer.status_code == 201, answer.text
        wrong = {"transactions": [{"pipeline": "orders", "payload": {}}, {"pipeline": "nobody", "payload": {}}]}
        assert api.post("/transactions/batch", json=wrong).status_code == 404
        for number in range(5):
            _append_over_http(api, f"after-{number}")
    assert "pooler_undeclared" not in (tmp_path / "log").read_text()
    assert Fact.objects.count() == 2 * (3 + 5)


def _append_over_http(api: httpx.Client, name: str) -> None:
    answer = api.post("/facts/batch", json={"facts": [draft(f"{name}-{part}") for part in range(2)]})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    assert [result["status"] for result in results] == [201, 201]


def test_what_is_lost_again_and_again_is_lost_by_a_pooler() -> None:
    """Each statement is refused as if it ran in another session, so plain ones are used from then on."""
    tries: list[str] = []

    def lost() -> str:
        tries.append("prepared")
        with connection.cursor() as cursor:
            cursor.execute("EXECUTE nobody_has_prepared_this")
        raise AssertionError

    def plain() -> str:
        tries.append("plain")
        return "done"

    assert pooler.carry_out(connection, lost, plain) == "done"
    assert pooler.carry_out(connection, lost, plain) == "done"
    assert tries == ["prepared", "prepared", "plain", "plain"]
    assert pooler.is_shared(connection)


def test_a_statement_that_is_wrong_for_another_reason_is_not_carried_out_again() -> None:
    tries: list[int] = []

    def wrong() -> None:
        tries.append(1)
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    with pytest.raises(Exception, match="division by zero") as caught:
        pooler.carry_out(connection, wrong, wrong)
    assert isinstance(caught.value.__cause__, psycopg.errors.DivisionByZero)
    assert len(tries) == 1
