"""The way in: one transaction, or up to a thousand at once."""

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from engines.models import TransactionRecord
from ergon_site.access import api_identity
from tests.api.api_clients import client_with, pointers, post, problem
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db


@pytest.fixture
def api() -> Client:
    make_pipeline("invoices")
    return client_with("transactions:submit")


def submit(api: Client, **fields: Any) -> Any:
    return post(api, "transactions", {"pipeline": "invoices", "payload": {"n": 1}} | fields)


def test_a_submitted_transaction_is_kept_as_it_is(api: Client) -> None:
    answer = submit(
        api,
        id="in-1",
        payload={"total": 12.5, "lines": [1, None, "ä", 10**30]},
        priority=5,
        available_at="2030-01-31T12:00:00+02:00",
        dedupe_key="k",
        correlation_id="order-7",
        metadata={"tenant": "a"},
    )
    assert (answer.status_code, answer.json()) == (201, {"id": "in-1", "state": "pending"})
    record = TransactionRecord.objects.get()
    assert record.payload == {"total": 12.5, "lines": [1, None, "ä", 10**30]}
    assert (record.priority, record.dedupe_key, record.correlation_id) == (5, "k", "order-7")
    assert record.available_at.isoformat() == "2030-01-31T10:00:00+00:00"
    assert (record.metadata, record.source) == ({"tenant": "a"}, "client:erp")


def test_what_is_not_given_is_made_up(api: Client) -> None:
    answer = submit(api, id=None, priority=None, available_at=None, metadata=None)
    record = TransactionRecord.objects.get()
    assert (answer.status_code, answer.json()["id"]) == (201, record.uid)
    assert (record.priority, record.metadata) == (0, {})
    assert record.available_at <= timezone.now()


def test_a_payload_may_be_any_value(api: Client) -> None:
    payloads: list[Any] = [None, 0, "", [], {}, False]
    assert {submit(api, payload=payload).status_code for payload in payloads} == {201}
    assert list(TransactionRecord.objects.order_by("id").values_list("payload", flat=True)) == payloads


@pytest.mark.parametrize("field", ["id", "dedupe_key"])
def test_a_repeated_id_or_key_is_recognised(api: Client, field: str) -> None:
    first = submit(api, **{field: "once"})
    again = submit(api, **{field: "once"}, payload={"n": 2})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert TransactionRecord.objects.get().payload == {"n": 1}


def test_an_id_of_another_pipeline_is_taken(api: Client) -> None:
    make_pipeline("orders")
    submit(api, id="x")
    body = problem(submit(api, id="x", pipeline="orders"), 409, "id_taken")
    assert "'invoices'" in body["detail"]


def test_an_unknown_pipeline_is_named(api: Client) -> None:
    body = problem(submit(api, pipeline="ghost"), 404, "pipeline_unknown")
    assert body["detail"].startswith("There is no pipeline named 'ghost'")
    assert body["detail"].endswith(".")


@pytest.mark.parametrize(
    ("fields", "pointer", "code"),
    [
        ({"priority": "high"}, "/priority", "invalid_transaction"),
        ({"priority": True}, "/priority", "invalid_transaction"),
        ({"priority": 2**31}, "/priority", "invalid_transaction"),
        ({"id": ""}, "/id", "invalid_transaction"),
        ({"id": "x" * 201}, "/id", "invalid_transaction"),
        ({"id": 7}, "/id", "invalid_transaction"),
        ({"dedupe_key": []}, "/dedupe_key", "invalid_transaction"),
        ({"correlation_id": "x" * 201}, "/correlation_id", "invalid_transaction"),
        ({"metadata": [1]}, "/metadata", "invalid_transaction"),
        ({"available_at": "tomorrow"}, "/available_at", "invalid_request"),
        ({"available_at": "2026-01-31T12:00:00"}, "/available_at", "invalid_request"),
        ({"available_at": "9999-12-31T23:59:59-14:00"}, "/available_at", "invalid_request"),
        ({"available_at": "2026-13-31T12:00:00Z"}, "/available_at", "invalid_request"),
        ({"available_at": 5}, "/available_at", "invalid_request"),
        ({"pipeline": 5}, "/pipeline", "invalid_request"),
        ({"pipeline": "x" * 101}, "/pipeline", "invalid_request"),
        ({"prioritty": 5}, "/prioritty", "invalid_request"),
    ],
)
def test_the_field_at_fault_is_pointed_at(api: Client, fields: dict[str, Any], pointer: str, code: str) -> None:
    body = problem(submit(api, **fields), 400, code)
    assert pointers(body) == [pointer]
    assert not TransactionRecord.objects.exists()


def test_what_is_missing_is_named(api: Client) -> None:
    assert pointers(problem(post(api, "transactions", {}), 400, "invalid_request")) == ["/pipeline", "/payload"]
    assert pointers(problem(post(api, "transactions", [1]), 400, "invalid_request")) == [""]


def test_a_number_too_large_for_a_float_is_refused(api: Client) -> None:
    answer = post(api, "transactions", '{"pipeline": "invoices", "payload": [1e999]}')
    assert "1e999" in problem(answer, 400, "malformed_request")["detail"]


