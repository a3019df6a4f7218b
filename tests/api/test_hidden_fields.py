"""What a pipeline hides is hidden from machines too, and survives an edited replay."""

from typing import Any

import pytest
from django.test import Client

from engines import transactions
from engines.core.errors import ExceptionType, TransactionException
from engines.core.outcome import Failure
from engines.models import DeadLetter, Pipeline, TransactionRecord
from tests.api.api_clients import client_with, pointers, post, problem, run
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

PAYLOAD = {"card": {"number": "4111", "name": "Ada"}, "lines": [{"price": 1}, {"price": 2}], "args": ["pin", "b"]}
SHOWN = {
    "card": {"number": "•••", "name": "Ada"},
    "lines": [{"price": "•••"}, {"price": "•••"}],
    "args": ["•••", "b"],
}


@pytest.fixture
def api() -> Client:
    make_pipeline("invoices")
    Pipeline.objects.update(redacted=["card.number", "lines[].price", "args.0"])
    transactions.submit("invoices", PAYLOAD, id="t")
    run("t", Failure(TransactionException("no", ExceptionType.BUSINESS)))
    return client_with("transactions:read", "transactions:operate", "dead_letters:operate")


def addresses() -> list[str]:
    return ["transactions/t", f"dead-letters/{DeadLetter.objects.get().pk}"]


def replayed(answer: Any) -> TransactionRecord:
    assert answer.status_code == 201, answer.content
    return TransactionRecord.objects.get(uid=answer.json()["id"])


def test_hidden_fields_are_not_told(api: Client) -> None:
    for address in addresses():
        assert api.get(f"/api/v1/{address}").json()["payload"] == SHOWN


@pytest.mark.parametrize("index", [0, 1])
def test_what_was_hidden_is_put_back_into_an_edited_payload(api: Client, index: int) -> None:
    edited = {**SHOWN, "card": {"number": "•••", "name": "Ada L."}}
    new = replayed(post(api, f"{addresses()[index]}/replay", {"reason": "name", "payload": edited}))
    assert new.payload == {**PAYLOAD, "card": {"number": "4111", "name": "Ada L."}}


@pytest.mark.parametrize("change", [{"lines": [{"price": "•••"}]}, {"args": ["new", "•••", "b"]}])
@pytest.mark.parametrize("index", [0, 1])
def test_a_stand_in_is_never_taken_for_a_value(api: Client, index: int, change: dict[str, Any]) -> None:
    edited = {**SHOWN, **change}
    answer = post(api, f"{addresses()[index]}/replay", {"reason": "x", "payload": edited})
    assert pointers(problem(answer, 400, "invalid_request")) == ["/payload"]
    assert TransactionRecord.objects.count() == 1


def test_what_was_edited_in_hidden_fields_is_not_told_either(api: Client) -> None:
    edited = {**SHOWN, "card": {"number": "4242", "name": "Eve"}, "args": ["new", "c"]}
    new = replayed(post(api, "transactions/t/replay", {"reason": "x", "payload": edited}))
    changes = api.get(f"/api/v1/transactions/{new.uid}").json()["payload_changes"]
    assert sorted(changes, key=lambda change: change["path"]) == [
        {"path": "args[0]", "before": "•••", "after": "•••"},
        {"path": "args[1]", "before": "b", "after": "c"},
        {"path": "card.name", "before": "Ada", "after": "Eve"},
        {"path": "card.number", "before": "•••", "after": "•••"},
    ]


def test_a_payload_that_was_replaced_as_a_whole_does_not_show_what_it_was(api: Client) -> None:
    new = replayed(post(api, "transactions/t/replay", {"reason": "x", "payload": "nothing"}))
    changes = api.get(f"/api/v1/transactions/{new.uid}").json()["payload_changes"]
    assert changes == [{"path": "", "before": "•••", "after": "•••"}]
