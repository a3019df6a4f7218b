"""The gate's statements and the gate's rules decide alike, over histories made by chance."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from providers.calls import settling
from providers.core.breaker import Breaker, BreakerPolicy, BreakerState, OpeningRules, Permit, Verdict
from providers.core.gate import EVERY, NOTHING, Admission, Asked, Decision, Reservation, Scope, moment
from providers.core.limits import RateLimit
from providers.core.retry import RetryBudget
from providers.database import admitting, gates, sql
from providers.database.dialects import Dialect
from providers.models import Gate
from tests.core.gate_model import Asks, Gate as GateValue, Override, Pair, Quota, Returned, opened
from tests.core.test_provider_gate import (  # noqa: F401 (the tables, decided by the statements)
    test_a_bucket_fills_steadily_and_no_edge_gives_twice_its_burst,
    test_a_call_that_runs_holds_a_place_until_it_comes_back_or_its_lease_ends,
    test_a_pause_holds_until_it_is_over_and_the_longest_wins,
    test_a_refund_waits_for_the_end_unless_each_attempt_is_billed,
    test_an_older_generation_changes_nothing,
    test_an_operators_word_stands_above_the_breaker_while_it_lasts,
    test_another_rate_leaves_no_debt,
    test_enough_probes_close_it_and_one_that_fails_opens_it,
    test_failures_in_a_row_open_it_and_successes_start_anew,
    test_half_open_lets_so_many_probes_pass_and_waits_for_them,
    test_open_refuses_until_its_cooldown_is_over,
    test_quota_is_named_first_and_a_refusal_spends_nothing,
    test_retries_spend_until_nothing_is_left,
    test_what_an_operator_says_counts_for_retries_too,
    test_what_another_limit_refuses_takes_neither_a_token_nor_a_place,
    tripped,
)
from tests.factories import GateFactory
from tests.providers.scripted_providers import WHO

pytestmark = pytest.mark.django_db(transaction=True)

START = 1_700_000_000.0
NAMED = dict(zip(("tenant", "provider", "capability"), WHO, strict=True))
BUDGET = RetryBudget(capacity=2, earned_by_success=0.5)

policies = st.builds(
    BreakerPolicy,
    failure_threshold=st.integers(1, 3),
    open_cooldown_seconds=st.sampled_from([0.0, 5.0]),
    half_open_max_calls=st.integers(1, 2),
    success_threshold=st.integers(1, 2),
)
# Those of a policy that is changed while calls run.
limits = st.sampled_from(
    [
        {},
        {"max_concurrent": 2, "call_lease": 4.0},
        {"rate_limit": RateLimit(0.4, 2)},
        {"rate_limit": RateLimit(3.0, 1)},
        {"max_concurrent": 1, "call_lease": 9.0, "rate_limit": RateLimit(0.1, 3)},
    ]
)
moves = st.one_of(
    st.tuples(st.just("admit"), st.integers(0, 2), st.sampled_from([3.0, 20.0]), limits),
    st.tuples(
        st.just("settle"),
        st.integers(0, 5),
        st.sampled_from(list(Verdict)),
        st.booleans(),
        st.sampled_from([None, None, 4.0]),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
)
rules = st.builds(
    OpeningRules,
    failure_rate=st.sampled_from([None, 0.5, 1.0]),
    slow_rate=st.sampled_from([None, 0.4]),
    calls=st.sampled_from([5, 20]),
    seconds=st.sampled_from([None, 5.0, 30.0]),
    minimum_calls=st.integers(1, 4),
    is_shadow=st.booleans(),
)
# Now and then the database's clock is set back by an hour, and perhaps forth again.
times = st.sampled_from([*[0.0, 1.0, 2.5, 6.0] * 5, -3600.0, 3600.0])
histories = st.lists(st.tuples(times, moves), max_size=25)
quotas = st.sampled_from([None, (0, 10.0), (3, 10.0), (5, 7.0)])
overrides = st.sampled_from([None, None, Override(BreakerState.OPEN, START + 8), Override(BreakerState.CLOSED)])


def given_clock() -> Dialect:
    """The time is given instead of the database's."""
    given = "CAST(%(now)s AS double precision)"
    return sql.dialect()._replace(clock=given, clock_of_turn=given)


