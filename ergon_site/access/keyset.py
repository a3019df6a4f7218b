"""Long lists by key: each page begins where the one before it ended, so that the last costs no more than the first."""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db import connections
from django.db.models import CharField, DateTimeField, Model, Q, QuerySet
from django.db.models.functions import Cast

from ergon_site.access.core.texts import is_storable

WINDOW = 50_000
COUNTED = 10_000
LONGEST_CURSOR = 8000
LARGEST = 2**63 - 1
WRITTEN = "_as_written"
ON, BACK = "n", "p"
CURSOR = re.compile(rf"([{ON}{BACK}])(-?[0-9]{{1,9}})")

Key = tuple[Any, ...]


class ListingError(Exception):
    """No list is filtered so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysetQuery:
    """Rows in the order of an index that finds them.

    `rest` is what no index knows: it is looked for row by row, and for one page through `window` rows at most. Rows
    are counted only where the index has them in this very order. `note` is what a reader should know besides.
    """

    rows: QuerySet[Any]
    order: tuple[str, ...] = ("-id",)
    rest: Q = field(default_factory=Q)
    window: int = WINDOW
    is_counted: bool = True
    note: str = ""

    def all(self) -> QuerySet[Any]:
        return self.rows.filter(self.rest).order_by(*self.order)

    def count(self) -> int | None:
        """The number of rows, counted up to a cap; None where only a scan would tell."""
        return None if self.rest or not self.is_counted else self.rows.order_by(*self.order)[: COUNTED + 1].count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of rows with the cursors of its neighbours; `looked_through` if it ended before the rows did.

    `number` is counted by the cursors. A page below 1 shows rows that were added since the walk began at page 1.
    """

    rows: list[Any]
    number: int = 1
    previous: str = ""
    next: str = ""
    looked_through: int = 0


class _Place(NamedTuple):
    """Where a cursor points to: a key, None for the first page; whether it leads back; and the number of its page."""

    key: Key | None = None
    is_back: bool = False
    number: int = 1


class _Walk(NamedTuple):
    rows: list[Any]
    end: Key | None
    is_cut_short: bool


def paginate(query: KeysetQuery, *, size: int, at: str = "", tag: str = "") -> Page:
    """The page that a cursor names; the first one if it names none, or one of a list that was asked differently."""
    query = _comparable(query)
    start, is_back, number = _place(query, at, tag)
    if start is not None and is_back:
        walk = _walk(replace(query, order=_flipped(query.order)), start, size)
        if walk.end is not None:
            rows = walk.rows[::-1]
            return Page(
                rows=rows,
                number=number,
                previous=_cursor(tag, BACK, number - 1, walk.end),
                next=_cursor(tag, ON, number + 1, _key(query, rows[-1]) if rows else start),
                looked_through=query.window if walk.is_cut_short else 0,
            )
        start, number = None, 1  # where nothing is left before it, the page before is the first one
    walk = _walk(query, start, size)
    return Page(
        rows=walk.rows,
        number=number,
        previous=_cursor(tag, BACK, number - 1, _key(query, walk.rows[0]) if start and walk.rows else None),
        next=_cursor(tag, ON, number + 1, walk.end),
        looked_through=query.window if walk.is_cut_short else 0,
    )


def counted(count: int) -> str:
    """A count as people read it; what is beyond the cap is told as such."""
    return f"{COUNTED:,}+" if count > COUNTED else f"{count:,}"


def _comparable(query: KeysetQuery) -> KeysetQuery:
    """SQLite keeps times as texts, some with three digits and some with six: they are compared as they are written."""
    if connections[query.rows.db].vendor != "sqlite":
        return query
    times = [name for name in _names(query.order) if isinstance(_column(query, name), DateTimeField)]
    written = {f"{name}{WRITTEN}": Cast(name, CharField()) for name in times}
    order = tuple(f"{name}{WRITTEN}" if _name(name) in times else name for name in query.order)
    return replace(query, rows=query.rows.annotate(**written), order=order)


