"""JSON in and out of columns: strict about what it takes in, lenient about what handlers return."""

import json
from typing import Any

import orjson

from engines.core.failures import storable

_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19


class PayloadError(ValueError):
    """A value that cannot be kept."""


class PayloadTooLargeError(PayloadError):
    """A value over its limit."""


def encode(value: Any, *, limit: int, what: str = "payload") -> str:
    """The value as JSON text, or a refusal that says why."""
    text = _encode(value, what)
    if len(text) > limit:
        msg = f"the {what} has {len(text):,} bytes; the limit is {limit:,}"
        raise PayloadTooLargeError(msg)
    return text.decode()


def encode_leniently(value: Any, *, limit: int) -> str:
    """What a handler returned, as JSON text; what JSON has no word for is told as text."""
    try:
        text = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError):
        text = orjson.dumps(_told(value))
    if b"\\u0000" in text:
        text = orjson.dumps(_storable(orjson.loads(text)))
    if len(text) > limit:
        msg = f"the result has {len(text):,} bytes; the limit is {limit:,}"
        raise PayloadTooLargeError(msg)
    return text.decode()


def decode(text: str | None) -> Any:
    """The value of a JSON column, whole numbers of any length included."""
    if text is None:
        return None
    data = text.encode()
    # The quick decoder makes a float of what 64 bits do not hold. An expression that looks for such numbers would cost
    # more than all the decoding.
    return json.loads(data) if _LONG_NUMBER in data.translate(_DIGITS) else orjson.loads(data)


def _encode(value: Any, what: str) -> bytes:
    try:
        text = orjson.dumps(value, option=_STRICT)
    except (TypeError, ValueError, RecursionError) as error:
        text = _encode_slowly(value, what, error)
    # The quick encoder turns NaN into null, and lets pass what PostgreSQL's JSON does not.
    if b"null" in text:
        _encode_slowly(value, what, None)
    if b"\\u0000" in text and _has_nul(orjson.loads(text)):
        msg = f"the {what} holds U+0000, which no database text can"
        raise PayloadError(msg)
    return text


def _encode_slowly(value: Any, what: str, error: Exception | None) -> bytes:
    """For whole numbers beyond 64 bits, and to say precisely what is wrong."""
    try:
        _refuse_keys(value)
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        msg = f"the {what} is not JSON: a text holds half of a surrogate pair"
        raise PayloadError(msg) from None
    except (TypeError, ValueError, RecursionError) as precise:
        msg = f"the {what} is not JSON: {precise or error}"
        raise PayloadError(msg) from None


def _refuse_keys(value: Any) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                msg = f"the key {key!r} is not a text"
                raise TypeError(msg)
            _refuse_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _refuse_keys(inner)


def _has_nul(value: Any) -> bool:
    match value:
        case str():
            return "\x00" in value
        case list():
            return any(_has_nul(inner) for inner in value)
        case dict():
            return any("\x00" in key or _has_nul(inner) for key, inner in value.items())
    return False


def _storable(value: Any) -> Any:
    match value:
        case str():
            return storable(value)
        case list():
            return [_storable(inner) for inner in value]
        case dict():
            return {storable(key): _storable(inner) for key, inner in value.items()}
    return value


def _told(value: Any) -> str:
    try:
        return storable(str(value))
    except Exception:  # noqa: BLE001 (its own __str__ is broken)
        return f"<{type(value).__name__}>"