def settled_by(parts: dict[str, str], given: dict[str, Any], *usual: Returned, **terms: bool) -> str:
    """The decision of a settlement: of the short statement for usual calls, and where that settles nothing, of all."""
    kinds = {(one.permit.probe, one.rules.are_used, one.cooldown, one.refund.amount) for one in usual}
    if not given_clock().is_one:
        for text in parts.values():
            sql.rows(text, given)
    elif not (usual[0].succeeded and kinds == {(None, False, None, 0)} and _settle(_usual(**terms), given)):
        assert _settle(parts, given)
    return Gate.objects.get(**WHO._asdict()).decision


def _usual(**terms: bool) -> dict[str, str]:
    return gates.usual_settlement(given_clock(), **terms)


def _settle(parts: dict[str, str], given: dict[str, Any]) -> list[sql.Row]:
    named = ", ".join(f"{name} AS ({text})" for name, text in parts.items())
    return sql.rows(f"WITH {named} SELECT 1 FROM {', '.join(parts.keys() & {'g', 'a'})}", given)


class OnRow:
    """The statements on one gate: the short ones of the usual case, and the whole ones where those decide nothing."""

    def admit(self, asked: Asked, now: float) -> Admission:
        given = {**admitting.given_for(WHO, asked), "now": now}
        found = [] if asked.is_throttled else sql.rows(gates.passing(given_clock()), given)
        [row] = found or sql.rows(gates.admission(given_clock(), is_throttled=asked.is_throttled), given)
        return admitting.admission_in(row, asked)

    def settle(self, result: Returned, now: float) -> str:
        has_place = result.place is not None
        whole = gates.gate_settlement(given_clock(), has_place=has_place, has_rates=result.rules.are_used)
        given = {**NAMED, **call_in(result), **part_in(result), "now": now}
        return settled_by({"g": whole}, given, result, has_place=has_place)


class OnTwoRows:
    """The statements on the gates of a tenant and of its account."""

    def __init__(self, breaker: Scope, pause: Scope) -> None:
        self.scopes = breaker, pause

    def admit(self, asked: Asked, now: float) -> tuple[Admission, Admission]:
        asked = asked._replace(breaker_scope=self.scopes[0], pause_scope=self.scopes[1])
        given, dialect = {**admitting.given_for(WHO, asked), "now": now}, given_clock()
        texts = gates.shared_admission(dialect, is_throttled=asked.is_throttled)
        is_usual = dialect.is_one and not asked.is_throttled
        found = sql.rows(gates.passing(dialect, is_shared=True), given) if is_usual else []
        row = sum(found or (row for text in texts for row in sql.rows(text, given)), ())
        parts = row[: admitting.COLUMNS], row[admitting.COLUMNS :]
        return admitting.admission_in(parts[0], asked), admitting.admission_in(parts[1], asked.of_account)

    def settle(self, tenant: Returned, account: Returned, now: float) -> str:
        shared = {f"account_{name}": value for name, value in part_in(account).items()}
        given = {**NAMED, **call_in(tenant), **part_in(tenant), **shared, **admitting.asks(*self.scopes)}
        has_place = tenant.place is not None
        whole = gates.shared_settlement(given_clock(), has_place=has_place)
        about = {**given, "account": EVERY, "now": now}
        return settled_by(whole, about, tenant, account, is_shared=True, has_place=has_place)


def call_in(result: Returned) -> dict[str, Any]:
    return {
        "place": result.place,
        "is_success": int(result.succeeded),
        "wants_retry": int(result.wants_retry),
        "refunds_retry": int(result.refunds_retry),
        "capacity": result.budget.capacity,
        "earned": result.budget.earned_by_success,
        "failure_threshold": result.breaker.failure_threshold,
        "success_threshold": result.breaker.success_threshold,
        "open_cooldown_seconds": result.breaker.open_cooldown_seconds,
        **settling.rates(result.rules, math.inf if result.is_slow else 0.0),
    }


def part_in(result: Returned) -> dict[str, Any]:
    return {
        "verdict": result.verdict.value,
        "generation": result.permit.generation,
        "probe": result.permit.probe,
        "refund": result.refund.amount,
        "refund_start": result.refund.window_start,
        "cooldown": result.cooldown,
    }


