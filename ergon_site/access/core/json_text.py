"""JSON from outside: parsed strictly, refused in words."""

import json
import math
from collections import Counter
from typing import Any, NoReturn

from ergon_site.access.core.texts import is_storable

# Deeper than people nest, and far from where encoders and databases give up.
DEEPEST = 200
_ESCAPE = b"\\u"
_HOLDERS = (dict, list, tuple)
_TOO_DEEP = f"The body is nested too deeply: more than {DEEPEST} levels."


class MalformedJSONError(ValueError):
    """The text is not JSON that can be stored as it is."""


def parse(body: bytes | bytearray, *, refuses_repeats: bool = False) -> Any:
    """The value of a JSON text in UTF-8, without NaN, infinity, U+0000, lone surrogates or bottomless nesting.

    Where it matters who said what, a name that occurs twice in an object is refused as well.
    """
    pairs = _unrepeated if refuses_repeats else None
    try:
        value = json.loads(
            body.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=pairs
        )
        # Only an escape can bring in a character that UTF-8 and the strict parser have not refused already.
        if _ESCAPE in body:
            _refuse_unstorable(value)
        refuse_depth(body, value)
    except UnicodeDecodeError as error:
        msg = f"The body is not UTF-8: byte {error.start} is wrong."
        raise MalformedJSONError(msg) from None
    except RecursionError:
        raise MalformedJSONError(_TOO_DEEP) from None
    except MalformedJSONError:
        raise
    except ValueError as error:
        msg = f"The body is not JSON: {error}."
        raise MalformedJSONError(msg) from None
    return value


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is not a JSON number."
    raise MalformedJSONError(msg)


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        times = Counter(name for name, _ in pairs)
        repeated = next(name for name, count in times.items() if count > 1)
        msg = f"The name {repeated[:100]!r} occurs twice in an object."
        raise MalformedJSONError(msg)
    return found


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        msg = f"A number is too large: {text[:20]}."
        raise MalformedJSONError(msg)
    return number


def refuse_depth(body: bytes | bytearray, value: Any) -> None:
    """Refuse what is nested too deeply to be written again."""
    if may_be_deep(body) and is_too_deep(value):
        raise MalformedJSONError(_TOO_DEEP)


def may_be_deep(text: bytes | bytearray) -> bool:
    """Whether it opens so many lists and objects that its levels must be counted."""
    return text.count(b"[") + text.count(b"{") > DEEPEST


def is_too_deep(value: Any) -> bool:
    """Whether it has more levels than can be written and read everywhere."""
    level = [value]
    for _ in range(DEEPEST + 1):
        holders = [item for item in level if isinstance(item, _HOLDERS)]
        if not holders:
            return False
        level = [inner for item in holders for inner in (item.values() if isinstance(item, dict) else item)]
    return True


def _refuse_unstorable(value: Any) -> None:
    match value:
        case str():
            _refuse_text(value)
        case list():
            for item in value:
                _refuse_unstorable(item)
        case dict():
            for key, item in value.items():
                _refuse_text(key)
                _refuse_unstorable(item)


def _refuse_text(text: str) -> None:
    if "\x00" in text:
        msg = "U+0000 cannot be stored in a text."
        raise MalformedJSONError(msg)
    if not is_storable(text):
        msg = "A text holds half of a surrogate pair."
        raise MalformedJSONError(msg)
