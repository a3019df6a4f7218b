"""JSON from outside: parsed strictly, refused in words."""

import json
from typing import Any, NoReturn

_ESCAPE = b"\\u"


class MalformedJSONError(ValueError):
    """The text is not JSON that can be stored as it is."""


def parse(body: bytes) -> Any:
    """The value of a JSON text in UTF-8, without NaN, U+0000, lone surrogates or bottomless nesting."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        # Only an escape can bring in a character that UTF-8 and the strict parser have not refused already.
        if _ESCAPE in body:
            _refuse_unstorable(value)
    except UnicodeDecodeError as error:
        msg = f"The body is not UTF-8: byte {error.start} is wrong."
        raise MalformedJSONError(msg) from None
    except RecursionError:
        msg = "The body is nested too deeply."
        raise MalformedJSONError(msg) from None
    except MalformedJSONError:
        raise
    except ValueError as error:
        msg = f"The body is not JSON: {error}."
        raise MalformedJSONError(msg) from None
    return value


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is not a JSON number."
    raise MalformedJSONError(msg)


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
    if any("\ud800" <= character <= "\udfff" for character in text):
        msg = "A text holds half of a surrogate pair."
        raise MalformedJSONError(msg)
