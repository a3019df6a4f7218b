"""JSON in and out of columns: strict about what it takes in, lenient about what handlers return."""

import json
import math
import re
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import orjson

from engines.core.failures import message_of, storable
from ergon_site.access.core import json_text

_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19
# The end of a number with an exponent, or of a text that looks like it; and all texts and such numbers, to be sure.
_EXPONENT = re.compile(rb"e[-+]?[0-9]+(?:[],}]|\Z)")
_STRING_OR_EXPONENT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(?<![0-9.])[0-9.]++e[-+]?[0-9]+')
TOO_DEEP = f"is nested too deeply: it has more than {json_text.DEEPEST} levels"
# Python refuses to write or to read longer whole numbers in digits.
MOST_BITS = 14_000
TOO_LONG = "whole numbers of more than 4,200 digits became text"
UNSTORABLE = "U+0000 and halves of surrogate pairs, which no database text can hold, were replaced"


class PayloadError(ValueError):
    """A value that cannot be kept."""


class PayloadTooLargeError(PayloadError):
    """A value over its limit."""


def encode(value: Any, *, limit: int, what: str = "payload") -> str:
    """The value as JSON text, or a refusal that says why."""
    try:
        text = orjson.dumps(value, option=_STRICT)
    except (TypeError, ValueError, RecursionError) as error:
        text = _encode_slowly(value, what, error)
    # The quick encoder turns NaN into null, and lets pass what PostgreSQL's JSON does not.
    if b"null" in text:
        _encode_slowly(value, what, None)
    if json_text.may_be_deep(text) and json_text.is_too_deep(value):
        msg = f"the {what} {TOO_DEEP}"
        raise PayloadError(msg)
    if b"\\u0000" in text and _has_nul(orjson.loads(text)):
        msg = f"the {what} holds U+0000, which no database text can"
        raise PayloadError(msg)
    return _in_digits(text, limit, f"the {what}").decode()


def encode_result(value: Any, *, limit: int) -> tuple[str | None, str]:
    """The result of a handler as JSON text, None if it is not kept; and what is missing, after "its result is".

    Values that JSON does not know become text.
    """
    try:
        text, note = _encode_result(value)
        if json_text.may_be_deep(text) and json_text.is_too_deep(orjson.loads(text)):
            return None, f"not kept: it {TOO_DEEP}"
        text = _in_digits(text, limit, "it")
    except RecursionError:
        return None, "not kept: it is nested too deeply, or holds itself"
    except PayloadTooLargeError as error:
        return None, f"not kept: {error}"
    except Exception as error:  # noqa: BLE001 (a value may be broken in ways of its own)
        return None, f"not kept: it cannot be written as JSON ({message_of(error)})"
    return text.decode(), note


def decode(text: str | None) -> Any:
    """The value of a JSON column, whole numbers of any length included."""
    if text is None:
        return None
    data = text.encode()
    # The quick decoder makes a float of what 64 bits do not hold. An expression that looks for such numbers would cost
    # more than all the decoding.
    return json.loads(data) if _LONG_NUMBER in data.translate(_DIGITS) else orjson.loads(data)


def _in_digits(text: bytes, limit: int, what: str) -> bytes:
    """The text with its floats as PostgreSQL keeps them, which makes whole numbers of those with exponents."""
    size = len(text)
    if size > limit:
        msg = f"{what} has {size:,} bytes; the limit is {limit:,}"
        raise PayloadTooLargeError(msg)

    def write_out(found: re.Match[bytes]) -> bytes:
        nonlocal size
        token = found[0]
        if token.startswith(b'"'):
            return token
        digits = format(Decimal(token.decode()), "f").encode()
        written = digits if b"." in digits else digits + b".0"
        size += len(written) - len(token)
        if size > limit:
            msg = f"{what} has more than {limit:,} bytes once its numbers are written out, which is the limit"
            raise PayloadTooLargeError(msg)
        return written

    return _STRING_OR_EXPONENT.sub(write_out, text) if _EXPONENT.search(text) else text


def _encode_slowly(value: Any, what: str, error: Exception | None) -> bytes:
    """For whole numbers beyond 64 bits, and to say precisely what is wrong."""
    try:
        _refuse_keys(value)
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        msg = f"the {what} is not JSON: a text holds half of a surrogate pair"
        raise PayloadError(msg) from None
    except RecursionError:
        msg = f"the {what} {TOO_DEEP}, or holds itself"
        raise PayloadError(msg) from None
    except (TypeError, ValueError) as precise:
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


def _encode_result(value: Any) -> tuple[bytes, str]:
    try:
        text = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError):
        return _encode_result_slowly(value)
    # The quick encoder turns NaN into null, and lets pass what PostgreSQL's JSON does not.
    is_whole = b"\\u0000" not in text and (b"null" not in text or not _has_nan(value))
    return (text, "") if is_whole else _encode_result_slowly(value)


def _has_nan(value: Any) -> bool:
    """Whether a result may hold NaN or an infinity."""
    try:
        json.dumps(value, allow_nan=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return True
    return False


def _encode_result_slowly(value: Any) -> tuple[bytes, str]:
    """For whole numbers beyond 64 bits, NaN, and characters that no column takes."""
    changes: set[str] = set()
    text = json.dumps(_plain(value, changes), ensure_ascii=False, separators=(",", ":")).encode()
    return text, f"kept with changes: {'; '.join(sorted(changes))}" if changes else ""


def _plain(value: Any, changes: set[str]) -> Any:
    """A result as JSON can hold it; what had to be changed is added to `changes`."""
    match value:
        case None | bool():
            return value
        case Enum():
            return _plain(value.value, changes)
        case str():
            return _storable(value, changes)
        case int() if value.bit_length() <= MOST_BITS:
            return int(value)
        case int():
            changes.add(TOO_LONG)
            return hex(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {_key(key, changes): _plain(inner, changes) for key, inner in value.items()}
        # A tuple with names is told as text, as the quick encoder does.
        case _ if isinstance(value, list) or type(value) is tuple:
            return [_plain(inner, changes) for inner in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in fields(value) if not field.name.startswith("_")]
            return {name: _plain(getattr(value, name), changes) for name in names}
    return _storable(_text_of(value), changes)


def _key(key: Any, changes: set[str]) -> str:
    plain = _plain(key, changes)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _storable(text: str, changes: set[str]) -> str:
    kept = storable(text)
    if kept != text:
        changes.add(UNSTORABLE)
    return kept


def _text_of(value: Any) -> str:
    """The quick encoder's text for a value that JSON does not know."""
    try:
        plain = orjson.loads(orjson.dumps(value, default=str))
        return plain if isinstance(plain, str) else str(value)
    except Exception:  # noqa: BLE001, S110 (its own __str__ is broken, or says what cannot be encoded)
        pass
    try:
        return str(value)
    except Exception:  # noqa: BLE001 (its own __str__ is broken)
        return f"<{type(value).__name__}>"
