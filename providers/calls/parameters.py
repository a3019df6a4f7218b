"""The parameters of the statements that settle, refuse and stand in."""

import json
from collections.abc import Mapping
from typing import Any

from providers.core import histogram
from providers.core.breaker import BreakerPolicy, OpeningRules, Verdict
from providers.core.errors import ProviderError
from providers.core.exchange import SLACK, CallRequest, Outcome, Source
from providers.core.gate import NOTHING, Admission, Reservation, Scope
from providers.core.request import storable, text_of
from providers.core.steps import Settle
from providers.database import admitting
from providers.models.calls import ClaimState

# What an execution says of itself that made no attempt.
NOT_CALLED = {"http_status": None, "lease": 0.0, "budget_ms": None}


def settlement_of(ticket: CallRequest, step: Settle) -> dict[str, Any]:
    """What a settlement is given."""
    policy, is_success = ticket.policy, step.outcome is Outcome.SUCCESS
    return {
        **given_of(ticket, step.attempt, step.error, step.outcome, step.refund),
        **_returned(ticket, step),
        "http_status": step.http_status,
        "lease": max(policy.idempotency_lease, step.lasts + SLACK),
        "duration_ms": round(step.duration * 1000, 3),
        "budget_ms": None if step.budget is None else max(0.0, round(step.budget * 1000, 3)),
        "bucket": str(histogram.bucket_of(step.duration * 1000)),
        "is_success": int(is_success),
        "wants_retry": int(step.wants_retry),
        "returns_if_shut": int(step.returns_if_shut),
        "place": step.admission.place,
        "refunds_retry": int(step.refunds_retry),
        "capacity": policy.budget.capacity,
        "earned": policy.budget.earned_by_success,
        "failure_threshold": policy.breaker.failure_threshold,
        "success_threshold": policy.breaker.success_threshold,
        "open_cooldown_seconds": policy.breaker.open_cooldown_seconds,
        "why": _why(step.error, policy.breaker),
        **rates(policy.opening, step.duration),
        "claim_state": (ClaimState.SUCCEEDED if is_success else ClaimState.FAILED).value,
        "answer": kept(step.payload) if is_success and ticket.token else None,
    }


def given_of(
    ticket: CallRequest, attempt: int, error: ProviderError | None, outcome: Outcome, refund: Reservation
) -> dict[str, Any]:
    """What every outcome is given: the call, its attempt and what is given back."""
    context, policy = ticket.context, ticket.policy
    account = refund.account or NOTHING
    return {
        **admitting.named(ticket.who),
        "account": ticket.account,
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
        "source": Source.PROVIDER.value,
        "call": ticket.call_id,
        "called_for": ticket.transaction_id,
        "token": ticket.token,
        "replay_for": policy.replay_for,
        "refund": refund.amount,
        "refund_start": refund.window_start,
        "account_refund": account.amount,
        "account_refund_start": account.window_start,
    }


def _returned(ticket: CallRequest, step: Settle) -> dict[str, Any]:
    """What a call says of its gate, and of its account's if it passed two. Where nobody counts it, it is neutral."""
    admission, account = step.admission, step.admission.account
    if account is None:
        return _part(admission, step.verdict, step.cooldown)
    breaker, pause = scopes = Scope(ticket.policy.breaker_scope), Scope(ticket.policy.pause_scope)
    counted = (step.verdict if breaker.has_tenant else Verdict.NEUTRAL, step.cooldown if pause.has_tenant else None)
    shared = (step.verdict if breaker.has_account else Verdict.NEUTRAL, step.cooldown if pause.has_account else None)
    return {
        **_part(admission, *counted),
        **{f"account_{name}": value for name, value in _part(account, *shared).items()},
        **admitting.asks(*scopes),
    }


def _part(admission: Admission, verdict: Verdict, cooldown: float | None) -> dict[str, Any]:
    return {
        "verdict": verdict.value,
        "generation": admission.permit.generation,
        "probe": admission.permit.probe,
        "reserved_in": admission.window_start,
        "cooldown": cooldown,
    }


def _why(error: ProviderError | None, policy: BreakerPolicy) -> str:
    """Why this settlement changes the gate, if it does."""
    probes = policy.success_threshold
    return f"{probes} probe{'' if probes == 1 else 's'} succeeded" if error is None else error.reason_code


def rates(rules: OpeningRules, duration: float) -> dict[str, Any]:
    """What the rules on rates are asked with; nothing without any."""
    if not rules.are_used:
        return {}
    return {
        "rate_by_time": int(rules.seconds is not None),
        "rate_width": rules.width,
        "failure_rate": rules.failure_rate,
        "slow_rate": rules.slow_rate,
        "minimum_calls": rules.minimum_calls,
        "is_slow": int(duration >= rules.slow_after),
        "is_shadow": int(rules.is_shadow),
    }


def kept(payload: Mapping[str, Any] | None) -> str:
    """An answer as it is kept: what JSON does not know is kept as text."""
    try:
        return json.dumps(payload, default=text_of)
    except Exception:  # noqa: BLE001 (names that are none, rings, values that cannot be asked: a success is kept anyway)
        return json.dumps(storable(payload))
