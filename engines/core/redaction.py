"""Fields of a payload that pages hide until somebody asks for them.

A path is written with dots (`customer.email`); lists are passed through, so that `items.price` hides every price.
"""

from collections.abc import Iterable, Iterator
from typing import Any

HIDDEN = "•••"
# Deeper than any page shows: below that nothing is told at all.
DEEPEST = 100


def redact(payload: Any, paths: Iterable[str]) -> Any:
    """The payload with a stand-in at every path; what was given stays as it is."""
    for path in paths:
        payload = _hide(payload, path, DEEPEST)
    return payload


def restore(edited: Any, original: Any, paths: Iterable[str]) -> Any:
    """An edited copy of a redacted payload, with what was hidden put back wherever the stand-in was left.

    In a list whose length has changed nobody can tell which one was which: there the stand-ins stay.
    """
    for path in paths:
        edited = _put_back(edited, original, path, DEEPEST)
    return edited


def is_left(payload: Any, paths: Iterable[str]) -> bool:
    """Whether a stand-in is still where a value should be."""
    return any(value == HIDDEN for path in paths for value in _at(payload, path, DEEPEST))


def covers(paths: Iterable[str], asked: str) -> bool:
    """Whether a place in a payload is hidden, lies in something hidden, or holds something hidden."""
    place = _plain(asked)
    return any(f"{place}.".startswith(f"{path}.") or f"{path}.".startswith(f"{place}.") for path in map(_plain, paths))


def _plain(path: str) -> str:
    """A path without places in lists, whether written as `items.0.price` or as `items[0].price`."""
    return ".".join(part for part in path.replace("[", ".").replace("]", "").split(".") if not _is_place(part))


def _is_place(part: str) -> bool:
    """Whether a database would take it for a place in a list; it takes all that reads as a whole number."""
    try:
        int(part)
    except ValueError:
        return False
    return True


def _below(path: str, key: str) -> str:
    """What is left of a path below a key; nothing if it does not lead there. Keys may hold dots themselves."""
    return path[len(key) + 1 :] if path.startswith(f"{key}.") else ""


def _hide(value: Any, path: str, depth: int) -> Any:
    if depth == 0:
        return HIDDEN
    if isinstance(value, list):
        return [_hide(item, path, depth - 1) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _hide_in(key, inner, path, depth) for key, inner in value.items()}


def _hide_in(key: str, inner: Any, path: str, depth: int) -> Any:
    if key == path:
        return HIDDEN
    below = _below(path, key)
    return _hide(inner, below, depth - 1) if below else inner


def _put_back(edited: Any, original: Any, path: str, depth: int) -> Any:
    if depth == 0:
        return original if edited == HIDDEN else edited
    if isinstance(edited, list) and isinstance(original, list) and len(edited) == len(original):
        return [_put_back(new, old, path, depth - 1) for new, old in zip(edited, original, strict=True)]
    if isinstance(edited, dict) and isinstance(original, dict):
        return {key: _put_back_in(key, new, original, path, depth) for key, new in edited.items()}
    return edited


def _put_back_in(key: str, new: Any, original: dict[str, Any], path: str, depth: int) -> Any:
    if key not in original:
        return new
    if key == path:
        return original[key] if new == HIDDEN else new
    below = _below(path, key)
    return _put_back(new, original[key], below, depth - 1) if below else new


def _at(value: Any, path: str, depth: int) -> Iterator[Any]:
    if depth == 0:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _at(item, path, depth - 1)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key == path:
                yield inner
            elif below := _below(path, key):
                yield from _at(inner, below, depth - 1)
