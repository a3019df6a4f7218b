"""VERBS: settle, refuse. How an attempt came out, in one statement: the call, its minute, the gate, what is visible.

A terminal failure of a task is kept as a dead letter in the same database transaction.
"""

from contextlib import nullcontext
from functools import cache
from typing import Any

from ergon_site.access.database.retrying import retry_conflicts
from providers.calls import claiming, dead_letters, gates, rollups, sql, statements
from providers.calls.call_request import SLACK, CallRequest
from providers.calls.dialects import Dialect
from providers.calls.sql import Row
from providers.core import histogram
from providers.core.errors import ProviderError
from providers.core.exchange import Outcome
from providers.core.gate import Decision
from providers.core.quota import Reservation
from providers.core.steps import Refuse, Settle
from providers.models.claims import ClaimState

SEEN = "g.decision, g.id, g.decided_at, h.rated_at, h.attempts_1h"


def settle(ticket: CallRequest, step: Settle) -> Decision:
    """Write down how an attempt came out; whether it may be tried again."""
    decision, gate_id, now, rated_at, attempts = _settle(ticket, step)
    if rollups.is_due(now, rated_at, attempts):
        rollups.rate(gate_id, ticket.who)
    return decision


@retry_conflicts
def _settle(ticket: CallRequest, step: Settle) -> tuple[Decision, int, float, float | None, int]:
    given = _given_for(ticket, step)
    is_limited, is_guarded = step.admission.window_start is not None, ticket.token is not None
    with sql.atomic() if _is_together(step.outcome) else nullcontext():
        run = _settle_at_once if sql.is_postgresql() else _settle_one_by_one
        word, gate_id, now, rated_at, attempts = run(given, is_limited=is_limited, is_guarded=is_guarded)
        decision = Decision(word)
        if step.outcome is Outcome.DEAD_LETTER and decision is not Decision.RETRY and step.error is not None:
            dead_letters.record_dead_letter(ticket, step.error, step.attempt)
    return decision, gate_id, now, rated_at, attempts


def refuse(ticket: CallRequest, step: Refuse, decision: Decision | None = None) -> None:
    """Write down that an attempt was not made, and let go of what it held. `decision` is the gate's, if it refused."""
    gate_id = _refuse(ticket, step, decision)
    if step.attempt > 1:
        # An execution has ended here, which the rates tell of.
        rollups.rate(gate_id, ticket.who)


@retry_conflicts
def _refuse(ticket: CallRequest, step: Refuse, decision: Decision | None) -> int:
    given = _refused(ticket, step, decision)
    shows_quota = decision is Decision.QUOTA or step.refund.amount > 0
    is_guarded = ticket.token is not None
    with sql.atomic() if _is_together(step.outcome) else nullcontext():
        run = _refuse_at_once if sql.is_postgresql() else _refuse_one_by_one
        found = run(given, shows_quota=shows_quota, is_guarded=is_guarded)
        if not found:
            gates.make(ticket.who)
            found = run(given, shows_quota=shows_quota, is_guarded=is_guarded)
        if step.outcome is Outcome.DEAD_LETTER:
            dead_letters.record_dead_letter(ticket, step.error, step.attempt - 1)
    gate_id: int = found[0][0]
    return gate_id


def _is_together(outcome: Outcome) -> bool:
    """Whether several statements must hold or fail together."""
    return outcome is Outcome.DEAD_LETTER or not sql.is_postgresql()


def _settle_at_once(given: dict[str, Any], *, is_limited: bool, is_guarded: bool) -> Row:
    return sql.rows(_settlement(sql.dialect(), is_limited, is_guarded), given)[0]


@cache
def _settlement(dialect: Dialect, is_limited: bool, is_guarded: bool) -> str:  # noqa: FBT001 (of a cache)
    retried = {"gate": "g", "is_retried": "g.decision = 'retry'", "is_suppressed": "g.decision = 'suppressed'"}
    parts = {
        "g": statements.gate_settlement(dialect),
        "m": statements.METRIC,
        "n": statements.minute(dialect),
        "h": statements.health(dialect) + "RETURNING h.rated_at, h.attempts_1h",
    }
    if is_limited:
        parts["q"] = statements.quota(dialect, is_refusal=False)
    if is_guarded:
        parts["c"] = statements.claim_end(dialect)
    return _together(parts, retried, f"SELECT {SEEN} FROM g, h")


def _settle_one_by_one(given: dict[str, Any], *, is_limited: bool, is_guarded: bool) -> Row:
    dialect = sql.dialect()
    retried = {
        "gate": f"({statements.PLAIN_GATE}) AS g",
        "is_retried": "g.decision = 'retry'",
        "is_suppressed": "g.decision = 'suppressed'",
    }
    sql.rows(statements.gate_settlement(dialect), given)
    for part in (statements.METRIC, statements.minute(dialect), statements.health(dialect)):
        sql.rows(part.format(**retried), given)
    if is_limited:
        sql.rows(statements.quota(dialect, is_refusal=False).format(**retried), given)
    if is_guarded:
        sql.rows(statements.claim_end(dialect).format(**retried), given)
    seen = f"SELECT {SEEN} FROM {retried['gate']}, provider_health_states h {_OF_GATE}"
    return sql.rows(seen, given)[0]


