"""The queue's statements on PostgreSQL. Batches travel as one JSON document; times are the server's."""

import select
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any
from weakref import WeakSet

import psycopg
from django.db import DatabaseError, connection, transaction

from engines.transactions import payloads
from engines.transactions.notifications import Notifier
from ergon_site.access.database import pooler

CHANNEL = "ergon_transactions"
# What a notification says behind a pipeline's id while very many are submitted to it.
BURST = " burst"
PREPARED_FROM = 2

# Which ids are new is told only where some are not: mostly all of them are.
_INSERT = """
WITH p AS MATERIALIZED (SELECT id, priority FROM engines_pipeline WHERE name = %s),
i AS (
  INSERT INTO engines_transactionrecord (uid, pipeline_id, payload, priority, available_at, metadata{columns})
  SELECT d.uid, p.id, d.payload, {values} FROM p, json_to_recordset(%s) AS d (uid text, payload jsonb{types})
  {repeats} RETURNING uid)
SELECT CASE WHEN count(*) < %s THEN COALESCE(array_agg(uid), ARRAY[]::text[]) END, (SELECT id FROM p) FROM i
"""
# Ids that were made a moment ago repeat nobody's.
INSERT_PLAIN = _INSERT.format(columns="", values="p.priority, now(), '{}'", types="", repeats="")
INSERT = _INSERT.format(
    columns=""", dedupe_key, correlation_id, parent_id, source, trace_context, replay_of, payload_changes""",
    values="""COALESCE(d.priority, p.priority), COALESCE(d.available_at, now()), COALESCE(d.metadata, '{}'),
    d.dedupe_key, d.correlation_id, d.parent_id, d.source, d.trace_context, d.replay_of, d.payload_changes""",
    types=""", priority int, available_at timestamptz, metadata jsonb, dedupe_key text, correlation_id text,
    parent_id text, source text, trace_context jsonb, replay_of bigint, payload_changes jsonb""",
    repeats="ON CONFLICT DO NOTHING",
)

# A notification need not wait for the disk: what it tells of is there already. For those of others it waits a while.
NOTIFY = """
SELECT set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '1s', true),
  pg_notify('ergon_transactions', p) FROM unnest(%s::text[]) p
"""

# The choice is kept apart from the update: joined into it, the limit may be exceeded when a plan runs it again. It is
# not joined at all: a plan that was made while the table was small would hash the choice and read the whole index. One
# JSON text is read several times faster than a hundred rows of thirteen columns. The error is why it was put back.
CLAIM = """
WITH p AS MATERIALIZED (
  SELECT policy.active_id AS version{commit} FROM engines_pipeline pipeline JOIN engines_policy policy
    ON policy.id = pipeline.policy_id WHERE pipeline.id = %s AND pipeline.paused_at IS NULL),
c AS MATERIALIZED (
  SELECT id FROM engines_transactionrecord
   WHERE {pending} AND pipeline_id = %s AND available_at <= now() AND EXISTS (SELECT FROM p)
   ORDER BY {order} LIMIT {count:d} FOR UPDATE SKIP LOCKED),
u AS (
  UPDATE engines_transactionrecord t SET state = 1, started_at = CASE WHEN t.rescues = 0 THEN now() END,
    lease_owner = %s, lease_expires_at = clock_timestamp() + %s * interval '1 second',
    fencing_token = t.fencing_token + 1,
    attempts = t.attempts + 1, policy_version = (SELECT version FROM p)
  WHERE t.id = ANY(ARRAY(SELECT id FROM c))
  RETURNING t.*)
SELECT json_agg(json_build_array(id, fencing_token, policy_version, rescues,
  CASE WHEN error IS NOT NULL THEN error || jsonb_build_object(
    'time_left', (error->>'ends_at')::float8 - EXTRACT(epoch FROM clock_timestamp())) END, uid, payload, metadata,
  correlation_id, parent_id, source, EXTRACT(epoch FROM created_at), trace_context, cancel_requested_at IS NOT NULL)
  ORDER BY {order})::text FROM u
"""
BY_PRIORITY = {"pending": "state = 0", "order": "priority DESC, available_at, id"}
# Its index says "+ 0" as well, so that no other statement takes it instead of t_claim.
OLDEST_FIRST = {"pending": "state + 0 = 0", "order": "available_at, id"}

# A plan that is kept must not be one for the empty table that there was at first.
TUNING = ("enable_seqscan", "enable_sort", "enable_bitmapscan")
# In one message with the statement that follows: together they are one transaction.
TUNED = "".join(f"SET LOCAL {name} = off; " for name in TUNING)

