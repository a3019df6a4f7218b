"""How facts that are all new are appended on PostgreSQL: few in one statement, many copied. All of them or none."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import orjson
from django.db import IntegrityError, transaction

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
WITH c AS ({COUNT})
INSERT INTO {COLUMNS}
SELECT c.id, c.first + d.o, d.m, d.s, d.p, d.co, d.ca, d.t, d.d
  FROM c, json_to_recordset(%(rows)s) AS d (o int, m text, s text, p text, co text, ca text, t text, d text)
RETURNING "offset"
"""  # noqa: S608 (of constants)


def append(wrapper: Any, entries: Sequence[Entry]) -> int | None:
    """The offset of the first; None, and nothing has changed, if one is known or the boundary does not take them."""
    wrapper.ensure_connection()
    write = _copy if len(entries) >= COPIED_FROM else _insert
    try:
        with wrapper.wrap_database_errors, _all_or_none(wrapper, write):
            return write(wrapper, entries)
    except IntegrityError:
        return None


def _all_or_none(wrapper: Any, write: Any) -> AbstractContextManager[Any]:
    if wrapper.in_atomic_block:
        return cast("AbstractContextManager[Any]", transaction.atomic(wrapper.alias))
    together: AbstractContextManager[Any] = wrapper.connection.transaction() if write is _copy else nullcontext()
    return together


def _insert(wrapper: Any, entries: Sequence[Entry]) -> int | None:
    rows = orjson.dumps([entry.row(place) for place, entry in enumerate(entries)]).decode()
    found = _execute(wrapper, APPEND, _given(entries) | {"rows": rows}).fetchall()
    return min(offset for (offset,) in found) if found else None


def _copy(wrapper: Any, entries: Sequence[Entry]) -> int | None:
    counted = _execute(wrapper, COUNT, _given(entries)).fetchone()
    if counted is None:
        return None
    boundary_id, first = counted
    with wrapper.connection.cursor() as cursor, cursor.copy(COPY) as copy:
        for offset, entry in enumerate(entries, first):
            copy.write_row((boundary_id, offset, *entry.columns))
    return int(first)


def _given(entries: Sequence[Entry]) -> dict[str, Any]:
    from_zone, to_zone = entries[0].zones
    size = sum(len(entry.text) for entry in entries)
    return {"from": from_zone, "to": to_zone, "count": len(entries), "bytes": size}


def _execute(wrapper: Any, statement: str, given: dict[str, Any]) -> Any:
    """Planned once for each connection, where no pooler shares them."""
    is_shared = wrapper.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
    return wrapper.connection.execute(statement, given, prepare=None if is_shared else True)
