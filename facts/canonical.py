"""The canonical form of JSON values (RFC 8785), so that equal content is recognised however it was written."""

import json
import re
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
import rfc8785

from facts.core.errors import InvalidFactError

LARGEST = 2**53 - 1
# Beyond the basic plane names are ordered otherwise by UTF-16 than by UTF-8.
_BEYOND = re.compile(rb"[\xf0-\xff]")
_NULL = b"\\u0000"
# Fewer levels than the quick encoder goes down.
_DEEP = 200
_LEAVES = frozenset({str, int, bool, type(None)})
_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
)


class Content(NamedTuple):
    """The canonical text, the SHA-256 of its bytes and how many these are."""

    text: str
    digest: str
    size: int


def content_of(value: Any, numbers: Any = None, *, is_stored: bool = False) -> Content:
    """`numbers` is all of it that is not known to be texts alone, if that is less than the whole."""
    text = canonical(value, numbers, is_stored=is_stored)
    return Content(text.decode(), sha256(text).hexdigest(), len(text))


def canonical(value: Any, numbers: Any = None, *, is_stored: bool = False) -> bytes:
    """The canonical bytes; refuses what has none, and what no database would keep.

    Without fractions and without characters beyond the basic plane the quick encoder writes the same bytes. What is
    stored elsewhere may hold whole numbers beyond 2^53 that were fractions by their type when they were taken.
    """
    try:
        text = orjson.dumps(value, option=_OPTIONS)
        is_canonical = _is_plain(value if numbers is None else numbers) and (
            text.isascii() or _BEYOND.search(text) is None
        )
    except TypeError:
        is_canonical = False
    if not is_canonical:
        text = _thoroughly(value, is_stored=is_stored)
    if _NULL in text and _has_null(value):
        msg = "a text holds U+0000, which cannot be stored"
        raise InvalidFactError(msg)
    return text


def size_of(text: str) -> int:
    """Its bytes as UTF-8: known without encoding it where it is ASCII."""
    return len(text) if text.isascii() else len(text.encode())


def _thoroughly(value: Any, *, is_stored: bool) -> bytes:
    try:
        if is_stored:
            return rfc8785.dumps(json.loads(json.dumps(value), parse_int=_as_it_was))
        text = rfc8785.dumps(value)
        # Whoever reads it must be able to write it again. The fraction 1e20 would be read as a whole number.
        if _has_large(value) or text.count(b"[") + text.count(b"{") > _DEEP:
            orjson.dumps(json.loads(text), option=_OPTIONS)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidFactError(_error_text(error)) from None
    return text


def _as_it_was(digits: str) -> int | float:
    whole = int(digits)
    return float(whole) if abs(whole) > LARGEST and int(float(whole)) == whole else whole


def _error_text(error: Exception) -> str:
    words = str(error)
    if "safe integer" in words or "Integer exceeds" in words:
        return f"a whole number is beyond {LARGEST:,}: other systems would read a different number; send it as a text"
    if "surrogates" in words or "UTF-8" in words:
        return "a text holds half of a surrogate pair"
    if isinstance(error, RecursionError) or "recursion" in words.lower():
        return "it is nested too deeply"
    return f"it cannot be written as JSON: {words}"


def _is_plain(value: Any) -> bool:
    """Whether all of it is what the quick encoder spells as everybody does: no fractions, no types of Python's own."""
    kind = type(value)
    if kind is dict:
        value = value.values()
    elif kind is not list:
        return kind in _LEAVES
    for inner in value:
        kind = type(inner)
        if kind is str or kind is int:
            continue
        if kind is dict or kind is list:
            if not _is_plain(inner):
                return False
        elif kind not in _LEAVES:
            return False
    return True


def _has_large(value: Any) -> bool:
    if type(value) in _LEAVES:
        return False
    if isinstance(value, float):
        return abs(value) > LARGEST
    if isinstance(value, dict):
        return any(map(_has_large, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_large, value))


def _has_null(value: Any) -> bool:
    match value:
        case str():
            return "\x00" in value
        case dict():
            return any("\x00" in name or _has_null(inner) for name, inner in value.items())
        case list() | tuple():
            return any(_has_null(inner) for inner in value)
    return False
