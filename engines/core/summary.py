"""A payload in one line of a list: the fields that its pipeline names, or else the first ones."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from engines.core import redaction

# As many fields as a line has room for, and as many values where a path leads to several.
FIELDS, VALUES = 4, 3
LONGEST = 60
# Of one payload no more fields are looked at to find the first ones.
LOOKED_AT = 200


class Field(NamedTuple):
    """A field of a summary; the name is empty where the payload is nothing but a value."""

    name: str
    value: str


def summarize(payload: Any, paths: Sequence[str], redacted: Sequence[str]) -> list[Field]:
    """The fields of a payload at these paths, or its first ones; what the pipeline hides stays hidden."""
    shown = redaction.redact(payload, redacted)
    if not paths:
        return list(islice(_first(shown), FIELDS))
    named = ((path, list(islice(redaction.found_at(shown, path), VALUES + 1))) for path in paths)
    return [Field(_text(path), _joined(values)) for path, values in islice(named, FIELDS) if values]


def _first(shown: Any) -> Iterator[Field]:
    """Fields that hold no others: those of the payload itself before those of the objects in it."""
    if not isinstance(shown, dict):
        yield Field("", _value(shown))
        return
    within = []
    for key, value in islice(shown.items(), LOOKED_AT):
        if isinstance(value, dict):
            within += [(f"{key}.{name}", inner) for name, inner in islice(value.items(), FIELDS)]
        elif _says_something(value):
            yield Field(_text(key), _value(value))
    yield from (Field(_text(name), _value(value)) for name, value in within if _says_something(value))


def _says_something(value: Any) -> bool:
    return not isinstance(value, dict | list) and value not in (None, "", redaction.HIDDEN)


def _joined(values: Sequence[Any]) -> str:
    more = ", …" if len(values) > VALUES else ""
    return ", ".join(map(_value, values[:VALUES])) + more


def _value(value: Any) -> str:
    match value:
        case str():
            return _text(value)
        case list():
            return "1 item" if len(value) == 1 else f"{len(value)} items"
        case dict():
            return "1 field" if len(value) == 1 else f"{len(value)} fields"
    return _text(json.dumps(value))


def _text(text: str) -> str:
    """A text on one line, cut; signs that would break the line, or turn it around, are left out."""
    start = " ".join(text[: 2 * LONGEST].split())
    plain = start if start.isprintable() else "".join(sign for sign in start if sign.isprintable())
    is_cut = len(plain) > LONGEST or len(text) > 2 * LONGEST
    return f"{plain[:LONGEST].rstrip()}…" if is_cut else plain