def kept(gate: GateValue, **more: Any) -> None:
    """The gate as a row."""
    breaker, quota, override = gate.breaker, gate.quota, gate.override
    row: dict[str, Any] = {
        **{name: getattr(breaker, name) for name in ("generation", "consecutive_failures", "successes", "open_until")},
        "state": breaker.state.value,
        "probes": dict(breaker.probes),
        "cooldown_until": gate.cooldown_until,
        "retry_tokens": gate.tokens,
        "admissions": gate.admissions,
        "settlements": gate.settlements,
        "recent": gate.recent,
        "running": dict(gate.running),
        "bucket_full_at": gate.full_at or None,
        "turned_at": gate.turned_at,
        "decided_at": gate.decided_at,
    }
    if quota is not None:
        row |= {name: getattr(quota, name) for name in ("used", "previous_start", "previous_used")}
        row |= {"quota_limit": quota.limit, "quota_window": quota.window}
        row |= {"window_start": quota.start, "window_end": quota.end}
    if override is not None:
        row |= {"override": override.state.value, "override_until": override.until}
    Gate.objects.filter(tenant_id=more.get("tenant_id", WHO.tenant_id)).delete()
    GateFactory.create(**row, **more)


@dataclass(frozen=True, slots=True)
class Stated(GateValue):
    """A gate that is decided by the statements, on a row that is made of its values."""

    def admit(self, asked: Asked, now: float) -> tuple[GateValue, Admission]:
        kept(self)
        admission = OnRow().admit(asked, now)
        return value_of(Gate.objects.get()), admission

    def settle(self, result: Returned, now: float) -> tuple[GateValue, Decision]:
        kept(self)
        decision = OnRow().settle(result, now)
        return value_of(Gate.objects.get()), Decision(decision)


@pytest.fixture
def new() -> GateValue:
    return Stated()


def value_of(row: Any) -> GateValue:
    """The row as a value of the model."""
    window = (row.window_start, row.window_end, row.used, row.previous_start, row.previous_used)
    successes = (row.consecutive_failures, row.successes)
    return Stated(
        breaker=Breaker(BreakerState(row.state), row.generation, *successes, row.open_until, row.probes),
        quota=None if row.quota_limit is None else Quota(row.quota_limit, row.quota_window, *window),
        cooldown_until=row.cooldown_until,
        tokens=row.retry_tokens,
        override=Override(BreakerState(row.override), row.override_until) if row.override else None,
        admissions=row.admissions,
        settlements=row.settlements,
        recent={int(name): tuple(counts) for name, counts in row.recent.items()},
        shadow_openings=row.shadow_openings,
        running=row.running,
        full_at=row.bucket_full_at or 0.0,
        turned_at=row.turned_at,
        decided_at=row.decided_at,
    )


def plain(gate: GateValue) -> GateValue:
    """What two gates are compared by: a row without a token's change may not have been asked for its tokens."""
    return replace(gate, tokens=BUDGET.capacity if gate.tokens is None else gate.tokens)


@settings(max_examples=40)
@given(policy=policies, opening=rules, quota=quotas, override=overrides, history=histories)
def test_the_statements_and_the_rules_decide_alike(
    policy: Any, opening: Any, quota: Any, override: Any, history: Any
) -> None:
    gate = GateValue(quota=opened(quota[0], quota[1], START) if quota else None, override=override)
    kept(gate)
    row, now, passed = OnRow(), START, [Admission(gate.admit(Asked(policy, 99), START)[1].decision, Permit(7))]
    for later, (kind, *about) in history:
        now += later
        before = gate.breaker
        if kind == "admit":
            asked = asked_for(policy, *about)
            gate, admission = gate.admit(asked, now)
            assert close(row.admit(asked, now), admission)
            if admission.decision.is_admission:
                passed.append(admission)
        else:
            result = returned(policy, passed, *about)._replace(rules=opening)
            gate, decision = gate.settle(result, now)
            assert row.settle(result, now) == decision.value
        kept_row = Gate.objects.get()
        assert kept_row.turned_from == ("" if gate.breaker.generation == before.generation else before.state.value)
        assert seen(plain(value_of(kept_row))) == seen(plain(gate))
        assert kept_row.effective_state(moment(now)) is gate.state_at(now)


