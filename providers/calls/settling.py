"""VERBS: claim, settle, refuse, rate, rollup.

A request that has a key is made by one caller at a time, and its success is given again. How an attempt came out (the
call, its minute, the gate, what is visible) is one statement on PostgreSQL. A terminal failure of a task is kept as a
dead letter in the same database transaction.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.database.clock import database_time
from providers.calls import dead_letters
from providers.core import histogram
from providers.core.breaker import BreakerState
from providers.core.errors import ProviderError
from providers.core.exchange import SLACK, CallRequest, Outcome, Who
from providers.core.gate import Decision, Reservation
from providers.core.request import storable, text_of
from providers.core.steps import Busy, Claimed, Refuse, Replay, Settle, Taken
from providers.database import admitting, sql, statements
from providers.database.statements import POSTGRESQL, Dialect
from providers.models import Gate, ProviderExecutionMetric, ProviderHealthState
from providers.models.calls import ClaimState

HOUR = 60
# With fewer attempts than this in the hour, every one is worth a new figure; with more, once a second will do.
FEW = 100
EVERY = 1.0
# By how much the clocks of a host and of the database may differ.
SKEW = timedelta(minutes=10)

SETTLED = """SELECT g.decision, g.id, g.decided_at, h.rated_at, h.attempts_1h, g.generation,
  CASE WHEN g.turned_at = g.decided_at THEN g.state END FROM {gate}, {health}"""
HEALTH = """(SELECT * FROM provider_health_states WHERE tenant_id = %(tenant)s AND provider_name = %(provider)s
  AND capability = %(capability)s) AS h"""
MINUTES = """
SELECT m.attempts, m.successes, m.executions, m.successful_executions, m.buckets, g.settlements
FROM provider_gates g LEFT JOIN provider_minutes m
  ON m.gate_id = g.id AND m.minute > CAST(floor({clock} / 60) AS bigint) - %(minutes)s
WHERE g.id = %(gate)s
"""
RATES = """
UPDATE provider_health_states SET success_rate_1h = CAST(%(success)s AS double precision),
  p95_latency_ms_1h = CAST(%(p95)s AS double precision), execution_rate_1h = CAST(%(execution)s AS double precision),
  attempts_1h = CAST(%(attempts)s AS bigint), rated_at = {clock}, rated_settlement = CAST(%(settlement)s AS bigint)
WHERE tenant_id = CAST(%(tenant_id)s AS text) AND provider_name = CAST(%(provider_name)s AS text)
  AND capability = CAST(%(capability)s AS text) AND rated_settlement <= CAST(%(settlement)s AS bigint)
