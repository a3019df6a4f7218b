"""VERBS: claim, claim_afterwards, settle, settle_together.

A request that has a key is made by one caller at a time, and its success is given again. How an attempt came out (the
call, its minute, the gate, what is visible) is one statement on PostgreSQL. A terminal failure of a task is kept as a
dead letter in the same database transaction.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson
from django.db import DatabaseError, transaction
from django.db.models import Q

from ergon_site.access.database.calls import retry_conflicts, short_transaction
from ergon_site.access.database.group_commit import Group
from providers.calls import dead_letters, rating
from providers.calls.rating import board
from providers.core import histogram
from providers.core.breaker import BreakerPolicy, BreakerState, OpeningRules, Verdict
from providers.core.errors import ProviderError
from providers.core.exchange import SLACK, CallRequest, Outcome, Source, Who
from providers.core.gate import NOTHING, Admission, Decision, Reservation, Scope
from providers.core.request import storable, text_of
from providers.core.steps import Busy, Claimed, Replay, Settle, Taken
from providers.database import admitting, gates, group_settlement, settlements, sql, statements
from providers.models import Gate, ProviderExecutionMetric
from providers.models.calls import ClaimState

# By how much the clocks of a host and of the database may differ.
SKEW = timedelta(minutes=10)

# Seconds. So long those who settle wait for others whose calls may end at once again.
GATHER = 0.001

# What a group is given of each call and gate; a call that differs from the first of its gate is settled alone.
OF_CALL = [name for name in group_settlement.CALL_COLUMNS if name != "gate"]
SAME_OF_GATE = ("capacity", "earned")
OF_GATE = ("tenant", "provider", "capability", *SAME_OF_GATE)


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


def claim_afterwards(ticket: CallRequest) -> None:
    """Take the key of a request that was called for while the database could not be asked for it."""
    if ticket.is_guarded and ticket.token is None:
        claimed = claim(ticket, lease=ticket.policy.idempotency_lease)
        ticket.token = claimed.token if isinstance(claimed, Claimed) else None


class Seen(NamedTuple):
    """What a settlement returns: its decision, and of its gate what tells whether new rates are due."""

    decision: Decision
    gate_id: int
    now: float = 0.0
    rated_at: float | None = None
    attempts: int | None = None


def settle(ticket: CallRequest, step: Settle) -> Decision:
    """Write down how an attempt came out; whether it may be tried again.

    Usual successes are settled together with those that other threads bring at the same time.
    """
    seen, is_shown = None, rating.is_shown_at_once()
    # What is settled together on PostgreSQL is shown later.
    is_alone = step.is_repeat or sql.is_in_transaction() or (is_shown and sql.is_postgresql())
    if not is_alone and _is_usual(ticket, step):
        seen = group.put((ticket, step), sql.time_left())
    seen = seen or _settle_alone((ticket, step), is_shown=is_shown)
    if is_shown:
        _rate_if_due(ticket.who, seen)
        return seen.decision
    board.mark(ticket.who, step.admission.window_start)
    if step.admission.account is not None:
        board.mark(ticket.account_gate, step.admission.account.window_start)
    return seen.decision


def _rate_if_due(who: Who, seen: Seen) -> None:
    """Compute the rates after a settlement that is worth new ones."""
    is_fresh = seen.rated_at is not None and seen.now - seen.rated_at < histogram.RATED_EVERY
    if not is_fresh or (seen.attempts or 0) < histogram.FEW_ATTEMPTS:
        rating.rate(seen.gate_id, who)


def _is_usual(ticket: CallRequest, step: Settle) -> bool:
    """Whether it is a success that can only confirm its gate, and no other gate or place."""
    admission = step.admission
    is_plain = admission.account is None and admission.place is None and not admission.is_probe
    return step.outcome is Outcome.SUCCESS and is_plain and not ticket.policy.opening.are_used


def _settle_alone(
    pair: tuple[CallRequest, Settle], failure: Exception | None = None, *, is_shown: bool = False
) -> Seen:
    """Settle one, also after others have failed to: then it may be settled already, if they lost the connection."""
    ticket, step = pair
    if step.is_repeat or isinstance(failure, sql.LOST):
        return _settle_again(ticket, step)
    return _settle(ticket, step, is_shown=is_shown)


def settle_together(pairs: Sequence[tuple[CallRequest, Settle]]) -> Sequence[Seen | None]:
    """Settle usual successes in one transaction; None for one that is to be settled alone."""
    if len(pairs) == 1:
        return [_settle(*pairs[0])]
    if sql.is_postgresql():
        return _settle_by_one_statement(pairs)
    with transaction.atomic():
        return [_settle_within(*pair) for pair in pairs]


@retry_conflicts
def _settle_by_one_statement(pairs: Sequence[tuple[CallRequest, Settle]]) -> list[Seen | None]:
    rows: list[dict[str, Any]] = []
    of_gates: dict[Who, dict[str, Any]] = {}
    places: dict[int, int] = {}  # of each call that is among them, the number of its gate
    for place, (ticket, step) in enumerate(pairs):
        given = _usual_settlement_of(ticket, step)
        gate = of_gates.get(ticket.who)
        if gate is None:
            gate = of_gates[ticket.who] = {name: given[name] for name in OF_GATE}
            gate |= {"gate": len(of_gates), "calls": 0, "generations": [], "buckets": Counter()}
        if any(gate[name] != given[name] for name in SAME_OF_GATE):
            continue
        gate["calls"] += 1
        gate["generations"].append(given["generation"])
        gate["buckets"][given["bucket"]] += 1
        places[place] = gate["gate"]
        rows.append({name: given[name] for name in OF_CALL} | {"gate": gate["gate"]})
    given = {"calls": orjson.dumps(rows).decode(), "gates": orjson.dumps(list(of_gates.values())).decode()}
    is_guarded = any(row["token"] is not None for row in rows)
    found = sql.rows(group_settlement.group_settlement(is_guarded=is_guarded), given)
    seen = {gate: Seen(Decision.ENDED, gate_id) for gate, gate_id in found}
    return [seen.get(places.get(place, -1)) for place in range(len(pairs))]


def _settle_within(ticket: CallRequest, step: Settle) -> Seen | None:
    """Settle one among others in their transaction; an error of its own is its caller's, who settles it alone."""
    try:
        return _settle(ticket, step, is_shown=True)
    except sql.LOST:
        raise
    except DatabaseError:
        return None


