"""How facts that are all new are appended on PostgreSQL: few in one statement, many copied. All of them or none."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import orjson
from django.db import IntegrityError, transaction

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
    if len(entries) >= COPIED_FROM:
        return copy(wrapper, [entries])
    wrapper.ensure_connection()
    try:
        with (
            wrapper.wrap_database_errors,
            transaction.atomic(wrapper.alias) if wrapper.in_atomic_block else nullcontext(),
        ):
            return _insert(wrapper, entries)
    except IntegrityError:
        return None


def copy(wrapper: Any, portions: Iterable[Sequence[Entry]]) -> int | None:
    """The same for many of one boundary. Each portion is made while the server takes in the one before it."""
    wrapper.ensure_connection()
    try:
        with wrapper.wrap_database_errors, _all_or_none(wrapper):
            return _copy(wrapper, iter(portions))
    except (IntegrityError, UnfitError):
        return None


def _all_or_none(wrapper: Any) -> AbstractContextManager[Any]:
    if wrapper.in_atomic_block:
        return cast("AbstractContextManager[Any]", transaction.atomic(wrapper.alias))
    return cast("AbstractContextManager[Any]", wrapper.connection.transaction())


def _insert(wrapper: Any, entries: Sequence[Entry]) -> int | None:
    rows = orjson.dumps([entry.row(place) for place, entry in enumerate(entries)])
    given = _given(entries) | {"rows": rows.decode()}
    if wrapper.in_atomic_block or not wrapper.autocommit or _is_shared(wrapper):
        found = _execute(wrapper, APPEND, given).fetchone()
        return found and int(found[0])
    return directly.number(wrapper.connection, APPEND, given)


def _copy(wrapper: Any, portions: Iterator[Sequence[Entry]]) -> int | None:
    beginning, portion = None, next(portions, None)
    zones = portion[0].zones if portion else None
    while portion:
        counted = _execute(wrapper, COUNT, _given(portion)).fetchone()
        if counted is None or any(entry.reference or entry.zones != zones for entry in portion):
            raise UnfitError
        boundary_id, first = counted
        beginning = first if beginning is None else beginning
        with wrapper.connection.cursor() as cursor, cursor.copy(COPY) as copying:
            for offset, entry in enumerate(portion, first):
                copying.write_row((boundary_id, offset, *entry.columns))
            portion = next(portions, None)
    return beginning


def _given(entries: Sequence[Entry]) -> dict[str, Any]:
    from_zone, to_zone = entries[0].zones
    size = sum(entry.size for entry in entries)
    return {"from": from_zone, "to": to_zone, "count": len(entries), "bytes": size}


def _execute(wrapper: Any, statement: str, given: dict[str, Any]) -> Any:
    """Planned once for each connection, where no pooler shares them."""
    return wrapper.connection.execute(statement, given, prepare=None if _is_shared(wrapper) else True)


def _is_shared(wrapper: Any) -> bool:
    """Whether a pooler gives this connection to others as well."""
    return bool(wrapper.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"))
