"""How many parts a JSON text may have."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ergon_site.access.core.json_size import Bounds

FEW = Bounds(containers=3, values=5, names=5)
JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{},:"\\a'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='[]{},:"\\a'), inner),
)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[[],[],[]]", "3 lists and objects"),
        (b'{"a":{},"b":{"c":{}}}', "3 lists and objects"),
        (b"[" * 4, "3 lists and objects"),
        (b"[1,2,3,4,5,6,7]", "5 values"),
        (b'["",' + b'"",' * 30 + b'""]', "5 values"),
        (b'[{"a":1,"b":2,"c":3},{"d":1,"e":2,"f":3}]', "5 names of fields"),
    ],
)
def test_a_text_with_too_many_parts_is_refused(body: bytes, words: str) -> None:
    assert FEW.excess(body) == words


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[[],{}]",
        b"[1,2,3,4,5,6]",
        b'["[[[[[[[[", "a,b,c,d,e,f,g,h,i", "\\"[[[[,,,,,,,"]',
        b'{"[[[[{{{{": "::::,,,,"}',
        b'"unended, with, commas',
    ],
)
def test_what_stands_in_strings_does_not_count(body: bytes) -> None:
    assert FEW.excess(body) == ""


@given(JSON)
def test_what_is_counted_is_what_there_is(value: Any) -> None:
    found = counted(value)
    body = json.dumps(value).encode()
    assert Bounds(**found).excess(body) == ""
    for name, count in found.items():
        assert not count or Bounds(**{**found, name: count - 1}).excess(body)


def counted(value: Any) -> dict[str, int]:
    """What there is, as the bounds count it: of each list the first value does not count."""
    found = {"containers": 0, "values": 0, "names": 0}
    if isinstance(value, list | dict):
        found = {"containers": 1, "values": max(0, len(value) - 1), "names": len(value) * isinstance(value, dict)}
        for inner in value.values() if isinstance(value, dict) else value:
            found = {name: count + counted(inner)[name] for name, count in found.items()}
    return found


def test_an_unended_string_takes_no_time() -> None:
    assert FEW.excess(b"[" * 10 + b'"' + b"\\a" * 1_000_000) == "3 lists and objects"
