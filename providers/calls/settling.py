"""VERBS: claim, settle, settle_together, refuse, stand_in, give_up.

A request that has a key is made by one caller at a time, and its success is given again. How an attempt came out (the
call, its minute, the gate, what is visible) is one statement on PostgreSQL. A terminal failure of a task is kept as a
dead letter in the same database transaction.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson
from django.db import DatabaseError, transaction
from django.db.models import Q

from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.database.group_commit import Group
from providers.calls import dead_letters, rating
from providers.core import histogram
from providers.core.breaker import BreakerPolicy, BreakerState, OpeningRules, Verdict
from providers.core.errors import ProviderError
from providers.core.exchange import SLACK, CallRequest, Outcome, Source, Who
from providers.core.gate import NOTHING, Admission, Decision, Reservation, Scope
from providers.core.request import storable, text_of
from providers.core.steps import Busy, Claimed, GiveUp, Refuse, Replay, Settle, StandIn, Taken
from providers.database import admitting, gates, group_settlement, settlements, sql, statements
from providers.models import Gate, ProviderExecutionMetric
from providers.models.calls import ClaimState

# By how much the clocks of a host and of the database may differ.
SKEW = timedelta(minutes=10)

# Of so many capabilities this process remembers until when their rates will do. A wrong memory costs a statement.
REMEMBERED = 10_000
_rated_until: dict[Who, float] = {}

# What an execution says of itself that made no attempt.
NOT_CALLED = {"http_status": None, "lease": 0.0, "budget_ms": None}

# Seconds. So long those who settle wait for others whose calls may end at once again.
GATHER = 0.001

# What a group is given of each call and gate; a call that differs from the first of its gate is settled alone.
OF_CALL = [name for name in group_settlement.CALL_COLUMNS if name != "gate"]
SAME_OF_GATE = ("capacity", "earned", "reserved_in")
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


class Seen(NamedTuple):
    """What a settlement returns: its decision, and of its gate what tells whether new rates are due."""

    decision: Decision
    gate_id: int
    now: float
    rated_at: float | None
    attempts: int
    is_rated: bool  # along with it


def settle(ticket: CallRequest, step: Settle) -> Decision:
    """Write down how an attempt came out; whether it may be tried again.

    Usual successes are settled together with those that other threads bring at the same time.
    """
    seen = None
    if not (step.is_repeat or sql.is_in_transaction()) and _is_usual(ticket, step):
        seen = group.put((ticket, step), sql.time_left())
    seen = seen or _settle_alone((ticket, step))
    _rate_if_due(ticket.who, seen)
    return seen.decision


def _rate_if_due(who: Who, seen: Seen) -> None:
    """Compute the rates after a settlement that is worth new ones."""
    age = None if seen.rated_at is None else seen.now - seen.rated_at
    if age is not None and age < histogram.RATED_EVERY and seen.attempts >= histogram.FEW_ATTEMPTS:
        if len(_rated_until) >= REMEMBERED:
            _rated_until.clear()
        _rated_until[who] = time.monotonic() + min(histogram.RATED_EVERY, histogram.RATED_EVERY - age)
    elif not seen.is_rated:
        rating.rate(seen.gate_id, who)


def _wants_rates(settled: Iterable[Who]) -> bool:
    """Whether any of these capabilities may be due for new rates: the statement without them takes less."""
    now = time.monotonic()
    return any(_rated_until.get(who, now) <= now for who in settled)


def _is_usual(ticket: CallRequest, step: Settle) -> bool:
    """Whether it is a success that can only confirm its gate, and no other gate or place."""
    admission = step.admission
    is_plain = admission.account is None and admission.place is None and not admission.is_probe
    return step.outcome is Outcome.SUCCESS and is_plain and not ticket.policy.opening.are_used


def _settle_alone(pair: tuple[CallRequest, Settle], failure: Exception | None = None) -> Seen:
    """Settle one, also after others have failed to: then it may be settled already, if they lost the connection."""
    ticket, step = pair
    is_repeat = step.is_repeat or isinstance(failure, sql.LOST)
    return (_settle_again if is_repeat else _settle)(ticket, step)


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
        given = _settlement_of(ticket, step)
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
    kind = {
        "is_limited": any(gate["reserved_in"] is not None for gate in of_gates.values()),
        "is_guarded": any(row["token"] is not None for row in rows),
        "has_new_rates": _wants_rates(of_gates),
    }
    given = {"calls": orjson.dumps(rows).decode(), "gates": orjson.dumps(list(of_gates.values())).decode()}
    found = sql.rows(group_settlement.group_settlement(**kind), given)
    seen = {gate: Seen(Decision.ENDED, *about) for gate, *about in found}
    return [seen.get(places.get(place, -1)) for place in range(len(pairs))]


def _settle_within(ticket: CallRequest, step: Settle) -> Seen | None:
    """Settle one among others in their transaction; an error of its own is its caller's, who settles it alone."""
    try:
        return _settle(ticket, step)
    except sql.LOST:
        raise
    except DatabaseError:
        return None