def _column(query: KeysetQuery, name: str) -> Any:
    # Django's own way to a column; a time as it is written is none.
    return query.rows.model._meta.get_field(name) if not name.endswith(WRITTEN) else CharField()  # noqa: SLF001


def _walk(query: KeysetQuery, start: Key | None, size: int) -> _Walk:
    """The next rows, and the key to go on from if there may be more."""
    ordered, edge = query.rows.order_by(*query.order), None
    if query.rest:
        # The key of the last row of the window; None if the rows end before.
        keys = ordered.filter(_after(query.order, start) if start else Q()).values_list(*_names(query.order))
        edge = next(iter(keys[query.window - 1 : query.window]), None)
    stretches = [ordered]
    if start is not None:
        # In ranges that an index serves; first those that differ in the last column only.
        stretches = [
            ordered.filter(_alike(query.order[:depth], start), _beyond(query.order[depth], start[depth]))
            for depth in range(len(query.order) - 1, -1, -1)
        ]
    found: list[Any] = []
    for rows in stretches:
        within = rows if edge is None else rows.filter(_up_to(query.order, edge))
        found += within.filter(query.rest)[: size + 1 - len(found)]
        if len(found) > size:
            return _Walk(found[:size], _key(query, found[size - 1]), is_cut_short=False)
    return _Walk(found, edge, is_cut_short=edge is not None)


def _after(order: Sequence[str], key: Key) -> Q:
    anywhere = Q()
    for depth, name in enumerate(order):
        anywhere |= _alike(order[:depth], key) & _beyond(name, key[depth])
    return anywhere


def _up_to(order: Sequence[str], key: Key) -> Q:
    if len(order) == 1:
        return Q(**{f"{_name(order[0])}__{'gte' if order[0].startswith('-') else 'lte'}": key[0]})
    return _after(_flipped(order), key) | _alike(order, key)


def _flipped(order: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.removeprefix("-") if name.startswith("-") else f"-{name}" for name in order)


def _alike(order: Sequence[str], key: Key) -> Q:
    return Q(**dict(zip(_names(order), key, strict=False)))


def _beyond(name: str, value: Any) -> Q:
    return Q(**{f"{_name(name)}__{'lt' if name.startswith('-') else 'gt'}": value})


def _name(name: str) -> str:
    return name.removeprefix("-")


def _names(order: Sequence[str]) -> list[str]:
    return [_name(name) for name in order]


def _key(query: KeysetQuery, row: Model) -> Key:
    return tuple(getattr(row, name) for name in _names(query.order))


def _cursor(tag: str, way: str, number: int, key: Key | None) -> str:
    if key is None:
        return ""
    # As text a time keeps its microseconds, which Django's encoder would drop.
    return urlsafe_b64encode(json.dumps([tag, f"{way}{number}", *key], default=str).encode()).decode().rstrip("=")


def _place(query: KeysetQuery, at: str, tag: str) -> _Place:
    """The place that a cursor points to; the first page if it is not a cursor of this list."""
    if not at or len(at) > LONGEST_CURSOR:
        return _Place()
    try:
        told, way, *values = json.loads(urlsafe_b64decode(at + "=" * (-len(at) % 4)))
        columns = [_column(query, name) for name in _names(query.order)]
        key = tuple(column_value(column, value) for column, value in zip(columns, values, strict=True))
        found = CURSOR.fullmatch(way)
    except (ValueError, TypeError, OverflowError, RecursionError, ValidationError):
        return _Place()
    if found is None or told != tag or None in key:
        return _Place()
    return _Place(key, found[1] == BACK, int(found[2]))


def column_value(column: Any, told: Any) -> Any:
    """The value of a column in a cursor, if a database can hold it."""
    value = column.to_python(told)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError
        return value.astimezone(UTC)
    if (isinstance(value, str) and not is_storable(value)) or (isinstance(value, int) and abs(value) > LARGEST):
        raise ValueError
    return value
