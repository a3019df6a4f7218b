"""Submitting: what is kept, what is refused, and what is recognised."""

import sys
from collections import UserDict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from hypothesis import given, strategies as st
from psycopg.pq import TransactionStatus

from engines import transactions
from engines.models import TransactionRecord
from engines.transactions import Draft, IdTakenError, PipelineUnknownError, SubmissionError, payloads
from tests.durable_transactions import claim, states, submit
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db


def nested(levels: int, inmost: Any = 1) -> Any:
    for _ in range(levels):
        inmost = [inmost]
    return inmost


def test_a_submitted_transaction_waits_as_it_was_given() -> None:
    pipeline = make_pipeline()
    later = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    fields: dict[str, Any] = {"priority": 7, "dedupe_key": "k", "correlation_id": "c", "metadata": {"a": [1]}}
    submitted = transactions.submit("orders", {"n": 1}, id="one", available_at=later, **fields)
    record = TransactionRecord.objects.get(uid="one")
    assert submitted == ("one", "pending", True)
    assert (record.payload, record.pipeline, record.available_at) == ({"n": 1}, pipeline, later)
    assert {name: getattr(record, name) for name in fields} == fields


def test_without_an_id_it_gets_one_that_grows_with_time() -> None:
    make_pipeline()
    ids = [transactions.submit("orders", None).id for _ in range(5)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 5


@pytest.mark.parametrize("again", [{"id": "one"}, {"dedupe_key": "key"}])
def test_a_repeated_id_or_key_is_the_same_transaction(again: dict[str, str]) -> None:
    make_pipeline()
    transactions.submit("orders", 1, id="one", dedupe_key="key")
    assert transactions.submit("orders", 2, **again) == ("one", "pending", False)
    assert TransactionRecord.objects.get().payload == 1


def test_the_same_key_in_another_pipeline_is_another_transaction() -> None:
    make_pipeline("orders")
    make_pipeline("refunds")
    assert transactions.submit("orders", 1, dedupe_key="key").is_new
    assert transactions.submit("refunds", 1, dedupe_key="key").is_new


def test_an_id_of_another_pipeline_is_refused_by_name() -> None:
    make_pipeline("orders")
    make_pipeline("refunds")
    transactions.submit("orders", 1, id="one")
    with pytest.raises(IdTakenError, match="belongs to a transaction of the pipeline 'orders'"):
        transactions.submit("refunds", 1, id="one")


def test_an_unknown_pipeline_is_refused_by_its_name() -> None:
    with pytest.raises(PipelineUnknownError, match="there is no pipeline named 'nowhere'"):
        transactions.submit("nowhere", 1)


def test_thousands_are_kept_in_order_with_their_repeats_recognised() -> None:
    pipeline = make_pipeline()
    drafts = [Draft(number, id=f"t{number:04}") for number in range(2500)]
    assert [one.is_new for one in transactions.submit_many("orders", drafts)] == [True] * 2500
    again = transactions.submit_many("orders", [*drafts[-2:], Draft(1, id="new"), Draft(2, id="new")])
    assert [(one.id, one.is_new) for one in again] == [
        ("t2498", False),
        ("t2499", False),
        ("new", True),
        ("new", False),
    ]
    assert [one.id for one in claim(pipeline, 3)] == ["t0000", "t0001", "t0002"]


def test_thousands_before_a_refused_draft_are_kept() -> None:
    make_pipeline()
    drafts = [*map(Draft, range(1500)), Draft(float("nan"))]
    with pytest.raises(SubmissionError, match="the payload is not JSON") as refusal:
        transactions.submit_many("orders", drafts)
    assert refusal.value.index == 1500
    assert TransactionRecord.objects.count() == 1000


def test_thousands_before_the_fault_of_their_source_are_kept() -> None:
    make_pipeline()
    with pytest.raises(ZeroDivisionError):
        transactions.submit_many("orders", (Draft(1 / (1500 - number)) for number in range(2000)))
    assert TransactionRecord.objects.count() == 1000


def test_a_source_may_ask_the_database_while_it_is_submitted() -> None:
    make_pipeline()
    source = (Draft(TransactionRecord.objects.exists()) for _ in range(2100))
    assert len(transactions.submit_many("orders", source)) == 2100
    assert TransactionRecord.objects.filter(payload=True).exists()


@pytest.mark.postgresql
def test_the_next_thousand_are_encoded_while_the_server_works() -> None:
    make_pipeline()

    class Metadata(UserDict[str, int]):
        def keys(self) -> Any:
            connected: Any = connection.connection
            asked.append(connected.info.transaction_status is TransactionStatus.ACTIVE)
            return super().keys()

    asked: list[bool] = []
    transactions.submit_many("orders", [Draft(number, metadata=Metadata()) for number in range(1001)])
    assert asked == [False] * 1000 + [True]


def test_it_is_kept_or_forgotten_with_the_callers_transaction() -> None:
    make_pipeline()
    with transaction.atomic():
        transactions.submit("orders", 1)
        transaction.set_rollback(True)
    assert not TransactionRecord.objects.exists()


@pytest.mark.parametrize(
    ("draft", "problem"),
    [
        ({"id": ""}, "id must be a text of 1 to 200 characters"),
        ({"id": "x" * 201}, "id must be a text of 1 to 200 characters"),
        ({"dedupe_key": "a\x00b"}, "dedupe_key must be a text"),
        ({"priority": 1.5}, "priority must be a whole number"),
        ({"priority": 2**31}, "priority must be a whole number"),
        ({"available_at": datetime(2030, 1, 1)}, "available_at must have a time zone"),  # noqa: DTZ001
        ({"available_at": datetime.max.replace(tzinfo=UTC)}, "available_at is beyond the calendar"),
        ({"available_at": datetime.min.replace(tzinfo=UTC)}, "available_at is beyond the calendar"),
        ({"metadata": [1]}, "metadata must be an object"),
        ({"payload": float("nan")}, "the payload is not JSON"),
        ({"payload": {"a": {1, 2}}}, "the payload is not JSON"),
        ({"payload": {1: 2}}, "the key 1 is not a text"),
        ({"payload": "a\x00b"}, "U\\+0000"),
        ({"payload": "\ud800"}, "the payload is not JSON"),
        ({"payload": nested(201)}, "the payload is nested too deeply: it has more than 200 levels"),
        ({"payload": nested(600, "\x00")}, "the payload is nested too deeply"),
        ({"payload": nested(5000)}, "the payload is nested too deeply"),
        ({"metadata": {"deep": nested(200)}}, "the metadata is nested too deeply"),
        ({"payload": [1e308] * 149_786}, "the payload has more than 1,048,576 bytes once its numbers are written out"),
        ({"payload": [5e-324] * 116_508}, "the payload has more than 1,048,576 bytes once its numbers are written out"),
        ({"payload": "x" * 2**20}, "the payload has 1,048,578 bytes; the limit is 1,048,576"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_field_and_nothing_is_kept(draft: dict[str, Any], problem: str) -> None:
    make_pipeline()
    good = Draft(1)
    with pytest.raises(SubmissionError, match=problem) as refusal:
        transactions.submit_many("orders", [good, Draft(**{"payload": 1, **draft})])
    assert refusal.value.index == 1
    assert not TransactionRecord.objects.exists()


@pytest.mark.once
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("abcé", max_size=3), inner),
        max_leaves=8,
    )
)
def test_a_payload_comes_back_as_it_went_in(payload: Any) -> None:
    text = payloads.encode(payload, limit=10**6)
    assert payloads.decode(text) == payload


def test_a_payload_of_huge_numbers_and_odd_texts_survives_the_database() -> None:
    pipeline = make_pipeline()
    payload = {"big": 2**200, "text": "é\u2028\\u0000 \"'", "deep": [[[{}]]], "null": None, "zero": 0, "no": False}
    transactions.submit("orders", payload)
    assert claim(pipeline)[0].payload == payload


@pytest.mark.parametrize(
    "payload",
    [
        [1e16, -1e22, 1.5e300, 1.2345678901234567e19, sys.float_info.max, {"2e20": 3e21}],
        [1e-5, -1.25e-7, 5e-324, 0.1, 1.0, 1e15],
        ["3e8", "a:1e16", 'quoted \\" [1e16', "\\\\", {"[1e16": 1e16}],
        [10**16, 2**64, -(10**30)],
        1e16,
    ],
)
def test_numbers_stay_what_they_were(payload: Any) -> None:
    pipeline = make_pipeline()
    transactions.submit("orders", payload)
    kept = claim(pipeline)[0].payload
    assert repr(kept) == repr(payload)


def test_a_payload_of_the_deepest_that_is_taken_is_run_and_shown(browse: Client) -> None:
    pipeline = make_pipeline()
    deepest = nested(200, 10**20)
    uid = transactions.submit("orders", deepest).id
    assert claim(pipeline)[0].payload == deepest
    assert uid in browse.get(reverse("admin:engines_transactionrecord_changelist")).content.decode()


def test_a_delayed_one_waits_for_its_time() -> None:
    pipeline = make_pipeline()
    now = datetime.now(UTC)
    transactions.submit("orders", 1, id="later", available_at=now + timedelta(hours=1))
    transactions.submit("orders", 1, id="past", available_at=now - timedelta(hours=1))
    assert [one.id for one in claim(pipeline)] == ["past"]
    assert states("later") == ["pending"]


def test_a_pipelines_priority_is_that_of_transactions_without_one() -> None:
    pipeline = make_pipeline(priority=5)
    transactions.submit("orders", 1, id="usual")
    transactions.submit("orders", 1, id="low", priority=0)
    transactions.submit("orders", 1, id="high", priority=9)
    assert [one.id for one in claim(pipeline)] == ["high", "usual", "low"]


def test_submitting_costs_one_statement(django_assert_num_queries: Any) -> None:
    pipeline = make_pipeline()
    statements = 1 if transaction.get_connection().vendor == "postgresql" else 4
    with django_assert_num_queries(statements):
        submit(pipeline, 1)
