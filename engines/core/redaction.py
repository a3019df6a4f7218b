"""Fields of a payload that pages hide until somebody asks for them.

A path is written with dots: `customer.email`. A number is a place in a list, counted from 0, or from the end if it is
negative: `args.0` or `args[0]`. `[]`, `[*]` or `*` is every item: `items[].price`. Any other part of a path passes
through lists, so that `items.price` hides every price as well.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

HIDDEN = "•••"
# Deeper than any page shows: below that nothing is told at all.
DEEPEST = 100
EVERY = "*"
_NOTHING = object()
# What a path asks of a list, where its next part is a place.
_PLACE = re.compile(r"(?:\[(-?\d{1,9}|\*|)\]|(-?\d{1,9}|\*)(?=[.\[]|$))\.?")
_BRACKETS = re.compile(r"\[(-?\d{1,9}|\*|)\]")


def redact(payload: Any, paths: Iterable[str], stand_in: str = HIDDEN) -> Any:
    """The payload with a stand-in at every path; what was given stays as it is."""
    for path in paths:
        payload = _hide(payload, path, DEEPEST, stand_in)
    return payload


def hidden_in(payload: Any, paths: Iterable[str]) -> list[str]:
    """The paths that hide something in this payload."""
    return [path for path in paths if next(_at(payload, path, DEEPEST), _NOTHING) is not _NOTHING]


def restore(edited: Any, original: Any, paths: Iterable[str]) -> Any:
    """An edited copy of a redacted payload, with what was hidden put back wherever the stand-in was left.

    In a list whose length has changed nobody can tell which one was which: there the stand-ins stay.
    """
    for path in paths:
        edited = _put_back(edited, original, path, DEEPEST)
    return edited


def found_at(payload: Any, path: str, depth: int = DEEPEST) -> Iterator[Any]:
    """The values at a path, in the order of the payload."""
    if depth == 0:
        return
    inside: Iterable[tuple[Any, str | None]] = ()
    if isinstance(payload, list):
        inside = zip(payload, _into(payload, path), strict=True)
    elif isinstance(payload, dict):
        inside = ((inner, _below(path, key)) for key, inner in payload.items())
    for inner, rest in inside:
        if rest:
            yield from found_at(inner, rest, depth - 1)
        elif rest is not None:
            yield inner


def is_left(payload: Any, paths: Iterable[str]) -> bool:
    """Whether a hidden field still holds the placeholder."""
    return any(value == HIDDEN for path in paths for value in _at(payload, path, DEEPEST))


def covers(paths: Iterable[str], asked: str) -> bool:
    """Whether a place in a payload is hidden, lies in something hidden, or holds something hidden."""
    place = _parts(asked)
    return any(_meet(_parts(path), place) for path in paths)


def is_within(path: str, paths: Iterable[str]) -> bool:
    """Whether other paths hide all that this one hides."""
    return any(_holds(_parts(other), _parts(path)) for other in paths)


def _parts(path: str) -> list[str]:
    """The keys and places of a path; each place is written in one way only."""
    plain = _BRACKETS.sub(lambda found: f".{found[1] or EVERY}", path)
    plain = plain.removeprefix(".") if path.startswith("[") else plain
    return [_written(part) for part in plain.split(".")] if plain else []


def _written(part: str) -> str:
    """A whole number without blanks, signs and leading zeros: databases take all of these for the same place."""
    try:
        return str(int(part))
    except ValueError:
        return part


def _is_number(part: str) -> bool:
    return part.removeprefix("-").isdecimal()


def _meet(hidden: Sequence[str], asked: Sequence[str]) -> bool:
    if not hidden or not asked:
        return True
    first, place = hidden[0], asked[0]
    if first == place or (first == EVERY and _is_number(place)) or _may_be_one(first, place):
        return _meet(hidden[1:], asked[1:])
    if first == EVERY or (_is_number(first) and not _is_number(place)):
        # A place that is left out when asked stands for all of them.
        return _meet(hidden[1:], asked)
    return not _is_number(first) and _is_number(place) and _meet(hidden, asked[1:])


def _may_be_one(first: str, place: str) -> bool:
    """Two places, one of them counted from the end: which item that is depends on the list."""
    return _is_number(first) and _is_number(place) and first.startswith("-") != place.startswith("-")


def _holds(outer: Sequence[str], inner: Sequence[str]) -> bool:
    if not outer or not inner:
        return not outer
    first, place = outer[0], inner[0]
    if first == place or (first == EVERY and _is_number(place)):
        return _holds(outer[1:], inner[1:])
    return not _is_number(first) and (_is_number(place) or place == EVERY) and _holds(outer, inner[1:])


def _below(path: str, key: str) -> str | None:
    """What is left of a path below a key: "" if it is hidden, None if the path passes it by. Keys may hold dots."""
    if key == path:
        return ""
    if path.startswith(f"{key}["):
        return path[len(key) :]
    return path[len(key) + 1 :] or None if path.startswith(f"{key}.") else None


def _place(path: str) -> tuple[str, str]:
    """The place in a list that a path begins with, and what follows it; every item, if it begins with a key."""
    found = _PLACE.match(path)
    return (found[1] or found[2] or EVERY, path[found.end() :]) if found else (EVERY, path)


def _into(items: Sequence[Any], path: str) -> Iterator[str | None]:
    """For each item of a list what is left of the path in it: "" if it is hidden, None if the path passes it by."""
    place, rest = _place(path)
    for index in range(len(items)):
        is_meant = place == EVERY or int(place) in {index, index - len(items)}
        yield rest if is_meant else None


def _hide(value: Any, path: str, depth: int, stand_in: str) -> Any:
    if depth == 0:
        return stand_in
    if isinstance(value, list):
        return [_hide_in(item, rest, depth, stand_in) for item, rest in zip(value, _into(value, path), strict=True)]
    if isinstance(value, dict):
        return {key: _hide_in(inner, _below(path, key), depth, stand_in) for key, inner in value.items()}
    return value


def _hide_in(inner: Any, rest: str | None, depth: int, stand_in: str) -> Any:
    if rest is None:
        return inner
    return _hide(inner, rest, depth - 1, stand_in) if rest else stand_in


def _put_back(edited: Any, original: Any, path: str, depth: int) -> Any:
    if depth == 0:
        return original if edited == HIDDEN else edited
    if isinstance(edited, list) and isinstance(original, list) and len(edited) == len(original):
        pairs = zip(edited, original, _into(edited, path), strict=True)
        return [_put_back_in(new, old, rest, depth) for new, old, rest in pairs]
    if isinstance(edited, dict) and isinstance(original, dict):
        return {
            key: _put_back_in(new, original[key], _below(path, key), depth) if key in original else new
            for key, new in edited.items()
        }
    return edited


def _put_back_in(new: Any, old: Any, rest: str | None, depth: int) -> Any:
    if rest is None:
        return new
    if rest:
        return _put_back(new, old, rest, depth - 1)
    return old if new == HIDDEN else new


def _at(value: Any, path: str, depth: int) -> Iterator[Any]:
    if depth == 0:
        yield value
    elif isinstance(value, list):
        # Whichever the place: an edited list may have been moved along.
        _, rest = _place(path)
        for item in value:
            yield from _at(item, rest, depth - 1) if rest else (item,)
    elif isinstance(value, dict):
        for key, inner in value.items():
            below = _below(path, key)
            if below is not None:
                yield from _at(inner, below, depth - 1) if below else (inner,)
