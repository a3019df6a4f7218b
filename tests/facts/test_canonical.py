"""One spelling of each JSON value: the quick encoder and the library of RFC 8785 agree."""

import json
import uuid
from collections import OrderedDict
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Any, NamedTuple

import pytest
import rfc8785
from hypothesis import example, given, settings, strategies as st

from facts.canonical import LARGEST, canonical, content_of
from facts.core.errors import InvalidFactError

pytestmark = pytest.mark.once

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
# From 1e21 on a number is written with an exponent, and read as a fraction again.
FRACTIONS = st.floats(allow_nan=False, allow_infinity=False).filter(lambda one: not LARGEST < abs(one) < 1e21)
NUMBERS = st.integers(-LARGEST, LARGEST) | FRACTIONS
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=300)
@given(VALUES)
@example({"\ue000": 1, "\U00010000": 2})
@example([0.0, -0.0, 1e21, 1e-7, 5e-324, 1.0, -1.5, 100, 2**53 - 1])
@example({"é": "é", "e\u0301": 1})
def test_any_value_is_written_as_the_library_writes_it(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)
    assert canonical(json.loads(canonical(value))) == canonical(value), "and can be read and written again"


@settings(max_examples=300)
@given(VALUES, st.randoms(use_true_random=False))
def test_the_same_value_spelled_otherwise_is_the_same(value: Any, chance: Any) -> None:
    text = json.dumps(_shuffled(value, chance), indent=chance.choice([None, 3]), ensure_ascii=chance.random() < 0.5)
    assert content_of(json.loads(text)) == content_of(value)


@given(VALUES, VALUES)
def test_other_values_are_others(one: Any, other: Any) -> None:
    is_same = rfc8785.dumps(one) == rfc8785.dumps(other)
    assert (content_of(one).digest == content_of(other).digest) is is_same


@given(
    st.integers(LARGEST + 1)
    | st.integers(max_value=-LARGEST - 1)
    | st.sampled_from([float("nan"), float("inf")])
    | st.floats(LARGEST + 1, 1e21, exclude_max=True)
    | st.floats(-1e21, -LARGEST - 1, exclude_min=True)
)
def test_a_number_that_others_would_read_otherwise_is_refused(number: Any) -> None:
    try:
        canonical({"n": [number]})
    except InvalidFactError:
        return
    raise AssertionError(number)


@pytest.mark.parametrize("number", [2.0**53, -1e20, 1.5e16])
def test_a_number_that_was_taken_as_a_fraction_before_is_still_read_from_where_it_is_stored(number: float) -> None:
    stored = rfc8785.dumps({"n": number, "also": [1, "1"]})
    assert canonical(json.loads(stored), is_stored=True) == stored


def test_what_no_fraction_could_have_been_is_refused_even_if_it_is_stored() -> None:
    with pytest.raises(InvalidFactError, match="beyond 9,007,199,254,740,991"):
        canonical([2**53 + 1], is_stored=True)


class Pair(NamedTuple):
    one: Any
    other: Any


class Word(StrEnum):
    WEIGHT = "weight"


class Text(str):
    __slots__ = ()


class Number(Enum):
    ONE = 1.0


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1.0, 2.5), [1, 2.5]),
        ([(1, 2)], [[1, 2]]),
        (Pair(1.0, "x"), [1, "x"]),
        (OrderedDict(b=1.0, a=OrderedDict(c=2)), {"a": {"c": 2}, "b": 1}),
        ({"kind": Word.WEIGHT, Text("n"): Text("x")}, {"kind": "weight", "n": "x"}),
    ],
)
def test_what_python_has_other_types_for_is_written_as_the_same_json(value: Any, plain: Any) -> None:
    assert content_of(value) == content_of(plain)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ((float("nan"),), "nan"),
        (OrderedDict(x=[float("inf")]), "inf"),
        (datetime(2026, 3, 6, tzinfo=UTC), "datetime"),
        (uuid.UUID(int=1), "UUID"),
        (Number.ONE, "Number"),
        ({1, 2}, "set"),
        (b"x", "bytes"),
        ({1: "x"}, "keys must be strings"),
        (("\x00",), "0000, which cannot be stored"),
        (("\ud800",), "half of a surrogate pair"),
        ({"\ud800": 1.5}, "half of a surrogate pair"),
    ],
)
def test_what_is_no_json_is_refused_by_name(value: Any, told: str) -> None:
    with pytest.raises(InvalidFactError, match=told):
        canonical({"x": [value]})


def test_what_is_nested_too_deeply_to_be_read_again_is_refused() -> None:
    for innermost in (1, 1.5, ()):
        value: Any = innermost
        for _ in range(300):
            value = [value]
        with pytest.raises(InvalidFactError, match="nested too deeply"):
            canonical(value)


def _shuffled(value: Any, chance: Any) -> Any:
    match value:
        case dict():
            names = list(value)
            chance.shuffle(names)
            return {name: _shuffled(value[name], chance) for name in names}
        case list():
            return [_shuffled(inner, chance) for inner in value]
        case int() if not isinstance(value, bool) and abs(value) <= 2**53 and chance.random() < 0.5:
            return float(value)
    return value
