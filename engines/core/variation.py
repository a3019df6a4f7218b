"""Compares payloads of one kind of failure: the fields in which they differ, and how."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

# Of one payload no more is compared, and of one list and one text.
MOST_FIELDS = 300
MOST_ITEMS = 20
DEEPEST = 12
LONGEST_VALUE = 80
SHOWN_FIELDS = 30
SHOWN_VALUES = 3


class Value(NamedTuple):
    """A value as JSON, shortened, and how many payloads have it."""

    text: str
    times: int


class Field(NamedTuple):
    """A place that differs: its commonest values, how many there are in all, and how many payloads lack it."""

    path: str
    values: tuple[Value, ...]
    distinct: int
    missing: int


class Variation(NamedTuple):
    """The fields in which payloads differ, those that are the same in all, and those that are not shown."""

    compared: int
    fields: tuple[Field, ...] = ()
    same: int = 0
    hidden: int = 0


def compare(payloads: Sequence[Any]) -> Variation:
    """The fields in which these payloads differ, in the order in which they first appear."""
    leaves = [dict(_bounded(payload)) for payload in payloads]
    paths = list(dict.fromkeys(path for found in leaves for path in found))
    fields = [_field(path, [found[path] for found in leaves if path in found], len(leaves)) for path in paths]
    differing = [field for field in fields if field.distinct > 1 or field.missing]
    shown = tuple(differing[:SHOWN_FIELDS])
    return Variation(len(leaves), shown, len(fields) - len(differing), len(differing) - len(shown))


def _field(path: str, values: Sequence[str], compared: int) -> Field:
    counts = Counter(values)
    told = tuple(Value(_short(text), times) for text, times in counts.most_common(SHOWN_VALUES))
    return Field(path, told, len(counts), compared - len(values))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _bounded(payload: Any) -> Iterator[tuple[str, str]]:
    for number, leaf in enumerate(_leaves("", payload, DEEPEST)):
        if number == MOST_FIELDS:
            return
        yield leaf


def _leaves(path: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """The path and the JSON of everything that holds nothing else."""
    if depth and value and isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}" if path else str(name), inner, depth - 1)
    elif depth and value and isinstance(value, list):
        for place, inner in enumerate(value[:MOST_ITEMS]):
            yield from _leaves(f"{path}[{place}]", inner, depth - 1)
    else:
        is_deeper = value and isinstance(value, dict | list)
        yield path, "…" if is_deeper else json.dumps(value, ensure_ascii=False, default=str)
