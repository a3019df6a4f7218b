"""What is kept of errors and results: under the right name, as JSON, without secrets, and said where it is less."""

from typing import Any

import pytest
from django.test import Client

from engines import transactions
from engines.core.errors import wrapped
from engines.core.outcome import Failure, Success
from engines.models import Attempt, DeadLetter, DeadLetterGroup, Pipeline, TransactionRecord
from engines.reads import explain
from engines.transactions.payloads import encode_result
from tests.api.api_clients import client_with
from tests.commands import run
from tests.console.records import read
from tests.durable_transactions import claim, consume, failed, make_policy, settle, submit
from tests.factories import make_pipeline
from tests.tasks import ODD, OrderRejected

ENGINES = [
    ("tests.act", "inbound"),
    ("tests.act_async", "inbound"),
    ("tests.send", "outbound"),
    ("tests.send_async", "outbound"),
]
WRITTEN_OUT = "it has more than 1,000,000 bytes once its numbers are written out, which is the limit"
TOO_LARGE = "not kept: it has 1,048,578 bytes; the limit is 1,048,576"
REPLACED = "kept with changes: U+0000 and halves of surrogate pairs, which no database text can hold, were replaced"
TOO_LONG = "kept with changes: whole numbers of more than 4,200 digits became text"
KEPT: dict[str, tuple[Any, str | None]] = {
    "long number": (ODD["long number"], None),
    "half a character": ({"name": "a?", "total": 3}, REPLACED),
    "nul": ({"a\ufffdb": ["\ufffd"]}, REPLACED),
    "nan": ({"rate": "nan", "missing": None}, None),
    "endless number": ({"total": hex(10**5000)}, TOO_LONG),
    "large": (None, TOO_LARGE),
}


def drained(task: str, direction: str, *payloads: dict[str, Any]) -> list[TransactionRecord]:
    """What has become of these, after a process of the engine has run them with three attempts."""
    thrice = {"retry": {"max_attempts": 3}}
    kind, step = ("consumer", "process") if direction == "inbound" else ("producer", "produce")
    policy = make_policy("thrice", {"steps": {step: thrice, "success": thrice}}, kind)
    pipeline = make_pipeline(task=task, direction=direction, policy=policy)
    ids = [submit(pipeline, **payload)[0] for payload in payloads]
    command = "consume" if direction == "inbound" else "produce"
    assert consume(pipeline.name, "--drain", command=command).code == 0
    return [transactions.find(uid) for uid in ids]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("task", "direction"), ENGINES)
def test_rows_and_dead_letters_name_the_error_that_the_task_raised(task: str, direction: str) -> None:
    message = "order 7 has no account"
    [record] = drained(task, direction, {"refuse": message})
    [attempt] = Attempt.objects.filter(transaction_id=record.pk)
    letter, group = DeadLetter.objects.get(), DeadLetterGroup.objects.get()
    assert record.error is not None
    assert (record.error["type"], record.error["message"], record.error["category"]) == (
        *("OrderRejected", message),
        "BUSINESS",
    )
    assert {attempt.error_type, letter.error_type, group.error_type} == {"OrderRejected"}
    for text in (attempt.traceback, letter.traceback):
        assert text is not None
        assert text.splitlines()[-1] == f"tests.tasks.OrderRejected: {message}"
        assert "KeyError: 'account'" in text


@pytest.mark.django_db(transaction=True)
def test_a_decision_of_a_success_handler_is_tried_once() -> None:
    [record] = drained("tests.handled", "inbound", {"then": {"refuse": "too late"}})
    steps = list(
        Attempt.objects.order_by("delivery", "step", "number").values_list("step", "number", "outcome", "error_type")
    )
    assert steps == [(1, 1, 0, None), (3, 1, 1, "OrderRejected"), (4, 1, 0, None)]
    assert (record.word, record.error and record.error["step"], DeadLetter.objects.get().category) == (
        *("failed", "success"),
        "BUSINESS",
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("task", "direction"), ENGINES)
def test_results_are_kept_as_json_and_what_cannot_be_kept_is_said(task: str, direction: str) -> None:
    records = drained(task, direction, *({"odd": name} for name in KEPT))
    assert {record.word for record in records} == {"succeeded"}
    assert {name: (one.result, one.result_note) for name, one in zip(KEPT, records, strict=True)} == KEPT
    assert {record.failure for record in records} == {None}