# Which of these pipelines have work. The limit keeps a plan from reading all that waits.
DUE = """
SELECT p.id FROM engines_pipeline p WHERE p.id = ANY(%s) AND p.paused_at IS NULL AND (
  SELECT 1 FROM engines_transactionrecord t
   WHERE t.state = 0 AND t.pipeline_id = p.id AND t.available_at <= now() LIMIT 1) IS NOT NULL
"""

# A claim need not wait for the disk: the settlement does, and the claim with it. One that a crash of the server takes
# back is made anew with the same token, perhaps by somebody else, so a lease is told by its owner as well.
UNFLUSHED = ", set_config('synchronous_commit', 'off', true)"

# "+ 0": statistics say that nothing runs, and a plan that believes them walks through every dead entry of an index.
_ATTEMPTS = """a AS (
  INSERT INTO engines_attempt (transaction_id, delivery, step, number, of_total, started_at, duration, outcome,
    category, error_type, message, traceback, policy_version, worker, trace_id)
  SELECT a.id, a.token, a.step, a.number, a.of_total, now() - a.age * interval '1 second', a.duration, a.outcome,
    a.category, a.error_type, a.message, a.traceback, a.policy_version, %s::bigint, a.trace_id
  FROM json_to_recordset(%s) AS a (id bigint, token bigint, step smallint, number int, of_total int, age float8,
    duration float8, outcome smallint, category smallint, error_type text, message text, traceback text,
    policy_version bigint, trace_id text)
  JOIN s ON s.id = a.id{conflict})"""
# Attempts that were noted while the transaction ran are there already. Those of all others need not be looked for.
_NOTED = " ON CONFLICT DO NOTHING"
# Rows are found as in the claim, whatever plan is kept.
_SETTLE = f"""
WITH u AS MATERIALIZED (
  SELECT * FROM json_to_recordset(%s) AS u (id bigint, token bigint, owner bigint, state smallint, result jsonb,
    error jsonb, category smallint)),
s AS (
  UPDATE engines_transactionrecord t SET result = u.result, error = u.error,
    state = CASE WHEN u.state = 3 AND t.cancel_requested_at IS NOT NULL THEN 4 ELSE u.state END,
    category = CASE WHEN t.cancel_requested_at IS NULL THEN u.category END,
    lease_owner = NULL, lease_expires_at = NULL, finished_at = now()
  FROM u WHERE t.id = ANY(ARRAY(SELECT id FROM u))
    AND t.id = u.id AND t.fencing_token = u.token AND t.lease_owner + 0 = u.owner
  RETURNING t.id, t.pipeline_id, t.state, EXTRACT(epoch FROM now() - COALESCE(t.started_at, now())) AS seconds),
{_ATTEMPTS},
m AS (
  INSERT INTO engines_throughput AS m (pipeline_id, minute, worker, succeeded, failed, cancelled, seconds, longest)
  SELECT pipeline_id, date_trunc('minute', now()), %s, count(*) FILTER (WHERE state = 2),
    count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 4), sum(seconds), max(seconds) FROM s
  GROUP BY pipeline_id ORDER BY pipeline_id
  ON CONFLICT (pipeline_id, minute, worker) DO UPDATE SET succeeded = m.succeeded + excluded.succeeded,
    failed = m.failed + excluded.failed, cancelled = m.cancelled + excluded.cancelled,
    seconds = m.seconds + excluded.seconds, longest = GREATEST(m.longest, excluded.longest))
SELECT id, state FROM s
"""

# What is given back is pending again, or cancelled if that was requested.
_GIVEN_BACK = """state = CASE WHEN t.cancel_requested_at IS NULL THEN 0 ELSE 4 END,
    finished_at = CASE WHEN t.cancel_requested_at IS NOT NULL THEN now() END,
    started_at = CASE WHEN t.cancel_requested_at IS NOT NULL THEN t.started_at END,
    lease_owner = NULL, lease_expires_at = NULL"""
_CANCELLED = """m AS (
  INSERT INTO engines_throughput AS m (pipeline_id, minute, worker, succeeded, failed, cancelled, seconds, longest)
  SELECT pipeline_id, date_trunc('minute', now()), 0, 0, 0, count(*), 0, 0 FROM s WHERE state = 4
  GROUP BY pipeline_id ORDER BY pipeline_id
  ON CONFLICT (pipeline_id, minute, worker) DO UPDATE SET cancelled = m.cancelled + excluded.cancelled)"""