_OF_GATE = """WHERE h.tenant_id = g.tenant_id AND h.provider_name = g.provider_name AND h.capability = g.capability"""


def _refuse_at_once(given: dict[str, Any], *, shows_quota: bool, is_guarded: bool) -> list[Row]:
    return sql.rows(_refusal(sql.dialect(), shows_quota, is_guarded), given)


@cache
def _refusal(dialect: Dialect, shows_quota: bool, is_guarded: bool) -> str:  # noqa: FBT001 (of a cache)
    parts = {
        "g": statements.refund(dialect) if shows_quota else statements.PLAIN_GATE,
        "m": statements.METRIC,
        "n": statements.refused_minute(dialect),
    }
    if shows_quota:
        parts["q"] = statements.quota(dialect, is_refusal=True)
    if is_guarded:
        parts["c"] = statements.claim_end(dialect)
    ended = {"gate": "g", "is_retried": "false", "is_suppressed": "false"}
    return _together(parts, ended, "SELECT g.id FROM g")


def _refuse_one_by_one(given: dict[str, Any], *, shows_quota: bool, is_guarded: bool) -> list[Row]:
    dialect = sql.dialect()
    ended = {"gate": f"({statements.PLAIN_GATE}) AS g", "is_retried": "false", "is_suppressed": "false"}
    if not sql.rows(statements.refund(dialect) if shows_quota else statements.PLAIN_GATE, given):
        return []
    sql.rows(statements.METRIC.format(**ended), given)
    sql.rows(statements.refused_minute(dialect).format(**ended), given)
    if shows_quota:
        sql.rows(statements.quota(dialect, is_refusal=True).format(**ended), given)
    if is_guarded:
        sql.rows(statements.claim_end(dialect).format(**ended), given)
    return sql.rows(f"SELECT g.id FROM {ended['gate']}", given)


def _together(parts: dict[str, str], words: dict[str, str], seen: str) -> str:
    # The first part is formatted already: what it says of JSON has braces of its own.
    told = [f"{name} AS ({part if name == 'g' else part.format(**words)})" for name, part in parts.items()]
    return f"WITH {', '.join(told)} {seen}"


def _given_for(ticket: CallRequest, step: Settle) -> dict[str, Any]:
    policy = ticket.policy
    is_success = step.outcome is Outcome.SUCCESS
    return {
        **_row(ticket, step.attempt, step.error, step.outcome),
        **_refunded(step.refund),
        "http_status": step.http_status,
        "lease": max(policy.idempotency_lease, step.lasts + SLACK),
        "duration_ms": round(step.duration * 1000, 3),
        "budget_ms": None if step.budget is None else max(0.0, round(step.budget * 1000, 3)),
        "bucket": str(histogram.bucket_of(step.duration * 1000)),
        "is_success": int(is_success),
        "verdict": step.verdict.value,
        "generation": step.admission.permit.generation,
        "probe": step.admission.permit.probe,
        "wants_retry": int(step.wants_retry),
        "refunds_retry": int(step.refunds_retry),
        "reserved_in": step.admission.window_start,
        "cooldown": step.cooldown,
        "capacity": policy.budget.capacity,
        "earned": policy.budget.earned_by_success,
        "failure_threshold": policy.breaker.failure_threshold,
        "success_threshold": policy.breaker.success_threshold,
        "open_cooldown_seconds": policy.breaker.open_cooldown_seconds,
        "claim_state": (ClaimState.SUCCEEDED if is_success else ClaimState.FAILED).value,
        "answer": claiming.kept(step.payload) if is_success and ticket.token else None,
    }


def _refused(ticket: CallRequest, step: Refuse, decision: Decision | None) -> dict[str, Any]:
    return {
        **_row(ticket, step.attempt, step.error, step.outcome),
        **_refunded(step.refund),
        "http_status": step.error.http_status,
        "lease": 0.0,  # what is refused is not tried again
        "duration_ms": 0.0,
        "budget_ms": None,
        "reserved_in": step.refund.window_start,
        "is_exhausted": int(decision is Decision.QUOTA),
        "claim_state": ClaimState.FAILED.value,
        "answer": None,
    }


def _row(ticket: CallRequest, attempt: int, error: ProviderError | None, outcome: Outcome) -> dict[str, Any]:
    context, policy = ticket.context, ticket.policy
    return {
        **ticket.named,
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
        "token": ticket.token,
        "replay_for": policy.replay_for,
    }


def _refunded(refund: Reservation) -> dict[str, Any]:
    return {"refund": refund.amount, "refund_start": refund.window_start}