@pytest.fixture
def orders() -> Pipeline:
    return make_pipeline()


def succeeded(pipeline: Pipeline, result: Any) -> TransactionRecord:
    (uid,) = submit(pipeline)
    assert settle(claim(pipeline), Success(result)) == []
    return transactions.find(uid)


@pytest.mark.django_db
def test_a_result_that_is_not_kept_is_said_wherever_the_transaction_is_shown(orders: Pipeline, browse: Client) -> None:
    record = succeeded(orders, ODD["large"])
    answer = client_with("transactions:read").get(f"/api/v1/transactions/{record.uid}").json()
    assert (answer["state"], answer["result"], answer["result_note"], answer["error"]) == (
        *("succeeded", None),
        *(TOO_LARGE, None),
    )
    explained = explain.explain(record.uid)
    assert explained["sentence"].endswith(f"; its result is {TOO_LARGE}")
    assert (explained["facts"]["result_note"], explained["error"]) == (TOO_LARGE, None)
    assert TOO_LARGE in run("explain", record.uid)
    page = read(browse, f"/admin/engines/transactionrecord/{record.pk}/change/")
    assert "Not kept: it has 1,048,578 bytes" in page
    assert 'id="error"' not in page


@pytest.mark.django_db
def test_a_result_that_is_kept_with_changes_is_shown_with_what_was_changed(orders: Pipeline, browse: Client) -> None:
    record = succeeded(orders, ODD["half a character"])
    page = read(browse, f"/admin/engines/transactionrecord/{record.pk}/change/")
    assert "Kept with changes: U+0000 and halves" in page
    assert "a?" in page
    whole = succeeded(orders, {"a": 1})
    assert (whole.result_note, explain.explain(whole.uid)["facts"]["result_note"]) == (None, None)


class Unwritable(dict[str, Any]):
    """A result that cannot even be looked at."""

    def items(self) -> Any:
        msg = "no items today"
        raise LookupError(msg)


def endless() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def nested(levels: int) -> Any:
    inmost: Any = "inmost"
    for _ in range(levels):
        inmost = (inmost,)
    return inmost


@pytest.mark.parametrize(
    ("result", "note"),
    [
        (endless(), "not kept: it is nested too deeply, or holds itself"),
        (nested(201), "not kept: it is nested too deeply: it has more than 200 levels"),
        ([1e308] * 10_000, f"not kept: {WRITTEN_OUT}"),
        ({"a": 2**70, "b": Unwritable(c=1)}, "not kept: it cannot be written as JSON (no items today)"),
    ],
)
def test_a_result_that_cannot_be_written_is_left_out(result: Any, note: str) -> None:
    assert encode_result(result, limit=10**6) == (None, note)


@pytest.mark.django_db
@pytest.mark.parametrize("cause", [OrderRejected("no"), KeyError("account")])
def test_a_failure_is_grouped_by_the_error_that_was_raised(orders: Pipeline, cause: Exception) -> None:
    cause.__cause__ = ConnectionError("gone")
    submit(orders, 2)
    settle(claim(orders), Failure(wrapped(cause)))
    assert DeadLetterGroup.objects.get().error_type == type(cause).__name__


@pytest.mark.django_db
def test_no_secret_gets_into_rows_or_dead_letters(orders: Pipeline) -> None:
    submit(orders)
    words = "cannot reach https://ada:hunter2@bank/?token=abcdefgh"
    settle(claim(orders), failed(words, ConnectionError(words)))
    attempt, letter = Attempt.objects.get(), DeadLetter.objects.get()
    assert {attempt.message, letter.message} == {"cannot reach https://•••@bank/?token=•••"}
    rows = [model.objects.values().get() for model in (TransactionRecord, Attempt, DeadLetter, DeadLetterGroup)]
    assert not any(secret in str(rows) for secret in ("hunter2", "abcdefgh"))
