"""Appends new facts on PostgreSQL: few in one statement, many by COPY. All of them or none."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any

import orjson
from django.db import DatabaseError, IntegrityError, connection, transaction

from ergon_site.access.database import pooler
from ergon_site.access.database.calls import END_IF_IDLE, forget_broken
from facts.ledger.entries import Entry

# From so many on to copy them is quicker, although it takes more round trips.
COPIED_FROM = 40

# No row for a boundary that is not there, was retired, has its facts from elsewhere, or has no room.
COUNTED = """
UPDATE facts_boundary b SET next_offset = next_offset + %(count)s, stored_bytes = stored_bytes + %(bytes)s
  FROM facts_zone f, facts_zone t
 WHERE f.id = b.from_zone_id AND t.id = b.to_zone_id AND f.name = %(from)s AND t.name = %(to)s AND source_url = ''
   AND b.retired_at IS NULL AND (row_ceiling IS NULL OR next_offset - first_offset + %(count)s <= row_ceiling)
   AND (byte_ceiling IS NULL OR stored_bytes + %(bytes)s <= byte_ceiling){more}
RETURNING b.id, next_offset - %(count)s AS first
"""
COUNT = COUNTED.format(more="")
# Of facts that were truncated the ids are remembered. Where none ever was, that is seen in the boundary's row.
NEVER_TRUNCATED = " AND b.removed_offset IS NULL"
LOOK_UP = """(
  SELECT r."offset" FROM facts_rememberedmessage r
   WHERE r.boundary_id = {boundary} AND r.message_id = {message} LIMIT 1) IS NOT NULL"""
# The statement sees the ids as they were when it began: if facts were removed while it waited for the boundary, the row
# that it then has differs from the one that it saw at first.
UNKNOWN = f"""
   AND b.removed_offset IS NOT DISTINCT FROM (SELECT s.removed_offset FROM facts_boundary s WHERE s.id = b.id)
   AND NOT EXISTS (
     SELECT FROM json_to_recordset(%(rows)s) AS k (m text) WHERE {LOOK_UP.format(boundary="b.id", message="k.m")})"""  # noqa: S608
REPEATED = f"""
SELECT EXISTS (SELECT FROM facts_fact f WHERE f.boundary_id = %(boundary)s AND f."offset" >= %(first)s
  AND {LOOK_UP.format(boundary="f.boundary_id", message="f.message_id")})
"""  # noqa: S608 (of constants)
# The same boundary, held until the end: nobody else appends to it meanwhile.
HOLD = """
SELECT b.id, next_offset, removed_offset FROM facts_boundary b, facts_zone f, facts_zone t
 WHERE f.id = b.from_zone_id AND t.id = b.to_zone_id AND f.name = %(from)s AND t.name = %(to)s AND source_url = ''
   AND b.retired_at IS NULL FOR NO KEY UPDATE OF b
"""
COLUMNS = """
facts_fact (boundary_id, "offset", message_id, subject, predicate, correlation_id, causation_id, content, digest,
  transaction_id)
"""
COPY = f"COPY {COLUMNS} FROM STDIN"
# No time limit of the server's own ends a copy that waits for its client.
END_FROZEN = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND usename = current_user AND state = 'active' AND wait_event = 'ClientRead'
   AND starts_with(query, %s) AND query_start < clock_timestamp() - %s * interval '1 second'
"""
# Less than those who wait for the boundary do, chore and all.
LONGEST_COPY = 5.0
APPENDING = f"""
WITH c AS ({{counted}}),
i AS (
  INSERT INTO {COLUMNS}
  SELECT c.id, c.first + d.o, d.m, d.s, d.p, d.co, d.ca, d.t::text, d.d, d.tx
    FROM c, json_to_recordset(%(rows)s) AS d (o int, m text, s text, p text, co text, ca text, t json, d text, tx text))
SELECT first FROM c
"""  # noqa: S608 (of constants)
APPEND = APPENDING.format(counted=COUNTED.format(more=NEVER_TRUNCATED))
APPEND_UNKNOWN = APPENDING.format(counted=COUNTED.format(more=UNKNOWN))
# Boundaries that have been truncated, as far as this process knows: to look at ids makes an append an eighth slower.
_truncated: set[tuple[str, str]] = set()


