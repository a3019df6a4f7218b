"""The queue's statements on SQLite: one writer at a time, so each function is one immediate transaction."""

import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from engines.core.states import State
from engines.models import TransactionRecord
from engines.transactions import payloads

COLUMNS = (
    *("uid", "pipeline_id", "priority", "available_at", "payload", "metadata", "dedupe_key"),
    *("correlation_id", "parent_id", "source", "trace_context", "replay_of", "payload_changes"),
)
JSON_COLUMNS = {"payload", "metadata", "trace_context", "payload_changes"}
INSERT_NEW = f"""
INSERT INTO engines_transactionrecord ({", ".join(COLUMNS)}) VALUES ({", ".join(["%s"] * len(COLUMNS))})
ON CONFLICT DO NOTHING
"""

CLAIM = """
UPDATE engines_transactionrecord SET state = 1, started_at = CASE WHEN rescues = 0 THEN %(now)s END,
  lease_owner = %(worker)s, lease_expires_at = %(until)s, fencing_token = fencing_token + 1, attempts = attempts + 1,
  policy_version = (SELECT policy.active_id FROM engines_pipeline pipeline JOIN engines_policy policy
    ON policy.id = pipeline.policy_id WHERE pipeline.id = %(pipeline)s)
WHERE id IN (
  SELECT id FROM engines_transactionrecord
   WHERE {pending} AND pipeline_id = %(pipeline)s AND available_at <= %(now)s
     AND EXISTS (SELECT 1 FROM engines_pipeline WHERE id = %(pipeline)s AND paused_at IS NULL)
   ORDER BY {order} LIMIT %(count)s)
RETURNING priority, available_at, id, fencing_token, policy_version, rescues,
  error, uid, payload, metadata,
  correlation_id, parent_id, source, created_at, trace_context, cancel_requested_at
"""
BY_PRIORITY = CLAIM.format(pending="state = 0", order="priority DESC, available_at, id")
# Its index says "+ 0" as well, so that no other statement takes it instead of t_claim.
OLDEST_FIRST = CLAIM.format(pending="state + 0 = 0", order="available_at, id")
IS_DUE = """
SELECT 1 FROM engines_transactionrecord WHERE state = 0 AND pipeline_id = %s AND available_at <= %s LIMIT 1
"""
DUE = """
SELECT p.id FROM engines_pipeline p WHERE p.id IN (SELECT value FROM json_each(%s)) AND p.paused_at IS NULL AND EXISTS (
  SELECT 1 FROM engines_transactionrecord t WHERE t.state = 0 AND t.pipeline_id = p.id AND t.available_at <= %s)
"""
SETTLE = """
UPDATE engines_transactionrecord SET result = %(result)s, error = %(error)s,
  state = CASE WHEN %(state)s = 3 AND cancel_requested_at IS NOT NULL THEN 4 ELSE %(state)s END,
  category = CASE WHEN cancel_requested_at IS NULL THEN %(category)s END,
  lease_owner = NULL, lease_expires_at = NULL, finished_at = %(now)s
WHERE id = %(id)s AND fencing_token = %(token)s AND lease_owner = %(owner)s RETURNING pipeline_id, state, started_at
"""
RENEW = """
UPDATE engines_transactionrecord SET lease_expires_at = %(until)s
WHERE id = %(id)s AND fencing_token = %(token)s AND lease_owner = %(owner)s RETURNING cancel_requested_at
"""
ATTEMPT = """
INSERT INTO engines_attempt (transaction_id, delivery, step, number, of_total, started_at, duration, outcome, category,
  error_type, message, traceback, policy_version, worker, trace_id)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""
COUNT = """
INSERT INTO engines_throughput (pipeline_id, minute, worker, succeeded, failed, cancelled, seconds, longest)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (pipeline_id, minute, worker) DO UPDATE SET succeeded = succeeded + excluded.succeeded,
  failed = failed + excluded.failed, cancelled = cancelled + excluded.cancelled, seconds = seconds + excluded.seconds,
  longest = max(longest, excluded.longest)
"""
UNLEASED = {"lease_owner": None, "lease_expires_at": None}
GIVEN_BACK = {"state": State.PENDING.value, "started_at": None, **UNLEASED}
IS_ANY_LAPSED = "SELECT EXISTS (SELECT 1 FROM engines_transactionrecord WHERE lease_expires_at < %s)"
RESCUE = """
UPDATE engines_transactionrecord SET rescues = rescues + %(begun)s, attempts = attempts - 1 + %(begun)s,
  lease_owner = NULL, lease_expires_at = NULL,
  state = CASE WHEN cancel_requested_at IS NOT NULL THEN 4 WHEN rescues + %(begun)s >= %(poison)s THEN 3 ELSE 0 END,
  finished_at = CASE WHEN cancel_requested_at IS NOT NULL OR rescues + %(begun)s >= %(poison)s THEN %(now)s END,
  started_at = CASE WHEN cancel_requested_at IS NOT NULL OR rescues + %(begun)s >= %(poison)s THEN started_at END
