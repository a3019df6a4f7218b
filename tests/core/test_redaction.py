"""What pages hide of a payload, and how it comes back."""

from typing import Any

import pytest

from engines.core.redaction import DEEPEST, HIDDEN, covers, hidden_in, is_left, is_within, redact, restore

ORDER = {
    "customer": {"name": "Ada", "email": "ada@example.org"},
    "items": [{"sku": "a", "price": 1}, {"sku": "b", "price": 2}, "gift"],
    "card.number": "4111",
    "note": None,
}


def nested(depth: int, inner: Any) -> Any:
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("customer.email", {**ORDER, "customer": {"name": "Ada", "email": HIDDEN}}),
        ("customer", {**ORDER, "customer": HIDDEN}),
        ("items.price", {**ORDER, "items": [{"sku": "a", "price": HIDDEN}, {"sku": "b", "price": HIDDEN}, "gift"]}),
        ("card.number", {**ORDER, "card.number": HIDDEN}),
        ("note", {**ORDER, "note": HIDDEN}),
        ("customer.phone", ORDER),
        ("note.deeper", ORDER),
    ],
)
def test_what_lies_at_a_path_is_hidden_and_nothing_else(path: str, hidden: Any) -> None:
    assert redact(ORDER, [path]) == hidden
    assert ORDER["card.number"] == "4111"


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("args.0", {"args": [HIDDEN, "b", {"pin": 3, "0": 4}, [5, 6]]}),
        ("args[0]", {"args": [HIDDEN, "b", {"pin": 3, "0": 4}, [5, 6]]}),
        ("args[-1]", {"args": ["a", "b", {"pin": 3, "0": 4}, HIDDEN]}),
        ("args.-2.pin", {"args": ["a", "b", {"pin": HIDDEN, "0": 4}, [5, 6]]}),
        ("args[2].pin", {"args": ["a", "b", {"pin": HIDDEN, "0": 4}, [5, 6]]}),
        ("args[2].0", {"args": ["a", "b", {"pin": 3, "0": HIDDEN}, [5, 6]]}),
        ("args[3][1]", {"args": ["a", "b", {"pin": 3, "0": 4}, [5, HIDDEN]]}),
        ("args.3.1", {"args": ["a", "b", {"pin": 3, "0": 4}, [5, HIDDEN]]}),
        ("args[]", {"args": [HIDDEN] * 4}),
        ("args[*]", {"args": [HIDDEN] * 4}),
        ("args.*", {"args": [HIDDEN] * 4}),
        ("args[].pin", {"args": ["a", "b", {"pin": HIDDEN, "0": 4}, [5, 6]]}),
        ("args.*.pin", {"args": ["a", "b", {"pin": HIDDEN, "0": 4}, [5, 6]]}),
        ("args[4]", {"args": ["a", "b", {"pin": 3, "0": 4}, [5, 6]]}),
        ("[0]", {"args": ["a", "b", {"pin": 3, "0": 4}, [5, 6]]}),
    ],
)
def test_a_path_leads_into_a_list(path: str, hidden: Any) -> None:
    payload = {"args": ["a", "b", {"pin": 3, "0": 4}, [5, 6]]}
    assert redact(payload, [path]) == hidden
    assert restore(hidden, payload, [path]) == payload
    assert is_left(hidden, [path]) is (hidden != payload)
    assert not is_left(payload, [path])


def test_a_payload_that_is_a_list_has_places_too() -> None:
    assert redact(["a", "b"], ["0"]) == redact(["a", "b"], ["[0]"]) == [HIDDEN, "b"]
    assert redact([{"pin": 1}], ["[].pin"]) == [{"pin": HIDDEN}]


def test_a_key_that_is_written_like_a_place_is_hidden_as_a_key() -> None:
    assert redact({"items[]": 1, "0": 2, "a[b": 3}, ["items[]", "0", "a[b"]) == dict.fromkeys(
        ["items[]", "0", "a[b"], HIDDEN
    )


def test_a_stand_in_that_was_moved_along_a_list_is_noticed() -> None:
    original = {"args": ["secret", "b"]}
    edited = {"args": ["new", HIDDEN, "b"]}
    assert is_left(restore(edited, original, ["args.0"]), ["args.0"])


def test_a_new_value_at_a_hidden_place_is_kept() -> None:
    assert restore({"args": ["new", "b"]}, {"args": ["secret", "b"]}, ["args[0]"]) == {"args": ["new", "b"]}


def test_several_paths_hide_together() -> None:
    assert redact({"a": 1, "b": 2, "c": 3}, ["a", "b"]) == {"a": HIDDEN, "b": HIDDEN, "c": 3}