class UnfitError(Exception):
    """These cannot be appended in this way."""


def note_truncated(zones: tuple[str, str]) -> None:
    """Look at remembered ids when facts are appended to this boundary."""
    _truncated.add(zones)


def append(wrapper: Any, entries: Sequence[Entry]) -> int | None:
    """The offset of the first; None, and nothing has changed, if one is known or the boundary does not take them.

    Few are appended by libpq itself where the connection is in autocommit: where dozens of threads wait for one that
    writes for all, each microsecond of Python in that one is everybody's, and a cursor's are most of them.
    """
    if len(entries) >= COPIED_FROM:
        return _copy_all(wrapper, entries)
    wrapper.ensure_connection()
    zones, raw = entries[0].zones, wrapper.connection
    statement = APPEND_UNKNOWN if zones in _truncated else APPEND
    rows = orjson.dumps([entry.row(place) for place, entry in enumerate(entries)]).decode()
    given = _counted(zones, len(entries), sum(entry.size for entry in entries)) | {"rows": rows}
    try:
        with wrapper.wrap_database_errors:
            if wrapper.in_atomic_block or not wrapper.autocommit or not pooler.may_prepare(wrapper):
                with transaction.atomic(wrapper.alias) if wrapper.in_atomic_block else nullcontext():
                    found = _execute(wrapper, statement, given).fetchone()
                return found and int(found[0])
            result = pooler.execute_prepared(raw, statement, given)
            return int(result.get_value(0, 0)) if result.ntuples else None
    except IntegrityError:
        return None


def copy(wrapper: Any, entries: Iterable[Entry]) -> int | None:
    """The same for many of one boundary. The server takes some in while the next are made."""
    try:
        return _copy_all(wrapper, entries)
    except DatabaseError as error:
        if pooler.is_lost(error.__cause__):
            return None  # `append` tries again, with what has been made meanwhile
        forget_broken(wrapper)
        raise


def end_frozen_copies() -> int:
    """End the copies of processes that stand still, and so hold their boundary; how many there were."""
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute(END_FROZEN, [COPY, LONGEST_COPY])
        return sum(is_ended for (is_ended,) in cursor.fetchall())


def _copy_all(wrapper: Any, entries: Iterable[Entry]) -> int | None:
    wrapper.ensure_connection()
    is_inner = wrapper.in_atomic_block
    all_or_none = transaction.atomic(wrapper.alias) if is_inner else wrapper.connection.transaction()
    try:
        with wrapper.wrap_database_errors, all_or_none:
            return _copy(wrapper, iter(entries), is_ours=not is_inner and wrapper.autocommit)
    except (IntegrityError, UnfitError):
        return None


def _copy(wrapper: Any, entries: Iterator[Entry], *, is_ours: bool) -> int | None:
    opening = next(entries, None)
    if opening is None:
        return None
    if is_ours:
        wrapper.connection.execute(END_IF_IDLE)
    held = _execute(wrapper, HOLD, {"from": opening.from_zone, "to": opening.to_zone}).fetchone()
    if held is None:
        raise UnfitError
    boundary_id, first, removed = held
    offset = size = 0
    with wrapper.connection.cursor() as cursor, cursor.copy(COPY) as copying:
        for offset, entry in enumerate(chain([opening], entries), first):
            if entry.references or entry.zones != opening.zones:
                raise UnfitError
            copying.write_row((boundary_id, offset, *entry.columns, entry.transaction_id))
            size += entry.size
    if removed is not None:
        # Planned for the table as it is now.
        new = {"boundary": boundary_id, "first": first}
        if wrapper.connection.execute(REPEATED, new, prepare=False).fetchone()[0]:
            raise UnfitError
    if _execute(wrapper, COUNT, _counted(opening.zones, offset - first + 1, size)).fetchone() is None:
        raise UnfitError
    return int(first)


def _counted(zones: tuple[str, str], count: int, size: int) -> dict[str, Any]:
    return {"from": zones[0], "to": zones[1], "count": count, "bytes": size}


def _execute(wrapper: Any, statement: str, given: dict[str, Any]) -> Any:
    """Planned once for each connection, where that lasts."""
    return wrapper.connection.execute(statement, given, prepare=True if pooler.may_prepare(wrapper) else None)