WHERE id = %(id)s RETURNING id, uid, pipeline_id, state, attempts, policy_version
"""


@transaction.atomic
def insert(pipeline: str, document: str, count: int, **_for_postgresql: Any) -> set[str] | None:
    """Insert the drafts of a JSON document; the ids of those that are new, None if all are."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, priority FROM engines_pipeline WHERE name = %s", [pipeline])
        found = cursor.fetchone()
        if found is None:
            return set()
        now, new = _text(timezone.now()), set()
        for draft in json.loads(document):
            cursor.execute(INSERT_NEW, [_cell(name, draft, found, now) for name in COLUMNS])
            if cursor.rowcount == 1:
                new.add(draft["uid"])
        return None if len(new) == count else new


def _cell(name: str, draft: dict[str, Any], pipeline: tuple[int, int], now: str) -> Any:
    value = draft.get(name)
    match name:
        case "pipeline_id":
            return pipeline[0]
        case "priority":
            return pipeline[1] if value is None else value
        case "available_at":
            return now if value is None else _text(datetime.fromisoformat(value))
        case "metadata":
            return json.dumps(value or {})
    return json.dumps(value) if name in JSON_COLUMNS and value is not None else value


def claim(
    pipeline_id: int,
    count: int,
    worker: int,
    lease: float,
    *,
    is_own: bool = False,  # noqa: ARG001 (for PostgreSQL)
    is_oldest_first: bool = False,
) -> list[list[Any]]:
    # A look takes no lock: idle workers must not keep writers waiting.
    with connection.cursor() as cursor:
        cursor.execute(IS_DUE, [pipeline_id, _text(timezone.now())])
        if cursor.fetchone() is None:
            return []
    with transaction.atomic(), connection.cursor() as cursor:
        now = timezone.now()
        times: dict[str, Any] = {"now": _text(now), "until": _text(now + timedelta(seconds=lease))}
        parameters = {"worker": worker, "pipeline": pipeline_id, "count": count, **times}
        cursor.execute(OLDEST_FIRST if is_oldest_first else BY_PRIORITY, parameters)
        by_age = sorted(cursor.fetchall(), key=lambda row: (row[1], row[2]))
    rows = by_age if is_oldest_first else sorted(by_age, key=lambda row: -row[0])
    claimed = []
    for _, _, *keys, error, uid, payload, metadata, correlation_id, parent_id, source, created_at, trace, asked in rows:
        values = [payloads.decode(payload), payloads.decode(metadata), correlation_id, parent_id, source]
        made = [_time(created_at).timestamp(), payloads.decode(trace), asked is not None]
        claimed.append([*keys, error and _behind(json.loads(error), now), uid, *values, *made])
    return claimed


