"""A request that is sent again under its key is carried out once, whatever happens in between."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client

from engines import transactions
from engines.models import TransactionRecord
from engines.worker import maintenance
from ergon_site.access import idempotency
from ergon_site.access.idempotency import Answer, Asked, InFlightError
from ergon_site.access.models import ApiClient, IdempotentRequest
from tests.api.api_clients import client_with, post, problem
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db
BODY = {"pipeline": "invoices", "payload": {"n": 1, "lines": [1, 2]}}
CRASHED = Now() - timedelta(seconds=61)


@pytest.fixture
def api() -> Client:
    make_pipeline("invoices")
    return client_with("transactions:submit")


def submit(api: Client, key: str = "k", body: Any = BODY, address: str = "transactions") -> Any:
    return post(api, address, body, Idempotency_Key=key)


def asked(digest: str = "d") -> Asked:
    return Asked(client_id=ApiClient.objects.get().pk, key="k", digest=digest)


def keep_one() -> Answer:
    return Answer(status=201, body={"id": transactions.submit("invoices", 1).id})


def test_the_second_answer_is_the_first_one(api: Client) -> None:
    first, second = submit(api), submit(api)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.json() == first.json()
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert TransactionRecord.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_project_may_begin_a_transaction_with_each_request(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)  # noqa: FBT003
    first, second = submit(api), submit(api)
    assert (first.status_code, second.status_code) == (201, 201), first.content
    assert second.headers["Idempotency-Replayed"] == "true"


def test_the_answer_stays_the_same_though_the_transaction_goes_on(api: Client) -> None:
    first = submit(api)
    transactions.cancel(first.json()["id"], by="ada", reason="test")
    assert submit(api).json() == {"id": first.json()["id"], "state": "pending"}


def test_spelling_makes_no_difference(api: Client) -> None:
    submit(api)
    spelt = json.dumps(dict(reversed(BODY.items())), indent=2)
    assert submit(api, body=spelt).headers["Idempotency-Replayed"] == "true"


def test_a_batch_is_kept_once_too(api: Client) -> None:
    batch = {"transactions": [BODY, BODY]}
    first, second = (submit(api, body=batch, address="transactions/batch") for _ in range(2))
    assert (first.status_code, second.json()) == (200, first.json())
    assert second.headers["Idempotency-Replayed"] == "true"
    assert TransactionRecord.objects.count() == 2


@pytest.mark.parametrize("change", [{"payload": {"n": 2}}, {"payload": {"n": 1.0, "lines": [1, 2]}}, {"id": "x"}])
def test_a_key_is_not_for_another_body(api: Client, change: dict[str, Any]) -> None:
    submit(api)
    problem(submit(api, body=BODY | change), 422, "idempotency_key_reused")
    assert TransactionRecord.objects.count() == 1


def test_a_key_is_not_for_another_address(api: Client) -> None:
    submit(api)
    body = {"transactions": [BODY]}
    problem(submit(api, body=body, address="transactions/batch"), 422, "idempotency_key_reused")


def test_every_client_has_its_own_keys(api: Client) -> None:
    submit(api)
    other = client_with("transactions:submit", name="shop")
    answer = submit(other, body=BODY | {"payload": 2})
    assert (answer.status_code, "Idempotency-Replayed" in answer.headers) == (201, False)


@pytest.mark.parametrize("key", ["", "x" * 201, "ä", "a\tb"])
def test_a_key_that_cannot_be_one_is_refused(api: Client, key: str) -> None:
    problem(submit(api, key), 400, "malformed_request")
    assert not TransactionRecord.objects.exists()


def test_a_request_in_flight_is_told_to_come_back(api: Client) -> None:
    submit(api)
    TransactionRecord.objects.all().delete()
    IdempotentRequest.objects.update(status=None, answer=None)
    answer = submit(api)
    problem(answer, 409, "idempotency_in_flight")
    assert answer.headers["Retry-After"] == "1"
    problem(submit(api, body=BODY | {"payload": 2}), 422, "idempotency_key_reused")
    assert not TransactionRecord.objects.exists()


def test_a_crashed_request_is_taken_over(api: Client) -> None:
    submit(api)
    TransactionRecord.objects.all().delete()
    IdempotentRequest.objects.update(status=None, answer=None, started_at=CRASHED)
    answer = submit(api)
    assert (answer.status_code, "Idempotency-Replayed" in answer.headers) == (201, False)
    assert submit(api).json() == answer.json()
    assert TransactionRecord.objects.count() == 1


def test_a_refused_request_leaves_its_key_free(api: Client) -> None:
    problem(submit(api, body=BODY | {"pipeline": "orders"}), 404, "pipeline_unknown")
    assert not IdempotentRequest.objects.exists()
    assert submit(api).status_code == 201


def test_a_fault_leaves_nothing_done_and_the_key_free(api: Client) -> None:
    def fail() -> Answer:
        keep_one()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        idempotency.answer(asked(), fail)
    assert not TransactionRecord.objects.exists()
    assert not idempotency.answer(asked(), keep_one).is_repeated


def test_without_a_key_nothing_is_noted(api: Client) -> None:
    assert [post(api, "transactions", BODY).status_code for _ in range(2)] == [201, 201]
    assert not IdempotentRequest.objects.exists()


def test_keys_are_forgotten_after_a_day(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "FORGOTTEN_AT_ONCE", 2)
    for key in "abcde":
        submit(api, key)
    IdempotentRequest.objects.exclude(key="e").update(started_at=Now() - timedelta(hours=24, seconds=1))
    IdempotentRequest.objects.filter(key="e").update(started_at=Now() - timedelta(hours=23))
    chore = next(chore for chore in maintenance.all_chores(30) if chore.name == "requests_forgotten")
    assert chore.run() == 4
    assert [request.key for request in IdempotentRequest.objects.all()] == ["e"]
    assert "Idempotency-Replayed" not in submit(api, "a").headers


def test_one_that_was_taken_for_crashed_and_goes_on_keeps_nothing(api: Client) -> None:
    def be_overtaken() -> Answer:
        IdempotentRequest.objects.update(token="somebody else's")
        return keep_one()

    with pytest.raises(InFlightError):
        idempotency.answer(asked(), be_overtaken)
    assert not TransactionRecord.objects.exists()


def send_at_once(api: Client, count: int) -> set[tuple[int, str | None]]:
    """The same request from so many threads, each with its own connection; their different answers."""
    together = Barrier(count)

    def send(_: int) -> tuple[int, str | None]:
        try:
            together.wait(10)
            answer = submit(api)
            return answer.status_code, answer.json().get("id")
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return set(pool.map(send, range(count)))


@pytest.mark.django_db(transaction=True)
def test_of_eight_at_once_one_is_carried_out(api: Client) -> None:
    answers = send_at_once(api, 8)
    kept = TransactionRecord.objects.get().uid
    assert {(201, kept)} <= answers <= {(201, kept), (409, None)}
    assert submit(api).json()["id"] == kept


@pytest.mark.django_db(transaction=True)
def test_however_often_it_is_taken_over_it_is_carried_out_once(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever is in flight counts as crashed at once, so that all of them take over from each other.
    monkeypatch.setattr(idempotency, "CRASHED_AFTER", timedelta(seconds=-60))
    for _ in range(3):
        TransactionRecord.objects.all().delete()
        IdempotentRequest.objects.all().delete()
        answers = send_at_once(api, 8)
        kept = TransactionRecord.objects.get().uid
        assert {(201, kept)} <= answers <= {(201, kept), (409, None)}
