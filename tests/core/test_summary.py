"""A payload in one line of a list, and the word and the reason of what is pending there."""

from typing import Any

import pytest

from engines.core import explanation, redaction, summary
from engines.core.errors import NoPlaceError

ORDER = {
    "order": {"id": 42, "lines": [{"sku": "a", "price": 3}, {"sku": "b", "price": 4}], "note": ""},
    "customer": {"email": "ada@example.com", "vip": True},
    "total": 7.5,
    "tags": ["x"],
    "comment": None,
}


def told(payload: Any, *paths: str, redacted: tuple[str, ...] = ()) -> str:
    return " · ".join(f"{name} {value}" for name, value in summary.summarize(payload, paths, redacted))


@pytest.mark.parametrize(
    ("paths", "shown"),
    [
        (["order.id"], "order.id 42"),
        (["total", "order.id"], "total 7.5 · order.id 42"),
        (["order.lines[].price"], "order.lines[].price 3, 4"),
        (["order.lines.0.sku", "order.lines.-1.sku"], "order.lines.0.sku a · order.lines.-1.sku b"),
        (["order.lines", "order", "tags"], "order.lines 2 items · order 3 fields · tags 1 item"),
        (["customer.vip", "comment"], "customer.vip true · comment null"),
        (["nowhere", "order.id.deeper", "", ".", "[]", "tags[9]", "a" * 10_000], ""),
    ],
)
def test_the_fields_that_a_pipeline_names_are_shown(paths: list[str], shown: str) -> None:
    assert told(ORDER, *paths) == shown


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (ORDER, "total 7.5 · order.id 42 · customer.email ada@example.com · customer.vip true"),
        ({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, "a 1 · b 2 · c 3 · d 4"),
        ({"empty": "", "none": None, "list": [1]}, ""),
        ({}, ""),
        ([1, 2, 3], " 3 items"),
        (["x"], " 1 item"),
        ("hello", " hello"),
        (21, " 21"),
        (None, " null"),
    ],
)
def test_without_named_fields_the_first_ones_are_shown(payload: Any, shown: str) -> None:
    assert told(payload) == shown


def test_hidden_fields_stay_hidden() -> None:
    redacted = ("customer.email", "order.lines[].price")
    assert told(ORDER, "customer.email", "order.lines.price", redacted=redacted) == (
        "customer.email ••• · order.lines.price •••, •••"
    )
    assert told(ORDER, "customer.email", redacted=("customer",)) == ""
    assert told(ORDER, "customer", redacted=("customer",)) == "customer •••"
    assert "ada" not in told(ORDER, redacted=redacted)


def test_long_and_hostile_values_take_one_short_line() -> None:
    assert told({"a": "x" * 10_000}) == f"a {'x' * 60}…"
    assert told({"a": "y" * 61}) == f"a {'y' * 60}…"
    assert told({"a": "two\nlines\tand \u202eback\x00wards\u2028"}) == "a two lines and backwards"
    assert told({"k" * 500: 1}) == f"{'k' * 60}… 1"
    assert told({"n": list(range(9))}, "n[]") == "n[] 0, 1, 2, …"
    assert told({"one": {"x": 1}}, "one") == "one 1 field"
    assert len(summary.summarize({f"f{n}": n for n in range(1000)}, [f"f{n}" for n in range(99)], ())) == summary.FIELDS


def test_a_payload_that_is_too_deep_is_not_followed_to_its_end() -> None:
    deep: Any = {"x": 1}
    for _ in range(redaction.DEEPEST + 1):
        deep = [deep]
    assert list(redaction.found_at(deep, "x")) == []


PARKED = {"spent": 1, "of": 3, "is_parked": True, "type": "OSError", "message": "no answer."}


@pytest.mark.parametrize(
    ("due_in", "error", "word"),
    [
        (0.0, None, "waiting"),
        (-5.0, {"type": "NoPlace"}, "waiting"),
        (5.0, None, "scheduled"),
        (5.0, PARKED, "parked retry"),
        (-5.0, PARKED, "parked retry"),
    ],
)
def test_a_pending_transaction_waits_for_a_worker_its_time_or_its_next_attempt(
    due_in: float, error: Any, word: str
) -> None:
    assert explanation.pending_word(due_in, error) == word


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, ""),
        ({"is_served": False}, "no worker"),
        ({"is_served": False, "due_in": 9.0}, ""),
        ({"is_served": False, "paused_by": "ada"}, "paused by ada"),
        ({"error": PARKED}, "attempt 2 of 3, after OSError: no answer"),
        ({"error": {"spent": 2, "type": "OSError"}, "paused_by": "ada"}, "paused by ada; attempt 3, after OSError"),
        ({"error": {"type": NoPlaceError.error_type, "message": "all places are taken"}}, "all places are taken"),
    ],
)
def test_the_reason_of_a_pending_transaction_takes_few_words(facts: dict[str, Any], reason: str) -> None:
    whole = {"due_in": 0.0, "error": None, "paused_by": "", "is_served": True, **facts}
    assert explanation.pending_reason(whole) == reason