_POSTPONE = f"""
WITH s AS (
  UPDATE engines_transactionrecord t SET {_GIVEN_BACK}, available_at = now() + u.seconds * interval '1 second',
    error = CASE WHEN u.time_left IS NULL THEN u.error ELSE
      u.error || jsonb_build_object('ends_at', EXTRACT(epoch FROM clock_timestamp()) + u.time_left) END,
    attempts = t.attempts - u.undelivered
  FROM json_to_recordset(%s) AS u (id bigint, token bigint, owner bigint, seconds float8, error jsonb,
    time_left float8, undelivered int)
  WHERE t.id = u.id AND t.fencing_token = u.token AND t.lease_owner + 0 = u.owner
  RETURNING t.id, t.pipeline_id, t.state),
{_ATTEMPTS},
{_CANCELLED}
SELECT id, state FROM s
"""
SETTLE, SETTLE_NOTED = _SETTLE.format(conflict=""), _SETTLE.format(conflict=_NOTED)
POSTPONE, POSTPONE_NOTED = _POSTPONE.format(conflict=""), _POSTPONE.format(conflict=_NOTED)
NOTE = f"""
WITH s AS MATERIALIZED (
  SELECT t.id FROM engines_transactionrecord t JOIN json_to_recordset(%s) AS u (id bigint, token bigint, owner bigint)
    ON t.id = u.id AND t.fencing_token = u.token AND t.lease_owner + 0 = u.owner),
{_ATTEMPTS.format(conflict=_NOTED)}
SELECT id FROM s
"""

BEGIN = """
UPDATE engines_transactionrecord SET started_at = now()
WHERE id = %s AND fencing_token = %s AND lease_owner + 0 = %s RETURNING id
"""

# A lease runs from the moment its row was locked: who had to wait for that would renew with time that is over.
RENEW = """
WITH l AS MATERIALIZED (
  SELECT t.id FROM engines_transactionrecord t JOIN json_to_recordset(%s) AS u (id bigint, token bigint, owner bigint)
    ON t.id = u.id AND t.fencing_token = u.token AND t.lease_owner + 0 = u.owner
   ORDER BY t.id FOR UPDATE OF t)
UPDATE engines_transactionrecord t SET lease_expires_at = clock_timestamp() + %s * interval '1 second'
FROM l WHERE t.id = l.id RETURNING t.id, t.cancel_requested_at IS NOT NULL
"""

LOCK = "SELECT id FROM engines_transactionrecord WHERE id = ANY(%s) ORDER BY id FOR UPDATE"

RELEASE = f"""
WITH s AS (
  UPDATE engines_transactionrecord t SET {_GIVEN_BACK}, attempts = t.attempts - 1
  FROM json_to_recordset(%s) AS u (id bigint, token bigint, owner bigint)
  WHERE t.id = u.id AND t.fencing_token = u.token AND t.lease_owner + 0 = u.owner
  RETURNING t.id, t.pipeline_id, t.state),
{_CANCELLED},
n AS MATERIALIZED (SELECT pg_notify('ergon_transactions', p) FROM (SELECT DISTINCT pipeline_id::text AS p FROM s) d)
SELECT s.id, s.state, (SELECT count(*) FROM n) FROM s
"""

RESCUE = """
WITH c AS MATERIALIZED (
  SELECT id, lease_owner, (rescues = 0 OR started_at IS NOT NULL)::int AS begun FROM engines_transactionrecord
   WHERE lease_expires_at > '-infinity' AND {which} ORDER BY lease_expires_at LIMIT %s FOR UPDATE SKIP LOCKED),
r AS (
  UPDATE engines_transactionrecord t SET rescues = t.rescues + c.begun, attempts = t.attempts - 1 + c.begun,
    lease_owner = NULL, lease_expires_at = NULL,
    state = CASE WHEN t.cancel_requested_at IS NOT NULL THEN 4 WHEN t.rescues + c.begun >= %s THEN 3 ELSE 0 END,
    finished_at = CASE WHEN t.cancel_requested_at IS NOT NULL OR t.rescues + c.begun >= %s THEN now() END,
    started_at = CASE WHEN t.cancel_requested_at IS NOT NULL OR t.rescues + c.begun >= %s THEN t.started_at END
  FROM c WHERE t.id = c.id
  RETURNING t.id, t.uid, t.pipeline_id, t.state, t.attempts, t.policy_version, c.lease_owner),
n AS MATERIALIZED (SELECT pg_notify('ergon_transactions', p) FROM (SELECT DISTINCT pipeline_id::text AS p FROM r) d)
SELECT r.*, (SELECT count(*) FROM n) FROM r
"""
IS_ANY = "SELECT EXISTS (SELECT FROM engines_transactionrecord WHERE lease_expires_at > '-infinity' AND {which})"
# A range: of "IS NOT NULL" a planner without statistics, as after a burst, believes that it is most of the table.
LAPSED = "lease_expires_at < now() AND id <> ALL(%s)"
IS_LAPSED = "lease_expires_at < now()"
OF_WORKER = "lease_expires_at < 'infinity' AND lease_owner = %s"

