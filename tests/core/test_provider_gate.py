"""The gate: breaker, quota, cooldown, budget and overrides, decided together.

Here the model decides. `tests/providers/test_gate_statements.py` has the statements decide the same tables.
"""

from dataclasses import replace
from typing import Any

import pytest

from providers.core.breaker import Breaker, BreakerPolicy, BreakerState, Permit, Verdict, verdict_of
from providers.core.errors import (
    ProviderBadRequestError,
    ProviderCircuitOpenError,
    ProviderRateLimitError,
    ProviderTimeoutError,
)
from providers.core.gate import Asked, Decision, Reservation
from providers.core.limits import RateLimit
from providers.core.retry import RetryBudget
from providers.drivers.circuit_breaker import CircuitBreaker
from tests.core.gate_model import Gate, Override, Returned, opened

POLICY = BreakerPolicy(failure_threshold=2, open_cooldown_seconds=10, half_open_max_calls=2, success_threshold=2)
BUDGET = RetryBudget(capacity=2, earned_by_success=0.5)
ASKED = Asked(POLICY, cost=1, probe_lease=5)


def returned(permit: Permit, verdict: Verdict, **more: object) -> Returned:
    told = Returned(permit, verdict, POLICY, BUDGET, succeeded=verdict is Verdict.SUCCESS)
    return told._replace(**more)  # type: ignore[arg-type]


@pytest.fixture
def new() -> Gate:
    return Gate()


@pytest.fixture
def tripped(new: Gate) -> Gate:
    gate = new
    for _ in range(2):
        gate, admission = gate.admit(ASKED, 0)
        gate, _decision = gate.settle(returned(admission.permit, Verdict.FAILURE), 0)
    assert gate.breaker.state is BreakerState.OPEN
    return gate


def test_failures_in_a_row_open_it_and_successes_start_anew(new: Gate, tripped: Gate) -> None:
    gate, admission = new.admit(ASKED, 0)
    gate, _ = gate.settle(returned(admission.permit, Verdict.FAILURE), 0)
    gate, _ = gate.settle(returned(admission.permit, Verdict.SUCCESS), 0)
    gate, _ = gate.settle(returned(admission.permit, Verdict.NEUTRAL), 0)
    assert gate.breaker.consecutive_failures == 0
    assert tripped.breaker.open_until == 10


def test_open_refuses_until_its_cooldown_is_over(tripped: Gate) -> None:
    gate, refused = tripped.admit(ASKED, 4)
    assert (refused.decision, refused.retry_after, gate.admissions) == (Decision.CIRCUIT, 6, 2)


def test_half_open_lets_so_many_probes_pass_and_waits_for_them(tripped: Gate) -> None:
    gate = tripped
    assert gate.state_at(10) is BreakerState.HALF_OPEN
    gate, first = gate.admit(ASKED, 10)
    gate, second = gate.admit(ASKED, 11)
    gate, third = gate.admit(ASKED, 12)
    assert [one.decision for one in (first, second, third)] == [Decision.PROBE, Decision.PROBE, Decision.CIRCUIT]
    assert third.retry_after == 3
    gate, later = gate.admit(ASKED, 15)
    assert (later.decision, len(gate.breaker.live_probes(15))) == (Decision.PROBE, 2)


def test_enough_probes_close_it_and_one_that_fails_opens_it(tripped: Gate) -> None:
    gate, first = tripped.admit(ASKED, 10)
    gate, second = gate.admit(ASKED, 10)
    gate, _ = gate.settle(returned(first.permit, Verdict.SUCCESS), 11)
    assert gate.breaker.state is BreakerState.HALF_OPEN
    closed, _ = gate.settle(returned(second.permit, Verdict.SUCCESS), 11)
    assert closed.breaker == Breaker(generation=3)
    opened_again, _ = gate.settle(returned(second.permit, Verdict.FAILURE), 11)
    assert (opened_again.breaker.state, opened_again.breaker.open_until) == (BreakerState.OPEN, 21)
    neutral, _ = gate.settle(returned(second.permit, Verdict.NEUTRAL), 11)
    assert neutral.breaker.probes == {}


def test_an_older_generation_changes_nothing(tripped: Gate) -> None:
    gate = tripped
    late, _ = gate.settle(returned(Permit(0), Verdict.SUCCESS), 1)
    assert late.breaker == gate.breaker
    same, _ = gate.settle(returned(Permit(1), Verdict.SUCCESS), 1)
    assert same.breaker == gate.breaker


def test_quota_is_named_first_and_a_refusal_spends_nothing(tripped: Gate) -> None:
    gate = replace(tripped, quota=opened(0, 60, 0))
    after, refused = gate.admit(ASKED, 1)
    assert (refused.decision, refused.retry_after, after) == (Decision.QUOTA, 59, gate)
    gate = replace(gate, quota=opened(5, 60, 0))
    after, refused = gate.admit(ASKED, 1)
    assert (refused.decision, after) == (Decision.CIRCUIT, gate)


