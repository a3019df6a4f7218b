"""The memory that a JSON text takes, before it is parsed."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ergon_site.access.core.json_size import CONTAINER, NAME, VALUE, Parts, Size, sizes

MOST = 1_000_000
JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{},:"\\a'),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(alphabet='[]{},:"\\a'), inner, max_size=6),
    max_leaves=20,
)


def exact(body: bytes) -> Size:
    return list(sizes(body, MOST))[-1]


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (b"", (0, 0, 0)),
        (b"null", (0, 0, 0)),
        (b"[[],[],[]]", (4, 2, 0)),
        (b'{"a":{},"b":{"c":{}}}', (4, 1, 3)),
        (b"[" * 4, (4, 0, 0)),
        (b"[1,2,3,4,5,6,7]", (1, 6, 0)),
        (b'[{"a":1,"b":2,"c":3},{"d":1,"e":2,"f":3}]', (3, 5, 6)),
        (b'["[[[[[[[[", "a,b,c,d,e,f,g,h,i", "\\"[[[[,,,,,,,"]', (1, 2, 0)),
        (b'{"[[[[{{{{": "::::,,,,"}', (1, 0, 1)),
        (b'"unended, with, commas', (0, 2, 0)),
    ],
)
def test_parts_are_counted_but_not_within_strings(body: bytes, parts: tuple[int, int, int]) -> None:
    assert exact(body).parts == parts


@given(JSON)
def test_what_is_counted_is_what_there_is(value: Any) -> None:
    body = json.dumps(value).encode()
    rough, size = sizes(body, MOST)
    assert size.parts == counted(value)
    assert rough.of_copying >= size.of_copying
    assert rough.of_decoding >= size.of_decoding


def counted(value: Any) -> Parts:
    """What there is; of each list the first value does not count."""
    found = Parts(0, 0, 0)
    if isinstance(value, list | dict):
        found = Parts(1, max(0, len(value) - 1), len(value) * isinstance(value, dict))
        for inner in value.values() if isinstance(value, dict) else value:
            found = Parts(*(count + more for count, more in zip(found, counted(inner), strict=True)))
    return found


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_string_takes_no_more_than_was_counted(text: str) -> None:
    for body in (json.dumps(text).encode(), json.dumps(text, ensure_ascii=False).encode()):
        assert sys.getsizeof(text) <= sys.getsizeof("中") + exact(body).strings


@pytest.mark.parametrize(
    ("text", "decoded", "strings"),
    [
        ("x" * 98, 100, 100),
        ("ä" * 98, 198, 198),
        ("x" * 97 + "中", 300, 200),
        ("x" * 97 + "😀", 500, 400),
        ("中" * 98, 300, 200),
        ("x" * 92 + "\\u4e2d", 100, 380),
        ("x" * 86 + "\\ud83d\\ude00", 100, 630),
        ("x" * 91 + "😀" + "\\u4e2d", 500, 665),
        ("x" * 95 + "\\\\u", 100, 400),
    ],
)
def test_a_wide_character_widens_its_whole_string(text: str, decoded: int, strings: int) -> None:
    size = exact(f'"{text}"'.encode())
    assert (size.decoded, size.strings) == (decoded, strings)
    assert size.of_copying == 2 * size.body + strings
    assert size.of_decoding == size.body + decoded + strings


def test_a_wide_character_leaves_other_strings_as_they_are() -> None:
    rough, size = sizes(b'["' + b"x" * 98 + '","😀"]'.encode(), MOST)
    assert (rough.strings, size.strings) == (4 * 106, 100 + 12)


def test_long_strings_are_looked_at_in_pieces() -> None:
    text = "ä中" * 100_000
    assert exact(f'["{text}"]'.encode()).strings == 2 * (len(text) + 2)


def test_parts_weigh_what_they_take() -> None:
    assert Parts(1, 0, 0).size == CONTAINER
    assert Parts(0, 2, 3).size == 2 * VALUE + 3 * NAME


def test_too_many_strings_are_not_looked_at() -> None:
    assert len(list(sizes(b'["",' + b'"",' * 30 + b'""]', 30 * VALUE))) == 1


def test_an_unended_string_takes_no_time() -> None:
    assert exact(b"[" * 10 + b'"' + b"\\a" * 1_000_000).parts.containers == 10
