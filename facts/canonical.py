"""One spelling of each JSON value (RFC 8785), so that the same content is recognised however it was written."""

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
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


class Content(NamedTuple):
    """The canonical text and the SHA-256 of its bytes."""

    text: str
    digest: str


def content_of(value: Any, numbers: Any = None) -> Content:
    """`numbers` is all of it that may hold numbers, if that is less than the whole."""
    text = canonical(value, numbers=numbers)
    return Content(text.decode(), sha256(text).hexdigest())


def canonical(value: Any, pointer: str = "", *, numbers: Any = None) -> bytes:
    """The canonical bytes; refuses what has none, and what no database would keep.

    Without fractions and without characters beyond the basic plane the quick encoder writes the same bytes.
    """
    try:
        text = orjson.dumps(value, option=_OPTIONS)
        if _has_fraction(value if numbers is None else numbers) or not (text.isascii() or _BEYOND.search(text) is None):
            text = rfc8785.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidFactError(_told(error), pointer) from None
    if _NULL in text and _has_null(value):
        msg = "a text holds U+0000, which cannot be stored"
        raise InvalidFactError(msg, pointer)
    return text


def _told(error: Exception) -> str:
    words = str(error)
    if "53-bit" in words or "Integer exceeds" in words:
        return f"a whole number is beyond {LARGEST:,}: others would read another one; send it as a text"
    if "surrogates" in words or "UTF-8" in words:
        return "a text holds half of a surrogate pair"
    if isinstance(error, RecursionError) or "recursion" in words.lower():
        return "it is nested too deeply"
    return f"it cannot be written as JSON: {words}"


def _has_fraction(value: Any) -> bool:
    """Whether there is a number that is not whole by its type: those have a spelling of their own."""
    kind = type(value)
    if kind is dict:
        value = value.values()
    elif kind is not list:
        return kind is float
    for inner in value:
        kind = type(inner)
        if kind is float or ((kind is dict or kind is list) and _has_fraction(inner)):
            return True
    return False


def _has_null(value: Any) -> bool:
    match value:
        case str():
            return "\x00" in value
        case dict():
            return any("\x00" in name or _has_null(inner) for name, inner in value.items())
        case list():
            return any(_has_null(inner) for inner in value)
    return False