COUNT_ENDS = """
INSERT INTO engines_throughput AS m (pipeline_id, minute, worker, succeeded, failed, cancelled, seconds, longest)
VALUES (%s, date_trunc('minute', now()), %s, %s, %s, %s, 0, 0)
ON CONFLICT (pipeline_id, minute, worker) DO UPDATE SET succeeded = m.succeeded + excluded.succeeded,
  failed = m.failed + excluded.failed, cancelled = m.cancelled + excluded.cancelled
"""


def insert(
    pipeline: str,
    document: str,
    count: int,
    *,
    is_plain: bool = False,
    meanwhile: Callable[[], Any] | None = None,
) -> set[str] | None:
    """Insert the drafts of a JSON document; the ids of those that are new, None if all are.

    Plain ones have a new id and a payload and nothing else, which is quicker. While the server works, `meanwhile` may
    be called, and its errors ignored.
    """
    began = time.monotonic()
    statement = INSERT_PLAIN if is_plain else INSERT
    [(new, pipeline_id)] = _prepared(statement, [pipeline, document, count], meanwhile)
    if new is None or new:
        _announce(pipeline_id, time.monotonic() - began)
    return None if new is None else set(new)


def _announce(pipeline_id: int, took: float) -> None:
    """Notify workers once the new transactions are committed, and never if they are rolled back."""
    if connection.in_atomic_block:
        hook = _hooks.setdefault(pipeline_id, partial(notifier.committed, pipeline_id))
        hooks: list[Any] = connection.run_on_commit
        # Once for all that are submitted in a row.
        if hooks[-1:] != [(set(connection.savepoint_ids), hook, True)]:
            transaction.on_commit(hook, robust=True)
    elif connection.get_autocommit():
        notifier.committed(pipeline_id, took)
    else:  # the caller commits by hand, which only the database sees
        wake(pipeline_id)


def notify(pipelines: Collection[int], is_burst: bool) -> None:  # noqa: FBT001
    _prepared(NOTIFY, [[f"{pipeline_id}{BURST if is_burst else ''}" for pipeline_id in pipelines]])


notifier = Notifier(notify)
_hooks: dict[int, Callable[[], None]] = {}


def claim(
    pipeline_id: int, count: int, worker: int, lease: float, *, is_own: bool = False, is_oldest_first: bool = False
) -> list[list[Any]]:
    """`is_own`: on a connection that does nothing else, and may be prepared for it."""
    # The count is part of the text, because a plan that is kept must know it.
    order = OLDEST_FIRST if is_oldest_first else BY_PRIORITY
    statement = CLAIM.format(count=count, commit=UNFLUSHED if is_own else "", **order)
    ask = _asking() if is_own else _rows
    [(text,)] = ask(statement, [pipeline_id, pipeline_id, worker, lease])
    return payloads.decode(text) or []


def due(pipeline_ids: list[int]) -> set[int]:
    """The pipelines that have work now. On a connection that is prepared for claims."""
    return _ids(_asking()(DUE, [pipeline_ids]))


def _asking() -> Callable[[str, list[Any]], list[tuple[Any, ...]]]:
    """The form of a statement for a dedicated connection: prepared, where that lasts and the session can be tuned."""
    make_ready()
    return _own_rows if connection.connection in _tuned else _tuned_rows


def make_ready() -> None:
    """Connect, and tune the session unless a pooler shares it."""
    connection.ensure_connection()
    raw: Any = connection.connection
    if raw in _tuned or pooler.is_shared(connection):
        return
    with connection.cursor() as cursor:
        cursor.execute("; ".join(f"SET {name} = off" for name in TUNING))
    _tuned.add(raw)


_tuned: WeakSet[Any] = WeakSet()


def begin(record_id: int, token: int, owner: int) -> bool:
    return bool(_rows(BEGIN, [record_id, token, owner]))


