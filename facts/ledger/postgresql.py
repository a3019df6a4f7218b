"""How facts that are all new are appended on PostgreSQL: few in one statement, many copied. All of them or none."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any, cast

import orjson
from django.db import DatabaseError, IntegrityError, transaction

from ergon_site.access.database import pooler
from facts.ledger import directly
from facts.ledger.entries import Entry

# From so many on to copy them is quicker, although it takes more round trips.
COPIED_FROM = 40

# No row for a boundary that is not there, has its facts from elsewhere, or has no room.
COUNT = """
UPDATE facts_boundary b SET next_offset = next_offset + %(count)s, stored_bytes = stored_bytes + %(bytes)s
  FROM facts_zone f, facts_zone t
 WHERE f.id = b.from_zone_id AND t.id = b.to_zone_id AND f.name = %(from)s AND t.name = %(to)s AND source_url = ''
   AND (row_ceiling IS NULL OR next_offset - first_offset + %(count)s <= row_ceiling)
   AND (byte_ceiling IS NULL OR stored_bytes + %(bytes)s <= byte_ceiling)
RETURNING b.id, next_offset - %(count)s AS first
"""
# The same boundary, held until the end: nobody else appends to it meanwhile.
HOLD = """
SELECT b.id, next_offset FROM facts_boundary b, facts_zone f, facts_zone t
 WHERE f.id = b.from_zone_id AND t.id = b.to_zone_id AND f.name = %(from)s AND t.name = %(to)s AND source_url = ''
   FOR NO KEY UPDATE OF b
"""
COLUMNS = """
facts_fact (boundary_id, "offset", message_id, subject, predicate, correlation_id, causation_id, content, digest)
"""
COPY = f"COPY {COLUMNS} FROM STDIN"
APPEND = f"""
WITH c AS ({COUNT}),
i AS (
  INSERT INTO {COLUMNS}
  SELECT c.id, c.first + d.o, d.m, d.s, d.p, d.co, d.ca, d.t::text, d.d
    FROM c, json_to_recordset(%(rows)s) AS d (o int, m text, s text, p text, co text, ca text, t json, d text))
SELECT first FROM c
"""  # noqa: S608 (of constants)


class UnfitError(Exception):
    """These cannot be appended in this way."""


def append(wrapper: Any, entries: Sequence[Entry]) -> int | None:
    """The offset of the first; None, and nothing has changed, if one is known or the boundary does not take them."""
    write = _copy_all if len(entries) >= COPIED_FROM else _append_few
    return pooler.carry_out(wrapper, lambda: write(wrapper, entries), lambda: write(wrapper, entries))


def copy(wrapper: Any, entries: Iterable[Entry]) -> int | None:
    """The same for many of one boundary. The server takes some in while the next are made."""
    try:
        return _copy_all(wrapper, entries)
    except DatabaseError as error:
        if pooler.is_lost(error.__cause__):
            return None  # `append` tries again, with what has been made meanwhile
        raise


def _append_few(wrapper: Any, entries: Sequence[Entry]) -> int | None:
    wrapper.ensure_connection()
    try:
        with (
            wrapper.wrap_database_errors,
            transaction.atomic(wrapper.alias) if wrapper.in_atomic_block else nullcontext(),
        ):
            return _insert(wrapper, entries)
    except IntegrityError:
        return None


def _copy_all(wrapper: Any, entries: Iterable[Entry]) -> int | None:
    wrapper.ensure_connection()
    try:
        with wrapper.wrap_database_errors, _all_or_none(wrapper):
            return _copy(wrapper, iter(entries))
    except (IntegrityError, UnfitError):
        return None


def _all_or_none(wrapper: Any) -> AbstractContextManager[Any]:
    if wrapper.in_atomic_block:
        return cast("AbstractContextManager[Any]", transaction.atomic(wrapper.alias))
    return cast("AbstractContextManager[Any]", wrapper.connection.transaction())


def _insert(wrapper: Any, entries: Sequence[Entry]) -> int | None:
    rows = orjson.dumps([entry.row(place) for place, entry in enumerate(entries)])
    given = _given(entries) | {"rows": rows.decode()}
    if wrapper.in_atomic_block or not wrapper.autocommit or not pooler.may_prepare(wrapper):
        found = _execute(wrapper, APPEND, given).fetchone()
        return found and int(found[0])
    return directly.number(wrapper.connection, APPEND, given)


def _copy(wrapper: Any, entries: Iterator[Entry]) -> int | None:
    opening = next(entries, None)
    if opening is None:
        return None
    zones = opening.zones
    held = _execute(wrapper, HOLD, _named(zones)).fetchone()
    if held is None:
        raise UnfitError
    boundary_id, first = held
    offset = size = 0
    with wrapper.connection.cursor() as cursor, cursor.copy(COPY) as copying:
        for offset, entry in enumerate(chain([opening], entries), first):
            if entry.references or entry.zones != zones:
                raise UnfitError
            copying.write_row((boundary_id, offset, *entry.columns))
            size += entry.size
    counted = _named(zones) | {"count": offset - first + 1, "bytes": size}
    if _execute(wrapper, COUNT, counted).fetchone() is None:
        raise UnfitError
    return int(first)


def _given(entries: Sequence[Entry]) -> dict[str, Any]:
    return _named(entries[0].zones) | {"count": len(entries), "bytes": sum(entry.size for entry in entries)}


def _named(zones: tuple[str, str]) -> dict[str, Any]:
    return {"from": zones[0], "to": zones[1]}


def _execute(wrapper: Any, statement: str, given: dict[str, Any]) -> Any:
    """Planned once for each connection, where that lasts."""
    return wrapper.connection.execute(statement, given, prepare=True if pooler.may_prepare(wrapper) else None)