def test_a_pause_holds_until_it_is_over_and_the_longest_wins(new: Gate) -> None:
    gate, _ = new.settle(returned(Permit(0), Verdict.NEUTRAL, cooldown=10.0), 0)
    gate, _ = gate.settle(returned(Permit(0), Verdict.NEUTRAL, cooldown=3.0), 1)
    _, refused = gate.admit(ASKED, 4)
    assert (refused.decision, refused.retry_after) == (Decision.COOLING, 6)
    assert gate.admit(ASKED, 10)[1].decision is Decision.ADMITTED


def test_an_operators_word_stands_above_the_breaker_while_it_lasts(new: Gate, tripped: Gate) -> None:
    shut = replace(new, override=Override(BreakerState.OPEN, 10))
    assert (shut.admit(ASKED, 4)[1].retry_after, shut.state_at(4)) == (6, BreakerState.OPEN)
    assert shut.admit(ASKED, 10)[1].decision is Decision.ADMITTED
    assert replace(new, override=Override(BreakerState.OPEN)).admit(ASKED, 4)[1].retry_after is None
    forced = replace(tripped, override=Override(BreakerState.CLOSED))
    assert forced.admit(ASKED, 4)[1].decision is Decision.ADMITTED


@pytest.mark.parametrize(
    ("word", "until", "decision"),
    [
        (BreakerState.CLOSED, None, Decision.RETRY),
        (BreakerState.CLOSED, 1, Decision.SHUT),
        (BreakerState.OPEN, 9, Decision.SHUT),
    ],
)
def test_what_an_operator_says_counts_for_retries_too(
    new: Gate, tripped: Gate, word: BreakerState, until: float | None, decision: Decision
) -> None:
    gate = replace(tripped, override=Override(word, until))
    assert gate.settle(returned(Permit(0), Verdict.FAILURE, wants_retry=True), 2)[1] is decision
    healthy = replace(new, override=Override(BreakerState.OPEN))
    assert healthy.settle(returned(Permit(0), Verdict.FAILURE, wants_retry=True), 2)[1] is Decision.SHUT


def test_retries_spend_until_nothing_is_left(new: Gate, tripped: Gate) -> None:
    gate, decisions = new, []
    for _ in range(3):
        gate, decision = gate.settle(returned(Permit(9), Verdict.FAILURE, wants_retry=True), 0)
        decisions.append(decision)
    assert decisions == [Decision.RETRY, Decision.RETRY, Decision.SUPPRESSED]
    gate, _ = gate.settle(returned(Permit(9), Verdict.SUCCESS), 0)
    assert gate.tokens == 0.5
    assert tripped.settle(returned(Permit(0), Verdict.FAILURE, wants_retry=True), 0)[1] is Decision.SHUT


def test_a_refund_waits_for_the_end_unless_each_attempt_is_billed(new: Gate) -> None:
    gate, admission = replace(new, quota=opened(5, 60, 0)).admit(ASKED, 0)
    back = {"refund": Reservation(admission.reserved, admission.window_start)}
    kept, _ = gate.settle(returned(admission.permit, Verdict.FAILURE, wants_retry=True, **back), 0)
    billed, _ = gate.settle(
        returned(admission.permit, Verdict.FAILURE, wants_retry=True, refunds_retry=True, **back), 0
    )
    ended, _ = gate.settle(returned(admission.permit, Verdict.FAILURE, **back), 0)
    assert [one.quota and one.quota.used for one in (kept, billed, ended)] == [1, 0, 0]


@pytest.mark.parametrize(
    ("error", "counts", "verdict"),
    [
        (None, False, Verdict.SUCCESS),
        (ProviderTimeoutError(), False, Verdict.FAILURE),
        (ProviderBadRequestError(), False, Verdict.NEUTRAL),
        (ValueError(), True, Verdict.NEUTRAL),
        (TimeoutError(), False, Verdict.FAILURE),
        (ConnectionResetError(), False, Verdict.FAILURE),
        (ProviderRateLimitError(), False, Verdict.NEUTRAL),
        (ProviderRateLimitError(), True, Verdict.FAILURE),
    ],
)
def test_only_what_means_that_it_is_ill_counts(error: Exception | None, counts: bool, verdict: Verdict) -> None:  # noqa: FBT001
    assert verdict_of(error, count_rate_limited=counts) is verdict


