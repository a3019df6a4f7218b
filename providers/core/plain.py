"""Values as JSON can hold them, whatever was given: payloads and answers come from everywhere."""

import math
from collections.abc import Callable, Mapping
from typing import Any

# Deeper than people nest, and far from where encoders and databases give up.
DEEPEST = 100
# Python refuses to write longer numbers in digits.
MOST_BITS = 10_000

Leaf = Callable[[Any], Any]


def storable(value: Any) -> Any:
    """A value that every column of JSON takes; what JSON does not know becomes text."""
    return walked(value, _stored, key=_stored_text)


def storable_text(text: str) -> str:
    """A text that every column takes: no U+0000, no half of a surrogate pair."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def walked(value: Any, leaf: Leaf, *, key: Leaf = str) -> Any:
    """The value with each leaf as `leaf` says it, and each name as `key` does. What has no end is a leaf somewhere."""
    return _walked(value, leaf, key, ())


def text_of(value: Any) -> str:
    """The text of a value, or the name of its class if that fails."""
    try:
        return hex(value) if is_endless(value) else str(value)
    except Exception:  # noqa: BLE001 (its own __str__ is broken)
        return type(value).__qualname__


def is_endless(value: Any) -> bool:
    """Whether it is a number that is too long to be written in digits."""
    return isinstance(value, int) and value.bit_length() > MOST_BITS


def _walked(value: Any, leaf: Leaf, key: Leaf, around: tuple[int, ...]) -> Any:
    if len(around) < DEEPEST and id(value) not in around:
        within = (*around, id(value))
        if isinstance(value, Mapping):
            return {key(name): _walked(inner, leaf, key, within) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [_walked(inner, leaf, key, within) for inner in value]
    return leaf(value)


def _stored(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    is_number = value is None or (isinstance(value, int) and not is_endless(value))
    return value if is_number else _stored_text(value)


def _stored_text(value: Any) -> str:
    return storable_text(text_of(value))
