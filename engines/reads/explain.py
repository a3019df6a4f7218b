"""The facts behind the explanation of a transaction."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import BigIntegerField, Case, Count, Max, OuterRef, Q, QuerySet, Subquery, When, Window
from django.db.models.functions import Right

from engines import policies, transactions, workers
from engines.core import explanation
from engines.core.errors import ExceptionType
from engines.core.policy import ConsumerPolicy
from engines.core.states import CATEGORIES, CATEGORY_OF, STAGE_OF, STAGES, AttemptOutcome, State
from engines.core.steps import WORK
from engines.models import Attempt, DeadLetter, Pipeline, Policy, PolicyVersion, TransactionRecord, Worker
from engines.reads import blockers
from ergon_site.access.database.clock import database_time

AHEAD_CAP = 10_000
# Of a traceback among others.
LONGEST_END = 3000


def explain(uid: str) -> dict[str, Any]:
    """A sentence about the state of a transaction, the facts behind it, and the attempts so far."""
    record = transactions.find(uid)
    attempts = attempts_of(record)
    facts = facts_of(record, letter_of(record), attempts)
    return {
        "id": record.uid,
        "state": record.word,
        "sentence": explanation.sentence(facts),
        "facts": facts,
        "attempts": attempts,
        "result": record.result,
        "error": record.failure and {name: record.failure.get(name) for name in ("type", "message", "category")},
    }


def letter_of(record: TransactionRecord) -> DeadLetter | None:
    """The dead letter of a transaction, without what is long of it."""
    if record.state != State.FAILED:
        return None
    return DeadLetter.objects.defer("payload", "traceback", "details").filter(transaction_id=record.pk).first()


def facts_of(
    record: TransactionRecord, letter: DeadLetter | None, attempts: Sequence[dict[str, Any]], *, is_short: bool = False
) -> dict[str, Any]:
    """All that is known of its state; if that is enough, only what its sentence needs."""
    now, pipeline = database_time(), record.pipeline
    is_next = record.state == State.PENDING and not (is_short and (pipeline.is_paused or record.available_at > now))
    attempt = _attempt_at(record, now, is_tried=bool(attempts)) if record.state == State.RUNNING else None
    ahead = _ahead(record) if is_next else 0
    worker = Worker.objects.filter(pk=record.lease_owner).first() if record.lease_owner else None
    return {
        "state": record.word,
        "pipeline": pipeline.name,
        "priority": record.priority,
        "created_at": record.created_at.isoformat(),
        "due_in": _seconds(record.available_at, now),
        "paused_by": pipeline.paused_by if pipeline.is_paused else "",
        "paused_for": _seconds(now, pipeline.paused_at),
        "pause_reason": pipeline.pause_reason,
        "workers": [str(worker) for worker in serving(pipeline)] if is_next else [],
        "ahead": min(ahead, AHEAD_CAP),
        "is_ahead_capped": ahead > AHEAD_CAP,
        "hindrances": [one.facts() for one in _hindrances(record)],
        "worker": str(worker or ""),
        "lease_ends_in": _seconds(record.lease_expires_at, now),
        "running_for": _seconds(now, record.started_at) if record.state == State.RUNNING else 0.0,
        "cancel_requested_for": _seconds(now, record.cancel_requested_at) if record.cancel_requested_at else None,
        "ended_ago": _seconds(now, record.finished_at),
        "deliveries": max(record.deliveries, *(one["delivery"] for one in attempts), 0),
        "rescues": record.rescues,
        "attempt": attempt,
        "progress": _progress(record, attempt, now),
        "attempts_spent": (record.failure or {}).get("spent", 0),
        "result_note": record.result_note,
        "error": record.failure,
        "dead_letter": letter.state if letter else None,
        "dead_letter_id": letter.pk if letter else None,
        "replayed_as": letter.replayed_as if letter else "",
    }


def _attempt_at(record: TransactionRecord, now: datetime, *, is_tried: bool) -> dict[str, Any] | None:
    """The attempt that a running transaction is at, or waits for, once one has failed."""
    made = Attempt.objects.filter(transaction_id=record.pk, delivery=record.fencing_token)
    last = made.order_by("-started_at").first() if is_tried else None
    if last is None:
        behind = record.error or {}
        if not behind.get("of"):
            return None
        return {"step": behind["step"], "number": behind["spent"] + 1, "of": behind["of"], "next_in": 0.0}
    is_next = last.outcome == AttemptOutcome.FAILURE and last.number < last.of_total
    if not is_next or last.category == CATEGORIES[ExceptionType.BUSINESS] or record.policy_version is None:
        return None
    step = STAGE_OF[last.step].value
    retry = getattr(policies.of_version(record.policy_version).steps, step).retry
    begins_at = last.started_at + timedelta(seconds=last.duration + retry.delay(last.number - 1))
    next_in = max(0.0, _seconds(begins_at, now))
    return {"step": step, "number": last.number + 1, "of": last.of_total, "next_in": next_in}


def _progress(record: TransactionRecord, attempt: dict[str, Any] | None, now: datetime) -> dict[str, Any] | None:
    """How many attempts, and how many seconds of its time limit, one that has not ended has used up."""
    if State(record.state).is_final or record.policy_version is None:
        return None
    policy, behind = policies.of_version(record.policy_version), record.error or {}
    work = policy.steps.process if isinstance(policy, ConsumerPolicy) else policy.steps.produce
    spent, of = (attempt["number"] - 1, attempt["of"]) if attempt else (behind.get("spent", 0), behind.get("of"))
    limit, used = behind.get("timeout") or policy.loop.transaction_timeout, 0.0
    if "ends_at" in behind and limit is not None:
        used = limit - (behind["ends_at"] - now.timestamp())
    elif record.state == State.RUNNING:
        used = _seconds(now, record.started_at)
    return {
        "attempts": spent,
        "of": of or work.retry.max_attempts,
        "seconds": 0.0 if limit is None else min(max(0.0, used), limit),
        "limit": limit,
    }


def attempts_of(record: TransactionRecord) -> list[dict[str, Any]]:
    """Every try of every step, in the order in which they were made."""
    rows = list(_tried(record))
    return _told(rows, _deliveries(rows, record.deliveries))


def newest_attempts(record: TransactionRecord, count: int) -> tuple[list[dict[str, Any]], int]:
    """The last attempts, and how many there were before them. Of a long traceback there is the end."""
    work = [STAGES[stage] for stage in WORK]
    # Of a delivery that was parked and goes on, attempts are counted on: it began with the last first one.
    first = Case(When(number=1, step__in=work, then="delivery"), output_field=BigIntegerField())
    rows = list(
        _tried(record)
        .reverse()
        .defer("traceback")
        .annotate(
            end=Right("traceback", LONGEST_END + 1),
            begun=Window(Max(first), order_by=("delivery", "step", "number")),
            total=Window(Count("transaction_id")),
        )[:count]
    )[::-1]
    for row in rows:
        row.traceback = f"…{row.end[1:]}" if row.end and len(row.end) > LONGEST_END else row.end
    earlier = rows[0].total - len(rows) if rows else 0
    return _told(rows, _deliveries(rows, record.deliveries, rows[0].begun if earlier else None)), earlier


def _tried(record: TransactionRecord) -> QuerySet[Any]:
    """Its attempts in their order, each with what its policy version and its worker are called."""
    version = PolicyVersion.objects.filter(pk=OuterRef("policy_version"))
    worker = Worker.objects.filter(pk=OuterRef("worker"))
    names = {
        "policy_name": Subquery(version.values("policy__name")),
        "policy_number": Subquery(version.values("number")),
        "host": Subquery(worker.values("host")),
        "pid": Subquery(worker.values("pid")),
    }
    tried = Attempt.objects.filter(transaction_id=record.pk).annotate(**names)
    return tried.order_by("delivery", "step", "number")


def _told(rows: Sequence[Any], deliveries: Mapping[int, int]) -> list[dict[str, Any]]:
    return [
        {
            "delivery": deliveries[row.delivery],
            "step": STAGE_OF[row.step].value,
            "number": row.number,
            "of": row.of_total,
            "started_at": row.started_at.isoformat(),
            "duration": row.duration,
            "outcome": AttemptOutcome(row.outcome).name.lower(),
            "category": CATEGORY_OF[row.category].value if row.category else None,
            "error_type": row.error_type,
            "message": row.message,
            "traceback": row.traceback,
            "policy_version": _version(row) if row.policy_number else None,
            "worker": str(Worker(host=row.host, pid=row.pid)) if row.host else None,
            "trace_id": row.trace_id,
        }
        for row in rows
    ]


def _version(row: Any) -> str:
    return str(PolicyVersion(policy=Policy(name=row.policy_name), number=row.policy_number))


def _deliveries(rows: Sequence[Attempt], count: int, begun: int | None = None) -> dict[int, int]:
    """The delivery that each lease belongs to: one that goes on counting attempts goes on with the one before.

    Leases that were given back have a number too but are not deliveries: none has a higher number than were counted.
    `begun` is the delivery that the first row goes on with, if rows before it are left out.
    """
    found: dict[int, int] = {}
    delivery, tried = (0, 0) if begun is None else (begun, rows[0].number - 1)
    for row in rows:
        is_work = STAGE_OF[row.step] in WORK
        if row.delivery not in found:
            delivery = delivery if is_work and row.number == tried + 1 and tried else row.delivery
            found[row.delivery] = delivery
        tried = row.number if is_work else tried
    first = sorted(set(found.values()))
    last = max(count, len(first))
    numbers = {lease: min(lease, last - after) for after, lease in enumerate(reversed(first))}
    return {lease: numbers[one] for lease, one in found.items()}


def serving(pipeline: Pipeline) -> list[Worker]:
    """The living workers of a pipeline."""
    return [worker for worker in workers.alive() if pipeline.name in worker.pipelines]


def _hindrances(record: TransactionRecord) -> list[blockers.Blocker]:
    """Blockers that the transaction, or the one it replays, met and would meet again."""
    if record.state not in {State.PENDING, State.FAILED}:
        return []
    ids = {
        record.uid,
        record.parent_id if record.replay_of else None,
        record.correlation_id if record.attempts else None,
    }
    return blockers.blockers_of({one for one in ids if one})


def _ahead(record: TransactionRecord) -> int:
    """The number of transactions ahead of it, counted up to a limit."""
    earlier = Q(available_at__lt=record.available_at) | Q(available_at=record.available_at, pk__lt=record.pk)
    before = Q(priority__gt=record.priority) | Q(priority=record.priority) & earlier
    waiting = TransactionRecord.objects.filter(before, pipeline_id=record.pipeline_id, state=State.PENDING.value)
    return waiting.order_by()[: AHEAD_CAP + 1].count()


def _seconds(later: datetime | None, earlier: datetime | None) -> float:
    return (later - earlier).total_seconds() if later and earlier else 0.0