group: Group[tuple[CallRequest, Settle], Seen | None] = Group(settle_together, _settle_alone, gather=GATHER)


@retry_conflicts
@short_transaction()
def _settle_again(ticket: CallRequest, step: Settle) -> Seen:
    """Settle what may have been settled already."""
    gate_id, before = look_back(ticket, step.attempt)
    if before is None:
        if not gate_id:  # the first call of its capability was made while the database was away
            admitting.make_gate(ticket.who, ticket.account)
        return _settle(ticket, step, is_shown=True)
    decision = Decision.SUPPRESSED if before.retry_suppressed else Decision.ENDED
    if before.outcome == Outcome.RETRY.value:
        opened = Gate.objects.filter(state=BreakerState.OPEN.value)
        asked = Q(**ticket.account_gate._asdict()) if step.admission.account else Q(pk=gate_id)
        is_shut = step.returns_if_shut and opened.filter(Q(pk=gate_id) | asked).exists()
        decision = Decision.SHUT if is_shut else Decision.RETRY
    return Seen(decision, gate_id)


def _usual_settlement_of(ticket: CallRequest, step: Settle) -> dict[str, Any]:
    """What a usual settlement is given: of all that others are, only what its statements ask for."""
    context, policy, admission = ticket.context, ticket.policy, step.admission
    tenant, provider, capability = ticket.who
    milliseconds = step.duration * 1000
    return {
        "tenant": tenant,
        "provider": provider,
        "capability": capability,
        "task_execution": context.task_execution_id,
        "operation": ticket.operation,
        "key": ticket.key,
        "correlation": context.correlation_id,
        "attempt": step.attempt,
        "max_attempts": policy.retry.max_attempts,
        "duration_ms": round(milliseconds, 3),
        "budget_ms": None if step.budget is None else max(0.0, round(step.budget * 1000, 3)),
        "http_status": step.http_status,
        "policy_version": ticket.policy_version,
        "call": ticket.call_id,
        "called_for": ticket.transaction_id,
        "token": ticket.token,
        "replay_for": policy.replay_for,
        "answer": kept(step.payload) if ticket.token else None,
        "bucket": str(histogram.bucket_of(milliseconds)),
        "capacity": policy.budget.capacity,
        "earned": policy.budget.earned_by_success,
        "generation": admission.permit.generation,
        "place": admission.place,
        **({} if admission.account is None else _returned(ticket, step) | {"account": ticket.account}),
    }


