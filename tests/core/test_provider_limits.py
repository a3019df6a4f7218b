"""Bulkhead and rate limit: their policies, and how the rules wait for a turn."""

from typing import Any

import pytest

from engines.core.errors import PolicyError
from providers.core.breaker import BreakerPolicy, Permit, Verdict
from providers.core.errors import ProviderTimeoutError
from providers.core.exchange import CallRequest, Outcome, ProviderExecutionContext, Who
from providers.core.gate import Admission, Asked, Decision
from providers.core.journal_entry import dumped, loaded
from providers.core.limits import BulkheadPolicy, RateLimit
from providers.core.policy import ProviderPolicy
from providers.core.steps import Admit, Call, Refuse, Settle, Sleep
from tests.core.test_provider_calling import PASS, RETRY, Stage

FULL = Admission(Decision.BULKHEAD)
WAITING = ProviderPolicy(retry=RETRY, max_wait=3.0)


def paced(retry_after: float) -> Admission:
    return Admission(Decision.RATE, retry_after=retry_after)


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        (BulkheadPolicy, {"max_concurrent": 0}, "max_concurrent must be a whole number of at least 1 or null, not 0"),
        (BulkheadPolicy, {"max_concurrent": 501}, "max_concurrent must be at most 500 with scope fleet"),
        (BulkheadPolicy, {"scope": "host"}, "scope must be fleet or process, not 'host'"),
        (BulkheadPolicy, {"lease": 0}, "lease must be a number of seconds above 0, not 0"),
        (RateLimit, {"per_second": 0}, "per_second must be a number from 1e-06 to 10,000 or null, not 0"),
        (RateLimit, {"per_second": 20_000}, "per_second must be a number from 1e-06 to 10,000 or null, not 20000"),
        (RateLimit, {"burst": 0}, "burst must be a whole number of at least 1, not 0"),
    ],
)
def test_limits_that_cannot_be_are_refused(kind: Any, values: dict[str, Any], problem: str) -> None:
    with pytest.raises(PolicyError) as refused:
        kind(**values)
    assert str(refused.value) == f"{kind.__name__}.{problem}"


def test_a_process_may_run_more_than_a_row_can_hold() -> None:
    assert BulkheadPolicy(2000, "process").max_concurrent == 2000
    assert [BulkheadPolicy(scope=scope).is_fleets for scope in ("fleet", "process")] == [True, False]


def test_limits_that_nobody_sets_are_not_stored() -> None:
    assert {"bulkhead", "rate_limit", "max_wait"}.isdisjoint(ProviderPolicy().to_stored())
    policy = ProviderPolicy(bulkhead=BulkheadPolicy(3), rate_limit=RateLimit(0.5, 2), max_wait=1)
    assert ProviderPolicy.from_stored(policy.to_stored()) == policy


def test_only_calls_with_a_limit_go_the_longer_way() -> None:
    asked = Asked(BreakerPolicy())
    assert not asked.is_throttled
    limited = asked._replace(max_concurrent=3), asked._replace(rate_limit=RateLimit(5))
    assert [one.is_throttled for one in limited] == [True, True]
    assert [one.of_account for one in limited] == [asked, asked]


@pytest.mark.parametrize(
    ("limit", "lacks", "wait"),
    [
        (RateLimit(), 5.0, 0.0),
        (RateLimit(2, 1), 0.25, 0.25),
        (RateLimit(2, 1), 60.0, 0.5),
        (RateLimit(2, 4), 1.5, 0.0),
        (RateLimit(2, 4), 1.75, 0.25),
        (RateLimit(2, 4), -60.0, 0.0),
    ],
)
def test_a_bucket_tells_when_there_is_a_token(limit: RateLimit, lacks: float, wait: float) -> None:
    assert limit.wait(1000.0 + lacks, 1000.0) == wait