@pytest.mark.parametrize("payload", [None, 7, "text", []])
def test_a_payload_without_fields_has_nothing_to_hide(payload: Any) -> None:
    assert redact(payload, ["customer.email"]) == payload


def test_what_lies_too_deep_to_be_looked_at_is_hidden_whole_and_comes_back() -> None:
    deep = nested(DEEPEST + 5, {"secret": 1})
    hidden = redact(deep, ["secret"])
    assert hidden == nested(DEEPEST, HIDDEN)
    assert is_left(hidden, ["secret"])
    assert restore(hidden, deep, ["secret"]) == deep
    assert restore(nested(DEEPEST, "new"), deep, ["secret"]) == nested(DEEPEST, "new")


@pytest.mark.parametrize("path", ["customer.email", "customer", "items.price", "card.number", "note", "no.such"])
def test_a_payload_that_was_not_edited_comes_back_as_it_was(path: str) -> None:
    assert restore(redact(ORDER, [path]), ORDER, [path]) == ORDER


def test_an_edit_beside_a_hidden_field_keeps_both() -> None:
    edited = redact(ORDER, ["customer.email"])
    edited["customer"]["name"] = "Eve"
    edited["new"] = HIDDEN
    restored = restore(edited, ORDER, ["customer.email"])
    assert restored["customer"] == {"name": "Eve", "email": "ada@example.org"}
    assert restored["new"] == HIDDEN


def test_a_hidden_field_can_be_overwritten_or_left_out() -> None:
    assert restore({"card": "1"}, {"card": "2"}, ["card"]) == {"card": "1"}
    assert restore({}, {"card": "2"}, ["card"]) == {}
    assert restore({"card": "x"}, {"card": {"number": 1}}, ["card.number"]) == {"card": "x"}


def test_in_a_list_of_another_length_nothing_is_guessed() -> None:
    original = {"items": [{"price": 1}, {"price": 2}]}
    edited = restore({"items": [{"price": HIDDEN}]}, original, ["items.price"])
    assert is_left(edited, ["items.price"])


def test_nothing_is_left_where_every_value_is_there() -> None:
    assert not is_left(ORDER, ["customer.email", "items.price", "no.such"])
    assert not is_left("text", ["customer.email"])


@pytest.mark.parametrize(
    ("asked", "is_covered"),
    [
        ("customer.email", True),
        ("customer", True),
        ("customer.email.host", True),
        ("customer.name", False),
        ("items.0.price", True),
        ("items[1].price", True),
        ("items.-1.price", True),
        ("items.sku", False),
        ("customers", False),
        ("", True),
        ("args", True),
        ("args.0", True),
        ("args[0]", True),
        ("args[0].deeper", True),
        ("args.+0", True),
        ("args. 0", True),
        ("args.-2", True),
        ("args[1]", False),
        ("args.name", True),
        ("lines[3].iban", True),
        ("lines.iban", True),
        ("lines[3]", True),
        ("lines[3].sum", False),
        ("lines.sum", False),
        ("lines[3][4].iban", True),
        ("[0]", True),
        ("last[0]", True),
    ],
)
def test_a_place_is_covered_if_it_is_in_or_around_something_hidden(asked: str, *, is_covered: bool) -> None:
    hidden = ["customer.email", "items.price", "args.0", "lines[].iban", "last[-1]"]
    assert covers(hidden, asked) is is_covered


def test_nothing_is_covered_where_nothing_is_hidden() -> None:
    assert not covers([], "")


@pytest.mark.parametrize(
    ("path", "others", "is_inside"),
    [
        ("card.number", ["card"], True),
        ("card", ["card.number"], False),
        ("card.number", [], False),
        ("args.0", ["args"], True),
        ("args[0]", ["args.0"], True),
        ("args[0].pin", ["args[]"], True),
        ("args[0].pin", ["args.pin"], True),
        ("args[].pin", ["args.pin"], True),
        ("args.1", ["args.0"], False),
        ("args.pin", ["args[].pin"], False),
        ("args[]", ["args.0"], False),
    ],
)
def test_a_path_is_within_those_that_hide_at_least_as_much(path: str, others: list[str], *, is_inside: bool) -> None:
    assert is_within(path, others) is is_inside


def test_a_payload_to_begin_with_has_its_hidden_fields_empty_and_named() -> None:
    payload, paths = (
        {"order": 7, "customer": {"email": "a@b"}, "items": []},
        ["customer.email", "items[].price", "iban"],
    )
    assert redact(payload, paths, stand_in="") == {"order": 7, "customer": {"email": ""}, "items": []}
    assert hidden_in(payload, paths) == ["customer.email"]