def settle(
    records: str, attempts: str, worker: int | None, *, is_noted: bool = False, is_own: bool = False
) -> dict[int, int]:
    """The states of those that are settled, by id. `is_own`: as of a claim. To plan it takes a fifth of its time."""
    ask = _asking() if is_own else _rows
    return _by_id(ask(SETTLE_NOTED if is_noted else SETTLE, [records, worker, attempts, worker or 0]))


def postpone(records: str, attempts: str, worker: int | None, *, is_noted: bool = False) -> dict[int, int]:
    return _by_id(_rows(POSTPONE_NOTED if is_noted else POSTPONE, [records, worker, attempts]))


def note(leases: str, attempts: str, worker: int | None) -> set[int]:
    return _ids(_rows(NOTE, [leases, worker, attempts]))


def lock(ids: list[int]) -> None:
    _rows(LOCK, [ids])


def renew(leases: str, seconds: float) -> dict[int, bool]:
    """By the ids of those that are held, whether their end was requested."""
    return _by_id(_rows(RENEW, [leases, seconds]))


def release(leases: str) -> dict[int, int]:
    return _by_id(_rows(RELEASE, [leases]))


def is_any_to_rescue(worker: int | None) -> bool:
    which, parameters = (IS_LAPSED, []) if worker is None else (OF_WORKER, [worker])
    return bool(_rows(IS_ANY.format(which=which), parameters)[0][0])


def rescue(limit: int, poison: int, worker: int | None, sparing: list[int]) -> list[tuple[Any, ...]]:
    if worker is None:
        return _rows(RESCUE.format(which=LAPSED), [sparing, limit, poison, poison, poison])
    return _rows(RESCUE.format(which=OF_WORKER), [worker, limit, poison, poison, poison])


def count_ends(pipeline_id: int, worker: int, succeeded: int, failed: int, cancelled: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(COUNT_ENDS, [pipeline_id, worker, succeeded, failed, cancelled])


def wake(pipeline_id: int) -> None:
    """Notify waiting workers."""
    _rows("SELECT pg_notify(%s, %s)", [CHANNEL, str(pipeline_id)])


def _prepared(
    statement: str, parameters: list[Any], meanwhile: Callable[[], Any] | None = None
) -> list[tuple[Any, ...]]:
    """The same, planned once for each connection: for a single row, planning takes longer than inserting.

    Django's own cursors never prepare, whatever the connection allows; nothing does where a pooler shares connections.
    """
    connection.ensure_connection()
    return pooler.carry_out(
        connection, lambda: _prepared_rows(statement, parameters, meanwhile), lambda: _rows(statement, parameters)
    )


def _own_rows(statement: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    """The same, on a session that was found to be this process's own."""
    try:
        return _prepared_rows(statement, parameters, None)
    except DatabaseError as error:
        if not pooler.is_lost(error.__cause__):
            raise
    return _prepared(statement, parameters)


def _prepared_rows(statement: str, parameters: list[Any], meanwhile: Callable[[], Any] | None) -> list[tuple[Any, ...]]:
    connection.ensure_connection()
    raw: Any = connection.connection
    raw.prepare_threshold = PREPARED_FROM
    wrap = connection._prepare_cursor  # type: ignore[attr-defined]  # noqa: SLF001 (errors, logs and hooks as ever)
    # In pipeline mode psycopg does not wait for rows before somebody wants them.
    mode = nullcontext() if meanwhile is None else raw.pipeline()
    with connection.wrap_database_errors, mode, wrap(psycopg.Cursor(raw)) as cursor:
        cursor.execute(statement, parameters)
        if meanwhile is not None:
            _send_all(raw.pgconn)
            with suppress(Exception):
                meanwhile()
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _send_all(pgconn: psycopg.pq.abc.PGconn) -> None:
    """Send what is left of a long statement, without which the server cannot begin."""
    writable = select.poll()
    writable.register(pgconn.socket, select.POLLOUT)
    while pgconn.flush():
        writable.poll()


def _tuned_rows(statement: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    """The same, tuned for this transaction alone."""
    with connection.cursor() as cursor:
        cursor.execute(TUNED + statement, parameters)
        while cursor.nextset():
            pass
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _rows(statement: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _by_id(rows: Iterable[tuple[Any, ...]]) -> dict[int, Any]:
    return {row[0]: row[1] for row in rows}


def _ids(rows: Iterable[tuple[Any, ...]]) -> set[int]:
    return {row[0] for row in rows}