def test_a_call_waits_exactly_until_there_is_a_token() -> None:
    stage = Stage(admissions=[paced(0.7), paced(0.1), PASS])
    assert stage.play(WAITING).ok
    assert stage.names() == ["Admit", "Sleep", "Admit", "Sleep", "Admit", "Call", "Settle"]
    assert [step.seconds for step in stage.of(Sleep)] == [0.7, 0.1]
    assert {step.attempt for step in stage.of(Admit)} == {1}


@pytest.mark.parametrize(
    ("policy", "about", "refusals"),
    [
        (ProviderPolicy(), {}, [paced(0.1)]),
        (WAITING, {}, [paced(3.1)]),
        (WAITING, {}, [paced(2.0), paced(1.5)]),
        (WAITING, {"deadline": 102.0}, [paced(2.0)]),
        (ProviderPolicy(), {}, [FULL]),
        (WAITING, {"deadline": 100.01}, [FULL]),
    ],
)
def test_a_wait_that_is_too_long_is_not_begun(policy: ProviderPolicy, about: Any, refusals: list[Admission]) -> None:
    stage = Stage(admissions=refusals)
    result = stage.play(policy, **about)
    assert (len(stage.of(Sleep)), stage.of(Call)) == (len(refusals) - 1, [])
    assert (result.reason_code, result.retry_after) == ("rate_limited", refusals[-1].retry_after)
    [refusal] = stage.of(Refuse)
    assert (refusal.outcome, refusal.error.is_passing, refusal.error.never_left) == (Outcome.FAILED, True, True)


def test_a_call_looks_for_a_place_less_and_less_often_until_its_time_is_up() -> None:
    stage = Stage(admissions=[FULL] * 100)
    result = stage.play(WAITING)
    waits = [step.seconds for step in stage.of(Sleep)]
    assert sum(waits) == pytest.approx(3.0)
    assert 0.025 <= waits[0] <= 0.075
    assert all(wait <= 0.75 for wait in waits)
    assert len(waits) < 25
    assert (result.error and result.error.message, result.retry_after) == ("as many calls run as may at once", None)


def test_what_has_to_wait_for_its_turn_has_less_time_to_call() -> None:
    stage = Stage(admissions=[paced(1.0)])
    assert stage.play(WAITING, deadline=104.0).ok
    assert stage.of(Call)[0].timeout == 3.0


def test_all_attempts_together_wait_for_so_long() -> None:
    stage = Stage(ProviderTimeoutError(), admissions=[paced(2.0), PASS, paced(2.0)])
    result = stage.play(WAITING)
    assert [step.seconds for step in stage.of(Sleep)] == [2.0, 1.0]
    assert (result.reason_code, len(result.attempts)) == ("timeout", 1)
    assert stage.of(Settle)[0].lasts == 1.0 + 30.0 + 3.0


@pytest.mark.parametrize(("refused", "retry_after"), [(paced(9.0), 9.0), (FULL, None)])
def test_a_task_that_is_held_back_comes_back_whatever_its_attempts_were(
    refused: Admission, retry_after: float | None
) -> None:
    policy = ProviderPolicy(retry=RETRY)
    result = Stage(admissions=[refused]).play(policy, may_return=True, task_name="t")
    assert (result.outcome, result.retry_after) == (Outcome.RETRY, retry_after)
    stage = Stage(ProviderTimeoutError(), admissions=[PASS, refused])
    result = stage.play(policy, may_return=True, task_name="t")
    assert (result.outcome, result.reason_code, result.retry_after) == (Outcome.RETRY, "timeout", retry_after)
    assert stage.of(Refuse)[0].outcome is Outcome.FAILED


def test_the_journal_keeps_a_place_and_is_as_before_without_one() -> None:
    who = Who("t", "rank", "snapshot")
    request = CallRequest(
        who=who, operation="o", key="k", fingerprint="f", policy=WAITING, context=ProviderExecutionContext("c")
    )
    for place in ("17", None):
        admission = Admission(Decision.ADMITTED, Permit(3), place=place)
        text = dumped(request, Settle(1, admission, 0.1, None, Verdict.SUCCESS, Outcome.SUCCESS))
        assert loaded(text)[1].admission == admission
        assert ('"place"' in text) is (place is not None)