def _behind(error: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Of one that was put back. When its time is up is kept by the wall clock."""
    return error | {"time_left": error["ends_at"] - now.timestamp()} if "ends_at" in error else error


def due(pipeline_ids: list[int]) -> set[int]:
    """The pipelines that have work now."""
    with connection.cursor() as cursor:
        cursor.execute(DUE, [json.dumps(pipeline_ids), _text(timezone.now())])
        return {pipeline_id for (pipeline_id,) in cursor.fetchall()}


def begin(record_id: int, token: int, owner: int) -> bool:
    return bool(_held({"id": record_id, "token": token, "owner": owner}).update(started_at=timezone.now()))


def lock(ids: list[int]) -> None:
    """Nothing: whoever writes has locked everything."""


def make_ready() -> None:
    connection.ensure_connection()


@transaction.atomic
def settle(records: str, attempts: str, worker: int | None, **_for_postgresql: Any) -> dict[int, int]:
    """The states by the ids of those that are settled."""
    now = timezone.now()
    ended: dict[int, list[tuple[int, float]]] = {}
    settled: dict[int, int] = {}
    with connection.cursor() as cursor:
        for one in json.loads(records):
            texts = {name: None if one.get(name) is None else json.dumps(one[name]) for name in ("result", "error")}
            cursor.execute(SETTLE, {"category": None, **one, **texts, "now": _text(now)})
            for pipeline_id, state, started_at in cursor.fetchall():
                settled[one["id"]] = state
                ended.setdefault(pipeline_id, []).append((state, (now - _time(started_at or now)).total_seconds()))
        _keep_attempts(attempts, settled, now, worker)
        for pipeline_id, ends in ended.items():
            states = [state for state, _ in ends]
            seconds = [seconds for _, seconds in ends]
            counts = [*(states.count(state) for state in (2, 3, 4)), sum(seconds), max(seconds)]
            cursor.execute(COUNT, [pipeline_id, _minute(now), worker or 0, *counts])
    return settled


@transaction.atomic
def postpone(records: str, attempts: str, worker: int | None, *, is_noted: bool = False) -> dict[int, int]:  # noqa: ARG001 (for PostgreSQL)
    now, postponed = timezone.now(), {}
    for one in json.loads(records):
        due_at, delivered = now + timedelta(seconds=one["seconds"]), F("attempts") - one["undelivered"]
        left, error = one["time_left"], one["error"]
        error |= {} if left is None else {"ends_at": now.timestamp() + left}
        state = _give_back(one, available_at=due_at, error=error, attempts=delivered)
        if state is not None:
            postponed[one["id"]] = state
    _keep_attempts(attempts, postponed, now, worker)
    return postponed


@transaction.atomic
def note(leases: str, attempts: str, worker: int | None) -> set[int]:
    held = {one["id"] for one in json.loads(leases) if _held(one).exists()}
    _keep_attempts(attempts, held, timezone.now(), worker)
    return held


def _keep_attempts(attempts: str, of: Collection[int], now: datetime, worker: int | None) -> None:
    always = ("id", "token", "step", "number", "of_total")
    known = ("duration", "outcome", "category", "error_type", "message", "traceback", "policy_version")
    with connection.cursor() as cursor:
        for attempt in json.loads(attempts):
            if attempt["id"] in of:
                started_at = _text(now - timedelta(seconds=attempt["age"]))
                told = [*(attempt[name] for name in always), started_at, *(attempt.get(name) for name in known)]
                cursor.execute(ATTEMPT, [*told, worker, attempt.get("trace_id")])


@transaction.atomic
def renew(leases: str, seconds: float) -> dict[int, bool]:
    """By the ids of those that are held, whether their end was requested."""
    until, held = _text(timezone.now() + timedelta(seconds=seconds)), dict[int, bool]()
    with connection.cursor() as cursor:
        for one in json.loads(leases):
            cursor.execute(RENEW, {**one, "until": until})
            for (asked_at,) in cursor.fetchall():
                held[one["id"]] = asked_at is not None
    return held


@transaction.atomic
def release(leases: str) -> dict[int, int]:
    given = {one["id"]: _give_back(one, attempts=F("attempts") - 1) for one in json.loads(leases)}
    return {record_id: state for record_id, state in given.items() if state is not None}


def _give_back(lease: dict[str, Any], **changes: Any) -> int | None:
    """Make it pending again, or cancelled if that was requested; its state, None if the lease is lost."""
    if _held(lease).filter(cancel_requested_at=None).update(**GIVEN_BACK, **changes):
        return State.PENDING.value
    pipeline_id = _held(lease).values_list("pipeline_id", flat=True).first()
    if pipeline_id is None:
        return None
    _held(lease).update(**UNLEASED, state=State.CANCELLED.value, finished_at=timezone.now(), **changes)
    count_ends(pipeline_id, 0, 0, 0, 1)
    return State.CANCELLED.value


def _held(lease: dict[str, Any]) -> QuerySet[TransactionRecord]:
    """The transaction of a lease, if the lease is not lost."""
    return TransactionRecord.objects.filter(pk=lease["id"], fencing_token=lease["token"], lease_owner=lease["owner"])


def is_any_to_rescue(worker: int | None) -> bool:
    if worker is not None:
        return _to_rescue(worker).exists()
    with connection.cursor() as cursor:
        cursor.execute(IS_ANY_LAPSED, [_text(timezone.now())])
        return bool(cursor.fetchone()[0])


def _to_rescue(worker: int | None) -> QuerySet[TransactionRecord]:
    leased = TransactionRecord.objects.filter(lease_expires_at__isnull=False).order_by("lease_expires_at")
    return leased.filter(lease_expires_at__lt=timezone.now()) if worker is None else leased.filter(lease_owner=worker)


@transaction.atomic
def rescue(limit: int, poison: int, worker: int | None, sparing: list[int]) -> list[tuple[Any, ...]]:
    now, rescued = _text(timezone.now()), []
    found = _to_rescue(worker).exclude(pk__in=sparing).values_list("pk", "lease_owner", "rescues", "started_at")
    with connection.cursor() as cursor:
        for record_id, owner, rescues, started_at in list(found[:limit]):
            begun = int(rescues == 0 or started_at is not None)
            cursor.execute(RESCUE, {"id": record_id, "begun": begun, "poison": poison, "now": now})
            rescued += [(*row, owner) for row in cursor.fetchall()]
    return rescued


def count_ends(pipeline_id: int, worker: int, succeeded: int, failed: int, cancelled: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(COUNT, [pipeline_id, _minute(timezone.now()), worker, succeeded, failed, cancelled, 0, 0])


def wake(pipeline_id: int) -> None:
    """Waiting workers look at the file itself."""


def _text(time: datetime) -> str:
    return str(connection.ops.adapt_datetimefield_value(time))


def _time(stored: datetime) -> datetime:
    return stored.replace(tzinfo=UTC)


def _minute(now: datetime) -> str:
    return _text(now.replace(second=0, microsecond=0))
