"""One spelling of each JSON value: the quick encoder and the library of RFC 8785 agree."""

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings, strategies as st

from facts.canonical import LARGEST, canonical, content_of
from facts.core.errors import InvalidFactError

pytestmark = pytest.mark.once

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
NUMBERS = st.integers(-LARGEST, LARGEST) | st.floats(allow_nan=False, allow_infinity=False)
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


@settings(max_examples=300)
@given(VALUES, st.randoms(use_true_random=False))
def test_the_same_value_spelled_otherwise_is_the_same(value: Any, chance: Any) -> None:
    text = json.dumps(_shuffled(value, chance), indent=chance.choice([None, 3]), ensure_ascii=chance.random() < 0.5)
    assert content_of(json.loads(text)) == content_of(value)


@given(VALUES, VALUES)
def test_other_values_are_others(one: Any, other: Any) -> None:
    is_same = rfc8785.dumps(one) == rfc8785.dumps(other)
    assert (content_of(one).digest == content_of(other).digest) is is_same


@given(st.integers(LARGEST + 1) | st.integers(max_value=-LARGEST - 1) | st.sampled_from([float("nan"), float("inf")]))
def test_a_number_that_others_would_read_otherwise_is_refused(number: Any) -> None:
    try:
        canonical({"n": [number]})
    except InvalidFactError:
        return
    raise AssertionError(number)


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
