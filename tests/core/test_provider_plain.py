"""Whatever is asked and answered has a form that can be kept; and mistakes of the program are refused."""

import json
from typing import Any
from uuid import UUID

import pytest

from providers.core import request as idempotency
from providers.core.errors import ProviderUsageError
from providers.core.exchange import ProviderAnswer
from providers.core.request import refuse_cost, refuse_mistakes, refuse_payload, storable
from tests.broken_errors import MuteError

ID = UUID("7b1e6f0c-0f4e-4c0f-9a52-3f3a0a1e9c11")
HALF = "\ud800"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"a": [1, 2.5, True, None, "x"]}, {"a": [1, 2.5, True, None, "x"]}),
        ({"x": float("nan"), "y": float("-inf")}, {"x": "nan", "y": "-inf"}),
        ({"x": f"tea{HALF}\x00", f"k{HALF}": 1}, {"x": "tea?\ufffd", "k?": 1}),
        ("\\u0000", "\\u0000"),
        ({(1, 2): 3, 4: 5, None: 6}, {"(1, 2)": 3, "4": 5, "None": 6}),
        ((1, (2,)), [1, [2]]),
        ({"id": ID}, {"id": str(ID)}),
        ({"odd": MuteError()}, {"odd": "MuteError"}),
        ([1 << 20_000], [hex(1 << 20_000)]),
    ],
)
def test_what_json_does_not_know_is_kept_as_text(value: Any, kept: Any) -> None:
    assert storable(value) == kept
    assert json.loads(json.dumps(storable(value), allow_nan=False)) == kept


def ring() -> Any:
    inner: list[Any] = []
    inner += [inner, inner]
    return {"ring": inner}


def well() -> Any:
    deep: Any = "the ground"
    for _ in range(5000):
        deep = [deep]
    return deep


@pytest.mark.parametrize("value", [ring(), well()])
def test_what_has_no_end_ends_somewhere(value: Any) -> None:
    assert json.dumps(storable(value))
    assert idempotency.canonical(value)


def test_numbers_of_any_length_make_a_key() -> None:
    assert idempotency.canonical({"n": 1 << 20_000}) != idempotency.canonical({"n": 1 << 20_001})


@pytest.mark.parametrize(
    "given",
    [
        {"tenant_id": ""},
        {"tenant_id": " "},
        {"tenant_id": None},
        {"provider_name": 7},
        {"operation": "x" * 101},
        {"correlation_id": "a\x00b"},
        {"capability": HALF},
        {"campaign_id": ID},
        {"idempotency_key": ""},
    ],
)
def test_names_that_are_none_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ProviderUsageError, match=next(iter(given))):
        refuse_mistakes(given)


def test_what_is_optional_may_be_missing() -> None:
    refuse_mistakes({"tenant_id": "t", "campaign_id": None, "idempotency_key": None})
    refuse_mistakes({"campaign_id": "spring", "idempotency_key": "order-1"})


@pytest.mark.parametrize("cost", [0, -1, 1.0, True, "1", 10**16])
def test_a_cost_is_a_whole_number(cost: Any) -> None:
    refuse_cost(1)
    with pytest.raises(ProviderUsageError, match="cost"):
        refuse_cost(cost)


def test_a_payload_is_an_object() -> None:
    refuse_payload({})
    with pytest.raises(ProviderUsageError, match="payload"):
        refuse_payload(["tea"])


def test_an_answer_may_have_a_status() -> None:
    answer = ProviderAnswer({"rank": 1}, http_status=200)
    assert (answer, answer.http_status) == ({"rank": 1}, 200)
