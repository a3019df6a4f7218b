"""The fields in which payloads of one kind of failure differ."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engines.core import redaction, variation
from engines.core.variation import Field, Value, Variation, compare

SECRET = "4111-1111"


@pytest.mark.parametrize(
    ("payloads", "found"),
    [
        ([], Variation(0)),
        ([{"a": 1}], Variation(1, same=1)),
        ([{"a": 1, "b": [1, 2]}] * 2, Variation(2, same=3)),
        ([{"a": 1}, {"a": 2}], Variation(2, (Field("a", (Value("1", 1), Value("2", 1)), 2, 0),))),
        ([{"a": 1}, {"a": 1}, {"a": True}], Variation(3, (Field("a", (Value("1", 2), Value("true", 1)), 2, 0),))),
        ([{"a": 1}, {}], Variation(2, (Field("a", (Value("1", 1),), 1, 1), Field("", (Value("{}", 1),), 1, 1)))),
        (
            [{"to": [{"id": 1}]}, {"to": [{"id": 1}, {"id": 2}]}],
            Variation(2, (Field("to[1].id", (Value("2", 1),), 1, 1),), same=1),
        ),
        ([1, 1, 2, 3, 4], Variation(5, (Field("", (Value("1", 2), Value("2", 1), Value("3", 1)), 4, 0),))),
        (["x" * 100, None], Variation(2, (Field("", (Value(f'"{"x" * 78}…', 1), Value("null", 1)), 2, 0),))),
    ],
)
def test_the_fields_that_differ_are_told_with_their_values(payloads: list[Any], found: Variation) -> None:
    assert compare(payloads) == found


def test_what_is_large_or_deep_is_compared_as_far_as_a_page_can_show() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = {"a": deep}
    assert compare([deep, {"a": 1}]).fields[0].values == (Value("…", 1),)
    wide = [{f"field {number}": number + at for number in range(1000)} for at in (0, 1)]
    found = compare(wide)
    assert len(found.fields) == variation.SHOWN_FIELDS
    assert len(found.fields) + found.hidden == variation.MOST_FIELDS
    assert compare([list(range(1000)), list(range(1000))]).same == variation.MOST_ITEMS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(JSON, max_size=4))
def test_payloads_differ_where_they_are_not_the_same(payloads: list[Any]) -> None:
    found = compare(payloads)
    assert found.compared == len(payloads)
    assert bool(found.fields) is (len({json.dumps(one, sort_keys=True) for one in payloads}) > 1)


@given(st.lists(st.tuples(JSON, st.text(max_size=3)), max_size=4))
def test_a_hidden_field_differs_in_nothing(rest: list[tuple[Any, str]]) -> None:
    payloads = [{"rest": one, "card": f"{SECRET}{number}"} for one, number in rest]
    found = compare([redaction.redact(payload, ["card"]) for payload in payloads])
    assert SECRET not in str(found)
    assert "card" not in {field.path for field in found.fields}