group: Group[tuple[CallRequest, Settle], Seen | None] = Group(settle_together, _settle_alone, gather=GATHER)


@retry_conflicts
@transaction.atomic
def _settle_again(ticket: CallRequest, step: Settle) -> Seen:
    """Settle what may have been settled already."""
    gate_id, before = _look_back(ticket, step.attempt)
    if before is None:
        return _settle(ticket, step)
    decision = Decision.SUPPRESSED if before.retry_suppressed else Decision.ENDED
    if before.outcome == Outcome.RETRY.value:
        opened = Gate.objects.filter(state=BreakerState.OPEN.value)
        asked = Q(**ticket.account_gate._asdict()) if step.admission.account else Q(pk=gate_id)
        is_shut = step.returns_if_shut and opened.filter(Q(pk=gate_id) | asked).exists()
        decision = Decision.SHUT if is_shut else Decision.RETRY
    return Seen(decision, gate_id, 0.0, None, 0, is_rated=False)


def _settlement_of(ticket: CallRequest, step: Settle) -> dict[str, Any]:
    """What a settlement is given."""
    policy, is_success = ticket.policy, step.outcome is Outcome.SUCCESS
    return {
        **_given(ticket, step.attempt, step.error, step.outcome, step.refund),
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


def _given(
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
def _settle(ticket: CallRequest, step: Settle) -> Seen:
    given = _settlement_of(ticket, step)
    kind = settlements.Kind(
        is_limited=any(one.window_start is not None for one in (step.admission, step.admission.account) if one),
        is_guarded=ticket.token is not None,
        is_shared=step.admission.account is not None,
        has_rates=ticket.policy.opening.are_used,
        has_place=step.admission.place is not None,
    )
    dialect = sql.dialect()
    is_usual = dialect.is_one and step.error is None and not kind.has_rates and not step.admission.is_probe
    with _together(step.outcome):
        usual = kind._replace(is_usual=True, has_new_rates=_wants_rates([ticket.who]))
        found = _carry_out(settlements.texts_of(dialect, usual), given) if is_usual else []
        found = found or _carry_out(settlements.texts_of(dialect, kind), given)
        [(word, gate_id, now, rated_at, attempts, is_rated, *marks)] = found
        _write_events(marks, given, has_rates=kind.has_rates)
        decision = Decision(word)
        is_returned = decision is Decision.SHUT and step.returns_if_shut
        is_over = decision is not Decision.RETRY and not is_returned
        if step.outcome is Outcome.DEAD_LETTER and is_over and step.error is not None:
            dead_letters.record_dead_letter(ticket, step.error, step.attempt)
    for who, left in zip((ticket.who, ticket.account_gate), marks, strict=False):
        if left is not None:
            admitting.announce(who, left, why=given["why"])
    return Seen(decision, gate_id, now, rated_at, attempts, bool(is_rated))


def _write_events(marks: Sequence[Any], given: Mapping[str, Any], *, has_rates: bool) -> None:
    """Elsewhere than on PostgreSQL, events are written once it is known that there are any."""
    dialect = sql.dialect()
    for gate, left in zip((gates.PLAIN_GATE, gates.ACCOUNT_GATE), marks, strict=False):
        if left is not None and not dialect.is_one:
            sql.rows(gates.settlement_events(dialect, has_rates=has_rates).format(gate=f"({gate}) AS g"), given)


def refuse(ticket: CallRequest, step: Refuse, admission: Admission | None = None, *, is_repeat: bool = False) -> None:
    """Write down that an attempt was not made, and let go of what it held. `admission` is the gate's, if it refused."""
    gate_id = (_refuse_again if is_repeat else _refuse)(ticket, step, admission)
    if step.ends_execution:  # which the rates tell of
        rating.rate(gate_id, ticket.who)


@retry_conflicts
@transaction.atomic
def _refuse_again(ticket: CallRequest, step: Refuse, admission: Admission | None) -> int:
    gate_id, before = _look_back(ticket, step.attempt)
    return gate_id if before is not None else _refuse(ticket, step, admission)


def _look_back(ticket: CallRequest, attempt: int) -> tuple[int, ProviderExecutionMetric | None]:
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


@retry_conflicts
def _refuse(ticket: CallRequest, step: Refuse, admission: Admission | None) -> int:
    is_spent = admission is not None and admission.decision is Decision.QUOTA
    is_accounts = is_spent and admission is not None and admission.is_refused_by_account
    refund = step.refund.account or NOTHING
    given = {
        **_given(ticket, step.attempt, step.error, step.outcome, step.refund),
        "http_status": step.error.http_status,
        "lease": 0.0,  # what is refused is not tried again
        "duration_ms": 0.0,
        "budget_ms": None,
        "reserved_in": step.refund.window_start,
        "account_reserved_in": refund.window_start,
        "is_exhausted": int(is_spent and not is_accounts),
        "account_is_exhausted": int(is_accounts),
        "ends_execution": int(step.ends_execution),
        "is_success": 0,
        "claim_state": ClaimState.FAILED.value,
        "answer": None,
    }
    kind = settlements.Kind(
        is_refusal=True,
        is_limited=is_spent or step.refund.is_held,
        is_guarded=ticket.token is not None,
        is_shared=is_accounts or refund.is_held,
    )
    refusal = settlements.texts_of(sql.dialect(), kind)
    with _together(step.outcome):
        found = _carry_out(refusal, given)
        if not found:
            admitting.make_gate(ticket.who, ticket.account)
            found = _carry_out(refusal, given)
        if step.outcome is Outcome.DEAD_LETTER:
            dead_letters.record_dead_letter(ticket, step.error, step.attempt - 1)
    gate_id: int = found[0][0]
    return gate_id


@retry_conflicts
def stand_in(ticket: CallRequest, step: StandIn, *, is_repeat: bool = False) -> None:
    """Write down an answer that is not the provider's. A fresh one also belongs to the key that was claimed for it."""
    if is_repeat and _is_noted(ticket, source=step.source.value):
        return
    is_claimed = ticket.token is not None and step.source is Source.CACHE
    given = {
        **_given(ticket, step.attempt, step.error, Outcome.SUCCESS, NOTHING),
        **NOT_CALLED,
        "duration_ms": round(step.duration * 1000, 3),
        "source": step.source.value,
        "claim_state": ClaimState.SUCCEEDED.value,
        "answer": kept(step.payload) if is_claimed else None,
    }
    texts = settlements.stand_in_texts(sql.dialect(), step.source, is_claimed)
    with _together(Outcome.SUCCESS):
        if not _carry_out(texts, given):
            admitting.make_gate(ticket.who)
            _carry_out(texts, given)


@retry_conflicts
@transaction.atomic
def give_up(ticket: CallRequest, step: GiveUp, *, is_repeat: bool = False) -> None:
    """Keep the dead letter of a task whose failure is written down already, and for which nothing stood in."""
    if is_repeat and _is_noted(ticket, outcome=Outcome.DEAD_LETTER.value):
        return
    given = {
        **_given(ticket, step.attempt, step.error, Outcome.DEAD_LETTER, NOTHING),
        **NOT_CALLED,
        "duration_ms": 0.0,
    }
    sql.rows(statements.METRIC.format(gate=f"({gates.PLAIN_GATE}) AS g", **settlements.NO_RETRY), given)
    dead_letters.record_dead_letter(ticket, step.error, step.attempts_made)


def _is_noted(ticket: CallRequest, **about: str) -> bool:
    rows = ProviderExecutionMetric.objects.filter(correlation_id=ticket.context.correlation_id, call_id=ticket.call_id)
    return rows.filter(**about).exists()


def _carry_out(texts: list[str], given: dict[str, Any]) -> list[sql.Row]:
    """The rows of the last statement."""
    return [sql.rows(text, given) for text in texts][-1]


def _together(outcome: Outcome) -> AbstractContextManager[Any]:
    """A database transaction where several statements must hold or fail together."""
    return transaction.atomic() if outcome is Outcome.DEAD_LETTER or not sql.is_postgresql() else nullcontext()