def _settlement_of(ticket: CallRequest, step: Settle) -> dict[str, Any]:
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


@retry_conflicts
def _settle(ticket: CallRequest, step: Settle, *, is_shown: bool = False) -> Seen:
    """Settle one; with all that people see of it, or without health and quota, which a thread shows later."""
    kind = settlements.Kind(
        is_limited=any(one.window_start is not None for one in (step.admission, step.admission.account) if one),
        is_guarded=ticket.token is not None,
        is_shared=step.admission.account is not None,
        has_rates=ticket.policy.opening.are_used,
        has_place=step.admission.place is not None,
    )
    dialect = sql.dialect()
    is_plain = step.error is None and not kind.has_rates and not step.admission.is_probe
    is_usual = is_plain and dialect.is_one and not is_shown
    with together(step.outcome):
        found: list[sql.Row] = []
        if is_usual:
            given = _usual_settlement_of(ticket, step)
            found = carry_out(settlements.texts_of(dialect, kind._replace(is_usual=True)), given)
        if not found:
            given = _settlement_of(ticket, step)
            found = carry_out(settlements.texts_of(dialect, kind), given)
        [(word, gate_id, now, rated_at, attempts, *marks)] = found
        _write_events(marks, given, has_rates=kind.has_rates)
        decision = Decision(word)
        is_returned = decision is Decision.SHUT and step.returns_if_shut
        is_over = decision is not Decision.RETRY and not is_returned
        if step.outcome is Outcome.DEAD_LETTER and is_over and step.error is not None:
            dead_letters.record_dead_letter(ticket, step.error, step.attempt)
    for who, left in zip((ticket.who, ticket.account_gate), marks, strict=False):
        if left is not None:
            admitting.announce(who, left, why=given["why"])
    return Seen(decision, gate_id, now, rated_at, attempts)


def _write_events(marks: Sequence[Any], given: Mapping[str, Any], *, has_rates: bool) -> None:
    """Elsewhere than on PostgreSQL, events are written once it is known that there are any."""
    dialect = sql.dialect()
    for gate, left in zip((gates.PLAIN_GATE, gates.ACCOUNT_GATE), marks, strict=False):
        if left is not None and not dialect.is_one:
            sql.rows(gates.settlement_events(dialect, has_rates=has_rates).format(gate=f"({gate}) AS g"), given)


def look_back(ticket: CallRequest, attempt: int) -> tuple[int, ProviderExecutionMetric | None]:
    """What is kept of an attempt. Whoever is still about to keep it holds the gate, which is waited for."""
    gate_id = Gate.objects.select_for_update().filter(**ticket.who._asdict()).values_list("pk", flat=True).first()
    attempts = ProviderExecutionMetric.objects.filter(
        **ticket.who._asdict(),
        created_at__gte=datetime.fromtimestamp(ticket.asked_at, UTC) - SKEW,
        call_id=ticket.call_id,
        attempt_number=attempt,
        source=Source.PROVIDER.value,
    )
    return gate_id or 0, attempts.first()


def carry_out(texts: list[str], given: dict[str, Any]) -> list[sql.Row]:
    """The rows of the last statement."""
    return [sql.rows(text, given) for text in texts][-1]


def together(outcome: Outcome) -> AbstractContextManager[Any]:
    """A database transaction where several statements must hold or fail together."""
    return short_transaction() if outcome is Outcome.DEAD_LETTER or not sql.is_postgresql() else nullcontext()