@pytest.mark.parametrize("field", ["payload", "metadata"])
def test_a_payload_over_the_limit_is_too_large(api: Client, field: str) -> None:
    body = problem(submit(api, **{field: {"text": "x" * 2**20}}), 413, "payload_too_large")
    assert pointers(body) == [f"/{field}"]
    assert f"the {field} has" in body["detail"].lower()


def test_a_payload_within_the_limit_is_kept_in_whatever_spelling_it_comes(api: Client) -> None:
    spelt = json.dumps({"pipeline": "invoices", "payload": "ä" * (2**19 - 10)})
    assert len(spelt) > 3_000_000
    assert post(api, "transactions", spelt).status_code == 201


def test_a_body_beyond_all_bounds_is_not_read(api: Client) -> None:
    problem(post(api, "transactions", b" " * (4 * 2**20 + 1)), 413, "payload_too_large")


def test_nesting_has_an_end(api: Client) -> None:
    deep = "[" * 198 + "]" * 198
    assert post(api, "transactions", f'{{"pipeline": "invoices", "payload": {deep}}}').status_code == 201
    for levels in (200, 900):
        body = f'{{"pipeline": "invoices", "payload": {"[" * levels}{"]" * levels}}}'
        problem(post(api, "transactions", body), 400, "malformed_request")


def test_a_batch_may_mix_pipelines_and_is_answered_in_its_order(api: Client) -> None:
    make_pipeline("orders")
    submit(api, id="known")
    items = [
        {"pipeline": "orders", "payload": 1, "id": "a"},
        {"pipeline": "invoices", "payload": 2, "id": "known"},
        {"pipeline": "orders", "payload": 3, "id": "b", "priority": 9},
        {"pipeline": "invoices", "payload": 4, "id": "c"},
        {"pipeline": "invoices", "payload": 4, "id": "c"},
    ]
    answer = post(api, "transactions/batch", {"transactions": items})
    assert answer.status_code == 200
    assert [(one["id"], one["is_new"]) for one in answer.json()["results"]] == [
        *(("a", True), ("known", False), ("b", True), ("c", True), ("c", False))
    ]
    assert {one["state"] for one in answer.json()["results"]} == {"pending"}
    kept = TransactionRecord.objects.order_by("uid").values_list("uid", "pipeline__name", "source")
    assert list(kept) == [
        ("a", "orders", "client:erp"),
        ("b", "orders", "client:erp"),
        ("c", "invoices", "client:erp"),
        ("known", "invoices", "client:erp"),
    ]


def test_a_batch_holds_a_thousand(api: Client) -> None:
    items = [{"pipeline": "invoices", "payload": number} for number in range(1001)]
    answer = post(api, "transactions/batch", {"transactions": items[:1000]})
    assert len({one["id"] for one in answer.json()["results"]}) == 1000
    for wrong in (items, [], "items", {"0": items[0]}):
        body = problem(post(api, "transactions/batch", {"transactions": wrong}), 400, "invalid_request")
        assert pointers(body) == ["/transactions"]
    assert TransactionRecord.objects.count() == 1000


@pytest.mark.parametrize(
    ("item", "status", "code", "pointer"),
    [
        ({"priority": "high"}, 400, "invalid_transaction", "/transactions/3/priority"),
        ({"colour": "red"}, 400, "invalid_request", "/transactions/3/colour"),
        ({"available_at": ""}, 400, "invalid_request", "/transactions/3/available_at"),
        ({"pipeline": "ghost"}, 404, "pipeline_unknown", "/transactions/3/pipeline"),
        ({"id": "theirs"}, 409, "id_taken", "/transactions/3/id"),
        ({"payload": "x" * 2**20}, 413, "payload_too_large", "/transactions/3/payload"),
    ],
)
def test_one_wrong_item_keeps_the_whole_batch_out(
    api: Client, item: dict[str, Any], status: int, code: str, pointer: str
) -> None:
    make_pipeline("orders")
    submit(api, id="theirs", pipeline="orders")
    items = [{"pipeline": name, "payload": 1} for name in ("invoices", "orders", "orders", "invoices", "orders")]
    items[3] = items[3] | item
    answer = post(api, "transactions/batch", {"transactions": items})
    assert pointers(problem(answer, status, code)) == [pointer]
    assert list(TransactionRecord.objects.values_list("uid", flat=True)) == ["theirs"]


def test_an_item_that_is_no_object_is_pointed_at(api: Client) -> None:
    body = problem(post(api, "transactions/batch", {"transactions": [{}, 5]}), 400, "invalid_request")
    assert pointers(body) == ["/transactions/0/pipeline", "/transactions/0/payload", "/transactions/1"]


def test_a_large_batch_is_let_in(api: Client) -> None:
    items = [{"pipeline": "invoices", "payload": "x" * 500_000} for _ in range(15)]
    answer = post(api, "transactions/batch", {"transactions": items})
    assert answer.status_code == 200


def test_a_submission_costs_one_look_at_the_token_and_one_statement(
    api: Client, django_assert_num_queries: Any
) -> None:
    submit(api)
    api_identity.forget()
    # SQLite looks up the pipeline by itself, inside a transaction.
    with django_assert_num_queries(2 if connection.vendor == "postgresql" else 5):
        submit(api)