@settings(max_examples=40)
@given(
    policy=policies,
    limits=st.tuples(quotas, quotas),
    words=st.tuples(overrides, overrides),
    scopes=st.tuples(st.sampled_from(list(Scope)), st.sampled_from(list(Scope))),
    history=histories,
)
def test_two_gates_decide_like_the_rules_of_each_with_what_the_other_says(
    policy: Any, limits: Any, words: Any, scopes: Any, history: Any
) -> None:
    tenant, account = (
        GateValue(quota=opened(limit[0], limit[1], START) if limit else None, override=word)
        for limit, word in zip(limits, words, strict=True)
    )
    kept(tenant, is_shared=True)
    kept(account, tenant_id=EVERY, capability=EVERY)
    breaker, pause = scopes
    asks = Asks(breaker.has_tenant, pause.has_tenant), Asks(breaker.has_account, pause.has_account)
    pair, rows, now, passed = Pair(tenant, account, *asks), OnTwoRows(*scopes), START, []
    for later, (kind, *about) in history:
        now += later
        if kind == "admit":
            asked = asked_for(policy, *about)
            pair, *expected = pair.admit(asked, now)
            is_passed = all(one.decision.is_admission for one in expected)
            for found, wanted in zip(rows.admit(asked, now), expected, strict=True):
                is_elsewhere = wanted.decision.is_admission and not is_passed
                assert found.decision is Decision.ELSEWHERE if is_elsewhere else close(found, wanted)
            passed += [tuple(expected)] if is_passed else []
        elif passed:
            of_tenant, of_account = settled(policy, passed, scopes, *about)
            pair, decision = pair.settle(of_tenant, of_account, now)
            assert rows.settle(of_tenant, of_account, now) == decision.value
        for who, gate in ((WHO.tenant_id, pair.tenant), (EVERY, pair.account)):
            assert seen(plain(value_of(Gate.objects.get(tenant_id=who)))) == seen(plain(gate))


def asked_for(policy: BreakerPolicy, cost: int, probe_lease: float, limits: dict[str, Any]) -> Asked:
    return Asked(policy, cost, probe_lease)._replace(**limits)


def settled(policy: BreakerPolicy, passed: Any, scopes: Any, which: int, *about: Any) -> tuple[Returned, Returned]:
    """What one call says of both its gates: neutral, and no pause, to one that nobody counts it on."""
    told = [returned(policy, list(admissions), which, *about) for admissions in zip(*passed, strict=True)]
    breaker, pause = scopes
    counts = (breaker.has_tenant, pause.has_tenant), (breaker.has_account, pause.has_account)
    parts = [
        one._replace(
            verdict=one.verdict if is_counted else Verdict.NEUTRAL,
            cooldown=one.cooldown if is_paused else None,
            succeeded=one.verdict is Verdict.SUCCESS,
        )
        for one, (is_counted, is_paused) in zip(told, counts, strict=True)
    ]
    return parts[0], parts[1]


def close(one: Admission, other: Admission) -> bool:
    same = one._replace(retry_after=None) == other._replace(retry_after=None)
    return same and one.retry_after == pytest.approx(other.retry_after, abs=1e-3)


def returned(policy: BreakerPolicy, passed: list[Admission], which: int, *about: Any) -> Returned:
    verdict, wants_retry, cooldown, is_refunded, refunds_retry, is_slow = about
    admission = passed[-1 - which % len(passed)]
    refund = Reservation(admission.reserved, admission.window_start) if is_refunded else NOTHING
    wants = wants_retry and verdict is not Verdict.SUCCESS
    is_success = verdict is Verdict.SUCCESS
    result = Returned(admission.permit, verdict, policy, BUDGET, wants, cooldown, refund, refunds_retry, is_success)
    return result._replace(place=admission.place, is_slow=is_slow)


def seen(gate: GateValue) -> Any:
    breaker, quota = gate.breaker, gate.quota
    return [
        [breaker.state, breaker.generation, breaker.consecutive_failures, breaker.successes, breaker.open_until],
        {name: round(until, 3) for name, until in breaker.probes.items()},
        quota and [quota.limit, quota.start, quota.end, quota.used, quota.previous_start, quota.previous_used],
        [gate.cooldown_until, round(gate.tokens or 0, 6), gate.admissions, gate.turned_at, gate.decided_at],
        [gate.recent, gate.shadow_openings],
        {place: round(until, 3) for place, until in gate.running.items()},
        round(gate.full_at, 3),
    ]
