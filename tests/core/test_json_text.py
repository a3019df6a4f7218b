import json

import pytest
from hypothesis import given, strategies as st

from ergon_site.access.core import json_text
from ergon_site.access.core.json_text import MalformedJSONError

storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | storable,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(storable, inner, max_size=4),
    max_leaves=15,
)


@given(values, st.booleans())
def test_what_can_be_stored_is_read_as_it_is(value: object, escaped: bool) -> None:  # noqa: FBT001
    assert json_text.parse(json.dumps(value, ensure_ascii=escaped).encode()) == value


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not UTF-8: byte 0"),
        (b"NaN", "NaN is not a JSON number"),
        (b"[-Infinity]", "-Infinity is not a JSON number"),
        (b'"\\u0000"', "U+0000"),
        (b'{"\\u0000": 1}', "U+0000"),
        (b'[{"a": ["\\ud800"]}]', "surrogate"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" * 201 + b"]" * 201, "nested too deeply"),
        (b'{"a":' * 201 + b"1" + b"}" * 201, "nested too deeply"),
        (b"1" * 5000, "not JSON"),
        (b"[1e999]", "too large: 1e999"),
        (b"-1" + b"0" * 400 + b".5", "too large: -1000"),
    ],
)
def test_what_cannot_be_stored_is_refused_in_words(body: bytes, words: str) -> None:
    with pytest.raises(MalformedJSONError, match=words.replace("+", r"\+")):
        json_text.parse(body)


def test_an_escaped_backslash_is_no_escape() -> None:
    assert json_text.parse(b'"\\\\u0000"') == "\\u0000"


def test_many_values_are_not_taken_for_deep_ones() -> None:
    assert len(json_text.parse(b"[" + b"[[]]," * 300 + b"0]")) == 301
    assert json_text.parse(b"[" * 200 + b"]" * 200)


def test_a_name_that_occurs_twice_is_refused_where_that_matters() -> None:
    assert json_text.parse(b'{"a": 1, "b": 2}', refuses_repeats=True) == {"a": 1, "b": 2}
    assert json_text.parse(b'{"a": 1, "a": 2}') == {"a": 2}
    with pytest.raises(MalformedJSONError, match="'a' occurs twice"):
        json_text.parse(b'[{"a": 1, "a": 2}]', refuses_repeats=True)