"""


@retry_conflicts
def claim(ticket: CallRequest, *, lease: float) -> Claimed | Replay | Busy | Taken:
    """Take the key of a request; or what stands in the way. Settling the request lets go of it."""
    token = ticket.call_id
    given = {
        **admitting.named(ticket.who),
        "key": ticket.key,
        "operation": ticket.operation,
        "fingerprint": ticket.fingerprint,
        "token": token,
        "lease": lease,
    }
    [(holder, fingerprint, state, answer, left)] = sql.rows(statements.claim(sql.dialect()), given)
    if holder == token:
        return Claimed(token)
    if fingerprint != ticket.fingerprint:
        return Taken()
    if state == ClaimState.SUCCEEDED.value:
        return Replay(json.loads(answer))
    return Busy(max(0.0, left))


def settle(ticket: CallRequest, step: Settle) -> Decision:
    """Write down how an attempt came out; whether it may be tried again."""
    verb = _settle_again if step.is_repeat else _settle
    decision, gate_id, now, rated_at, attempts = verb(ticket, step)
    if rated_at is None or attempts < FEW or now - rated_at >= EVERY:
        rate(gate_id, ticket.who)
    return decision


@retry_conflicts
@transaction.atomic
def _settle_again(ticket: CallRequest, step: Settle) -> tuple[Decision, int, float, float | None, int]:
    """Settle what may have been settled already."""
    gate_id, before = _look_back(ticket, step.attempt)
    if before is None:
        return _settle(ticket, step)
    decision = Decision.SUPPRESSED if before.retry_suppressed else Decision.ENDED
    if before.outcome == Outcome.RETRY.value:
        is_shut = step.returns_if_shut and Gate.objects.filter(pk=gate_id, state=BreakerState.OPEN.value).exists()
        decision = Decision.SHUT if is_shut else Decision.RETRY
    return decision, gate_id, 0.0, None, 0


@retry_conflicts
def _settle(ticket: CallRequest, step: Settle) -> tuple[Decision, int, float, float | None, int]:
    policy, permit, is_success = ticket.policy, step.admission.permit, step.outcome is Outcome.SUCCESS
    given = {
        **_given(ticket, step.attempt, step.error, step.outcome, step.refund),
        "http_status": step.http_status,
        "lease": max(policy.idempotency_lease, step.lasts + SLACK),
        "duration_ms": round(step.duration * 1000, 3),
        "budget_ms": None if step.budget is None else max(0.0, round(step.budget * 1000, 3)),
        "bucket": str(histogram.bucket_of(step.duration * 1000)),
        "is_success": int(is_success),
        "verdict": step.verdict.value,
        "generation": permit.generation,
        "probe": permit.probe,
        "wants_retry": int(step.wants_retry),
        "returns_if_shut": int(step.returns_if_shut),
        "refunds_retry": int(step.refunds_retry),
        "reserved_in": step.admission.window_start,
        "cooldown": step.cooldown,
        "capacity": policy.budget.capacity,
        "earned": policy.budget.earned_by_success,
        "failure_threshold": policy.breaker.failure_threshold,
        "success_threshold": policy.breaker.success_threshold,
        "open_cooldown_seconds": policy.breaker.open_cooldown_seconds,
        "claim_state": (ClaimState.SUCCEEDED if is_success else ClaimState.FAILED).value,
        "answer": kept(step.payload) if is_success and ticket.token else None,
    }
    is_limited = step.admission.window_start is not None
    settlement = _texts(sql.dialect(), False, is_limited, ticket.token is not None)  # noqa: FBT003 (of a cache)
    with _together(step.outcome):
        [(word, gate_id, now, rated_at, attempts, generation, turned)] = _carry_out(settlement, given)
        decision = Decision(word)
        is_returned = decision is Decision.SHUT and step.returns_if_shut
        is_over = decision is not Decision.RETRY and not is_returned
        if step.outcome is Outcome.DEAD_LETTER and is_over and step.error is not None:
            dead_letters.record_dead_letter(ticket, step.error, step.attempt)
    if turned is not None:
        why = f"{policy.breaker.success_threshold} probes succeeded" if step.error is None else step.error.reason_code
        admitting.log_turn(ticket.who, turned, generation=generation, why=why)
    return decision, gate_id, now, rated_at, attempts


def refuse(ticket: CallRequest, step: Refuse, decision: Decision | None = None, *, is_repeat: bool = False) -> None:
    """Write down that an attempt was not made, and let go of what it held. `decision` is the gate's, if it refused."""
    gate_id = (_refuse_again if is_repeat else _refuse)(ticket, step, decision)
    if step.ends_execution:  # which the rates tell of
        rate(gate_id, ticket.who)


@retry_conflicts
@transaction.atomic
def _refuse_again(ticket: CallRequest, step: Refuse, decision: Decision | None) -> int:
    gate_id, before = _look_back(ticket, step.attempt)
    return gate_id if before is not None else _refuse(ticket, step, decision)


def _look_back(ticket: CallRequest, attempt: int) -> tuple[int, ProviderExecutionMetric | None]:
    """What is kept of an attempt. Whoever is still about to keep it holds the gate, which is waited for."""
    gate_id = Gate.objects.select_for_update().filter(**ticket.who._asdict()).values_list("pk", flat=True).first()
    attempts = ProviderExecutionMetric.objects.filter(
        **ticket.who._asdict(),
        created_at__gte=datetime.fromtimestamp(ticket.asked_at, UTC) - SKEW,
        call_id=ticket.call_id,
        attempt_number=attempt,
    )
    return gate_id or 0, attempts.first()


@retry_conflicts
def _refuse(ticket: CallRequest, step: Refuse, decision: Decision | None) -> int:
    given = {
        **_given(ticket, step.attempt, step.error, step.outcome, step.refund),
        "http_status": step.error.http_status,
        "lease": 0.0,  # what is refused is not tried again
        "duration_ms": 0.0,
        "budget_ms": None,
        "reserved_in": step.refund.window_start,
        "is_exhausted": int(decision is Decision.QUOTA),
        "ends_execution": int(step.ends_execution),
        "is_success": 0,
        "claim_state": ClaimState.FAILED.value,
        "answer": None,
    }
    shows_quota = decision is Decision.QUOTA or step.refund.amount > 0
    refusal = _texts(sql.dialect(), True, shows_quota, ticket.token is not None)  # noqa: FBT003 (of a cache)
    with _together(step.outcome):
        found = _carry_out(refusal, given)
        if not found:
            admitting.make_gate(ticket.who)
            found = _carry_out(refusal, given)
        if step.outcome is Outcome.DEAD_LETTER:
            dead_letters.record_dead_letter(ticket, step.error, step.attempt - 1)
    gate_id: int = found[0][0]
    return gate_id


def kept(payload: Mapping[str, Any] | None) -> str:
    """An answer as it is kept: what JSON does not know is kept as text."""
    try:
        return json.dumps(payload, default=text_of)
    except Exception:  # noqa: BLE001 (names that are none, rings, values that cannot be asked: a success is kept anyway)
        return json.dumps(storable(payload))


