"""Values of Python as JSON, and back the same: what a function returned is given again as it was.

JSON knows few kinds. Of the others, those that are listed here stand in an object with their name under `$`.
"""

import base64
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from providers.core.request import DEEPEST, is_endless

KIND, VALUE = "$", "value"
PLAIN = (type(None), bool, str)
MANY = {kind.__name__: kind for kind in (tuple, set, frozenset)}

Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]
CODECS: dict[type, Codec] = {
    bytes: (lambda value: base64.b64encode(value).decode(), base64.b64decode),
    date: (date.isoformat, date.fromisoformat),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (lambda value: [value.days, value.seconds, value.microseconds], lambda kept: timedelta(*kept)),
    Decimal: (str, Decimal),
    UUID: (str, UUID),
    float: (repr, float),  # those that are no numbers
    int: (hex, lambda kept: int(kept, 16)),  # those that are too long
}
BY_NAME = {kind.__name__: codec for kind, codec in CODECS.items()}


class NotKeptError(ValueError):
    """A value cannot be kept so that it could be given back the same."""


def dumped(value: Any, depth: int = 0) -> Any:
    """The value as JSON holds it. A subclass is not its parent: it would come back as another kind."""
    kind = type(value)
    if depth > DEEPEST:
        msg = "it is nested too deeply"
        raise NotKeptError(msg)
    if kind in PLAIN or (kind is float and math.isfinite(value)) or (kind is int and not is_endless(value)):
        return value
    if kind is list:
        return [dumped(one, depth + 1) for one in value]
    if kind is dict and KIND not in value and all(type(name) is str for name in value):
        return {name: dumped(one, depth + 1) for name, one in value.items()}
    if kind is dict:
        pairs = [[dumped(name, depth + 1), dumped(one, depth + 1)] for name, one in value.items()]
        return {KIND: "dict", VALUE: pairs}
    if kind in MANY.values():
        return {KIND: kind.__name__, VALUE: [dumped(one, depth + 1) for one in value]}
    if kind not in CODECS:
        msg = f"a value of the class {kind.__module__}.{kind.__qualname__} cannot be kept"
        raise NotKeptError(msg)
    return {KIND: kind.__name__, VALUE: CODECS[kind][0](value)}


def loaded(kept: Any) -> Any:
    """The value that was kept."""
    if isinstance(kept, list):
        return [loaded(one) for one in kept]
    if not isinstance(kept, dict):
        return kept
    if KIND not in kept:
        return {name: loaded(one) for name, one in kept.items()}
    name, value = kept[KIND], kept[VALUE]
    if name == "dict":
        return {loaded(key): loaded(one) for key, one in value}
    if name in MANY:
        return MANY[name](loaded(one) for one in value)
    return BY_NAME[name][1](value)