def test_a_breaker_of_one_process() -> None:
    now = [0.0]
    breaker = CircuitBreaker(POLICY, clock=lambda: now[0])
    assert (CircuitBreaker().policy, breaker.generation) == (BreakerPolicy(), 0)
    for _ in range(2):
        breaker.before_call()
        breaker.after_call(error=ProviderTimeoutError())
    with pytest.raises(ProviderCircuitOpenError):
        breaker.before_call()
    assert (breaker.state, breaker.open_until, breaker.consecutive_failures) == (BreakerState.OPEN, 10, 2)
    now[0] = 10
    for _ in range(2):
        breaker.before_call()
        breaker.after_call()
    assert breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize(
    ("error", "counts", "state"),
    [
        (TimeoutError(), False, BreakerState.OPEN),
        (ProviderRateLimitError(), False, BreakerState.CLOSED),
        (ProviderRateLimitError(), True, BreakerState.OPEN),
    ],
)
def test_a_breaker_of_one_process_counts_what_the_provider_raises(
    error: Exception,
    counts: bool,  # noqa: FBT001
    state: BreakerState,
) -> None:
    breaker = CircuitBreaker(failure_threshold=1, count_rate_limited=counts)
    breaker.after_call(breaker.before_call(), error=error)
    assert breaker.state is state


def test_a_breaker_of_one_process_has_the_fields_of_the_documents() -> None:
    given: dict[str, Any] = {"failure_threshold": 3, "open_cooldown_seconds": 7.0, "half_open_max_calls": 2}
    breaker = CircuitBreaker(BreakerPolicy(success_threshold=4), **given)
    assert {name: getattr(breaker, name) for name in given} == given
    assert (breaker.success_threshold, breaker.consecutive_failures, breaker.open_until) == (4, 0, None)
    with pytest.raises(TypeError):
        CircuitBreaker(threshold=3)


def test_nobody_waits_for_probes_that_are_gone() -> None:
    assert Breaker(state=BreakerState.HALF_OPEN).reopens_at(7) == 7


def test_a_call_that_runs_holds_a_place_until_it_comes_back_or_its_lease_ends(new: Gate) -> None:
    asked = ASKED._replace(max_concurrent=2, call_lease=10.0)
    gate, first = new.admit(asked, 100)
    gate, second = gate.admit(asked, 103)
    gate, third = gate.admit(asked, 104)
    assert (third.decision, third.retry_after, third.place) == (Decision.BULKHEAD, None, None)
    assert gate.running == {"1": 110, "2": 113}
    gate, _ = gate.settle(returned(first.permit, Verdict.FAILURE, place=first.place), 105)
    gate, fourth = gate.admit(asked, 105)
    assert (fourth.decision, second.place, set(gate.running)) == (Decision.ADMITTED, "2", {"2", "3"})
    gate, fifth = gate.admit(asked, 113)
    assert (fifth.decision, set(gate.running)) == (Decision.ADMITTED, {"3", "4"})


def test_a_bucket_fills_steadily_and_no_edge_gives_twice_its_burst(new: Gate) -> None:
    asked = ASKED._replace(rate_limit=RateLimit(per_second=2, burst=4))
    gate, admitted = new, []
    for tick in range(800, 880):
        gate, admission = gate.admit(asked, tick / 8)
        if admission.decision is Decision.ADMITTED:
            admitted.append(tick / 8)
        else:
            assert admission.decision is Decision.RATE
            assert gate.admit(asked, tick / 8 + (admission.retry_after or 0))[1].decision is Decision.ADMITTED
    assert len(admitted) == 4 + 2 * 10 - 1
    for start in admitted:
        assert sum(start <= at < start + 1 for at in admitted) <= 4 + 2


def test_another_rate_leaves_no_debt(new: Gate) -> None:
    daily = ASKED._replace(rate_limit=RateLimit(1 / 86400, 1))
    gate, _ = new.admit(daily, 100)
    _, refused = gate.admit(daily, 100)
    assert refused.retry_after == pytest.approx(86400)
    faster = ASKED._replace(rate_limit=RateLimit(2, 3))
    gate, refused = gate.admit(faster, 100)
    assert refused.retry_after == pytest.approx(0.5)
    assert gate.admit(faster, 100.5)[1].decision is Decision.ADMITTED


def test_what_another_limit_refuses_takes_neither_a_token_nor_a_place(new: Gate) -> None:
    asked = ASKED._replace(rate_limit=RateLimit(1, 2), max_concurrent=1)
    gate, _ = new.admit(asked, 100)
    after, full = gate.admit(asked, 100)
    assert (full.decision, after) == (Decision.BULKHEAD, gate)
    gate, _ = gate.admit(asked._replace(max_concurrent=2), 100)
    after, slow = gate.admit(asked._replace(max_concurrent=3), 100)
    assert (slow.decision, after) == (Decision.RATE, gate)