def rate(gate_id: int, who: Who) -> None:
    """Compute the rates of a capability anew. Whoever has seen less never overwrites who has seen more."""
    clock = sql.dialect().clock
    found = sql.rows(MINUTES.format(clock=clock), {"gate": gate_id, "minutes": HOUR})
    rates = histogram.rates_of([row for row in found if row[0] is not None])
    sql.rows(RATES.format(clock=clock), {**who._asdict(), **rates._asdict(), "settlement": found[0][-1]})


def rollup() -> int:
    """Compute the rates anew wherever they have aged, so that an hour without calls shows; how many."""
    before = database_time().timestamp() - EVERY
    _show_expired_overrides(before)
    aged = ProviderHealthState.objects.filter(Q(rated_at__lt=before) | Q(rated_at__isnull=True), attempts_1h__gt=0)
    count = 0
    for health in aged.order_by("pk").iterator():
        gate = Gate.objects.filter(**health.who._asdict()).values_list("pk", flat=True).first()
        if gate is not None:
            rate(gate, health.who)
            count += 1
    return count


def _show_expired_overrides(now: float) -> None:
    """What an operator said no longer holds; until the next call nobody else would show it."""
    for gate in Gate.objects.filter(override_until__lte=now).exclude(override=""):
        shown = ProviderHealthState.objects.filter(**gate.who._asdict(), breaker_state=gate.override)
        shown.exclude(breaker_state=gate.state).update(breaker_state=gate.state, updated_at=Now())


@cache
def _texts(dialect: Dialect, is_refusal: bool, shows_quota: bool, is_guarded: bool) -> list[str]:  # noqa: FBT001
    """One statement of all parts on PostgreSQL; elsewhere one after the other. The last returns what is seen."""
    if is_refusal:
        words = dict.fromkeys(("is_retried", "is_suppressed", "is_returned"), "false")
        seen = "SELECT g.id FROM {gate}"
        gate = statements.refund(dialect) if shows_quota else statements.PLAIN_GATE
        health = statements.health(dialect, at=dialect.clock)
        parts = {"m": statements.METRIC, "n": statements.refused_minute(dialect), "h": health}
    else:
        words = {"is_retried": "g.decision = 'retry'", "is_suppressed": "g.decision = 'suppressed'"}
        words["is_returned"] = "(g.decision = 'shut' AND CAST(%(returns_if_shut)s AS bigint) = 1)"
        seen = SETTLED
        gate = statements.gate_settlement(dialect)
        health = statements.health(dialect) + "RETURNING rated_at, attempts_1h"
        parts = {"m": statements.METRIC, "n": statements.minute(dialect), "h": health}
    if shows_quota:
        parts["q"] = statements.quota(dialect, is_refusal=is_refusal)
    if is_guarded:
        parts["c"] = statements.claim_end(dialect)
    is_one = dialect is POSTGRESQL
    words |= {"gate": "g", "health": "h"} if is_one else {"gate": f"({statements.PLAIN_GATE}) AS g", "health": HEALTH}
    # The gate's own part is formatted already: what it says of JSON has braces.
    texts = {"g": gate, **{name: part.format(**words) for name, part in parts.items()}}
    if is_one:
        return [f"WITH {', '.join(f'{name} AS ({text})' for name, text in texts.items())} {seen.format(**words)}"]
    return [*texts.values(), seen.format(**words)]


def _carry_out(texts: list[str], given: dict[str, Any]) -> list[sql.Row]:
    """The rows of the last statement."""
    return [sql.rows(text, given) for text in texts][-1]


def _together(outcome: Outcome) -> AbstractContextManager[Any]:
    """A database transaction where several statements must hold or fail together."""
    return transaction.atomic() if outcome is Outcome.DEAD_LETTER or not sql.is_postgresql() else nullcontext()


def _given(
    ticket: CallRequest, attempt: int, error: ProviderError | None, outcome: Outcome, refund: Reservation
) -> dict[str, Any]:
    context, policy = ticket.context, ticket.policy
    return {
        **admitting.named(ticket.who),
        "task_execution": context.task_execution_id,
        "operation": ticket.operation,
        "key": ticket.key,
        "correlation": context.correlation_id,
        "attempt": attempt,
        # Of a task that comes back, attempts are counted by whoever reschedules it.
        "max_attempts": policy.retry.max_attempts,
        "outcome": outcome.value,
        "reason": None if error is None else error.reason_code,
        "retryable": error is not None and error.retryable,
        "policy_version": ticket.policy_version,
        "call": ticket.call_id,
        "token": ticket.token,
        "replay_for": policy.replay_for,
        "refund": refund.amount,
        "refund_start": refund.window_start,
    }
