"""One spelling of each JSON value (RFC 8785), so that the same content is recognised however it was written."""

import math
import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
import rfc8785

from facts.core.errors import InvalidFactError

LARGEST = 2**53 - 1
# A number with a fraction or an exponent in a value's place. In a text it only costs time.
_FRACTION = re.compile(rb"(?:^|[:,\[])-?[0-9]+[.e]")
# Beyond the basic plane names are ordered otherwise by UTF-16 than by UTF-8.
_BEYOND = re.compile(rb"[\xf0-\xff]")
_NULL = b"\\u0000"
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


class Content(NamedTuple):
    """The canonical text and the SHA-256 of its bytes."""

    text: str
    digest: str


def content_of(value: Any, pointer: str = "") -> Content:
    text = canonical(value, pointer)
    return Content(text.decode(), sha256(text).hexdigest())


def canonical(value: Any, pointer: str = "") -> bytes:
    """The canonical bytes; refuses what has none, and what no database would keep.

    Without fractions and without characters beyond the basic plane the quick encoder writes the same bytes.
    """
    try:
        text = orjson.dumps(value, option=_OPTIONS)
        if _FRACTION.search(text) or _BEYOND.search(text):
            text = rfc8785.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidFactError(_told(error), pointer) from None
    if _NULL in text and _holds(value, _is_null_text):
        msg = "a text holds U+0000, which cannot be stored"
        raise InvalidFactError(msg, pointer)
    # The quick encoder writes null for what is no number.
    if b"null" in text and _holds(value, _is_no_number):
        msg = "NaN and infinity are no JSON numbers"
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


def _holds(value: Any, is_it: Callable[[Any], bool]) -> bool:
    match value:
        case dict():
            return any(is_it(name) or _holds(inner, is_it) for name, inner in value.items())
        case list():
            return any(_holds(inner, is_it) for inner in value)
    return is_it(value)


def _is_null_text(value: Any) -> bool:
    return isinstance(value, str) and "\x00" in value


def _is_no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
