"""Quota, budget, histogram, keys and policies of providers, as tables."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies

from engines.core.errors import PolicyError
from providers.core import histogram, request as idempotency
from providers.core.errors import ProviderTimeoutError, ProviderUsageError
from providers.core.exchange import Outcome, ProviderExecutionContext, ProviderExecutionResult, Who
from providers.core.gate import NOTHING, SET_BACK, Reservation, Window, aligned
from providers.core.policy import ProviderPolicy
from providers.core.request import Request
from providers.core.retry import RetryBudget, RetryPolicy
from tests.core.gate_model import Quota, earn, opened, spend

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_windows_are_aligned_and_never_overlap() -> None:
    quota = opened(5, 10, 103)
    assert (quota.start, quota.end, quota.remaining) == (100, 110, 5)
    assert quota.at(109.9) is quota
    later = quota.reserve(2).at(137)
    assert (later.start, later.end, later.used, later.previous_start, later.previous_used) == (130, 140, 0, 100, 2)
    assert Quota(5, 10, 95, 105).at(106).start == 105
    assert later.at(100) is later
    window = Window(100, 110, used=2)
    assert (window.at(109.9, 10), window.at(137, 10)) == (window, Window(130, 140))
    assert Window(95, 105).at(106, 10) == Window(105, 110)


def test_windows_go_back_only_with_a_clock_that_was_set_back() -> None:
    window, quota = Window(1000, 1010, used=2), opened(5, 10, 1000).reserve(2)
    assert (window.at(1000 - SET_BACK, 10), quota.at(1000 - SET_BACK)) == (window, quota)
    assert window.at(505, 10) == Window(500, 510)
    back = quota.at(505)
    assert (back.start, back.end, back.used, back.previous_start, back.previous_used) == (500, 510, 0, 1000, 2)


def test_a_refund_stays_in_its_window() -> None:
    quota = opened(5, 10, 100).reserve(3)
    assert quota.refund(Reservation(2, 100)).used == 1
    assert quota.refund(Reservation(2, 90)).used == 3
    assert quota.refund(NOTHING).used == 3
    assert quota.refuses(3)
    assert not quota.refuses(2)
    assert not opened(0, 10, 0).refuses(0)


@given(strategies.floats(0, 1e10), strategies.floats(0.1, 1e6))
def test_every_time_lies_in_its_window(now: float, window: float) -> None:
    start, end, _ = aligned(now, window)
    assert start - 1e-3 <= now <= end + 1e-3


def test_successes_earn_and_retries_spend() -> None:
    budget = RetryBudget(capacity=2, earned_by_success=0.5)
    assert (earn(budget, 1), earn(budget, 1.9), spend(budget, 2), spend(budget, 9)) == (1.5, 2, 1, 1)
    assert spend(budget, 0.9) is None


@given(
    strategies.lists(strategies.floats(0.001, 1e6), min_size=1, max_size=200), strategies.sampled_from([0.5, 0.95, 1])
)
def test_a_percentile_is_exact_within_its_bucket(values: list[float], share: float) -> None:
    half = len(values) // 2
    parts = [{}, *({histogram.bucket_of(value): 1} for value in values[:half])]
    buckets = histogram.merged([*parts, *({histogram.bucket_of(value): 1} for value in values[half:])])
    exact = sorted(values)[max(1, -int(-(share * len(values)) // 1)) - 1]
    found = histogram.percentile(buckets, share)
    assert found is not None
    assert found == pytest.approx(exact, rel=0.07, abs=histogram.SMALLEST)


def test_without_calls_there_are_no_rates() -> None:
    assert histogram.percentile({}, 0.95) is None
    assert histogram.rate(0, 0) is None
    assert histogram.rate(1, 4) == 0.25
    assert histogram.rates_of([]) == histogram.Rates()


def test_rates_are_those_of_all_minutes_together() -> None:
    bucket = histogram.bucket_of(20)
    minutes = [(3, 1, 2, 1, {bucket: 3}), (1, 1, 1, 1, f'{{"{bucket}": 1}}')]
    success, execution, p95, *counts = histogram.rates_of(minutes)[:5]
    assert (success, execution, counts) == (0.5, 2 / 3, [4, 0])
    assert p95 == pytest.approx(20, rel=0.035)


def request(payload: dict[str, Any], **changes: Any) -> Request:
    asked = {"tenant_id": "t", "provider_name": "p", "capability": "c", "operation": "o", "version": 1}
    return Request(**{**asked, "payload": payload, **changes})


def test_requests_that_mean_the_same_have_one_key() -> None:
    first = request({"a": 1, "b": [1, {"c": None}]})
    assert first.key == request({"b": [1, {"c": None}], "a": 1}).key
    assert first.fingerprint == request({"b": (1, {"c": None}), "a": 1}).fingerprint


@pytest.mark.parametrize("changes", [{"tenant_id": "u"}, {"provider_name": "q"}, {"operation": "x"}, {"version": 2}])
def test_whoever_asks_for_something_else_has_another_key(changes: dict[str, Any]) -> None:
    assert request({}).key != request({}, **changes).key


def test_only_declared_fields_count() -> None:
    fields = ("keyword", "missing")
    first, second = (request({"keyword": "tea", "at": at}, fields=fields) for at in (1, 2))
    assert (first.key, first.fingerprint) == (second.key, second.fingerprint)
    assert first.key != request({"keyword": "tea", "at": 1}).key


def test_any_payload_has_a_key() -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"deeper": deep}
    odd: Any = {"at": AT, 1: {2}, "deep": deep}
    assert request(odd).key
    assert idempotency.canonical({"b": 1, "a": "é"}) == '{"a":"\\u00e9","b":1}'


@pytest.mark.parametrize(
    "values",
    [{"cost": 0}, {"timeout": 0}, {"on_store_failure": "open"}, {"probe_lease": 0}, {"retry": {"jitter_ratio": 2}}],
)
def test_a_policy_out_of_bounds_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        ProviderPolicy.from_dict(values)


def test_a_policy_comes_back_from_its_json() -> None:
    policy = ProviderPolicy(retry=RetryPolicy(max_attempts=7), on_store_failure="local")
    assert ProviderPolicy.from_json(policy.to_json()) == policy


def test_a_wait_of_nothing_is_one() -> None:
    assert RetryPolicy(max_delay_seconds=0, base_delay_seconds=1).delay(3) == 0
    assert RetryPolicy(base_delay_seconds=0).delay(3) == 0


def test_a_result_tells_how_it_came_out() -> None:
    assert ProviderExecutionResult(outcome=Outcome.SUCCESS, payload={}).reason_code is None
    failed = ProviderExecutionResult(outcome=Outcome.FAILED, error=ProviderTimeoutError())
    assert (failed.ok, failed.reason_code) == (False, "timeout")
    with pytest.raises(ProviderTimeoutError):
        failed.raise_for_failure()
    ProviderExecutionResult(outcome=Outcome.SUCCESS).raise_for_failure()
    assert ProviderExecutionContext("c").left(5) is None
    assert ProviderExecutionContext("c", deadline=7).left(5) == 2


def test_a_tenant_is_the_same_however_its_uuid_is_written() -> None:
    text = "7b1e6f0c-0f4e-4c0f-9a52-3f3a0a1e9c11"
    for written in (text, text.upper(), UUID(text), f"{{{text}}}", text.replace("-", "")):
        assert Who.of(written, "rank", "snapshot").tenant_id == text
    assert Who.of("shop-1", "rank", "snapshot").tenant_id == "shop-1"
    assert Who.of(None, "rank", "snapshot").tenant_id is None


@pytest.mark.parametrize("deadline", [1.7e9, float("nan"), "soon"])
def test_a_deadline_of_another_clock_is_refused_in_words(deadline: Any) -> None:
    with pytest.raises(ProviderUsageError, match=r"deadline must be time.monotonic\(\) and some seconds, not"):
        idempotency.refuse_deadline(deadline, 1000.0)
    idempotency.refuse_deadline(None, 1000.0)
    idempotency.refuse_deadline(990.0, 1000.0)


def test_a_key_within_a_task_is_that_tasks_alone() -> None:
    request = Request("t", "rank", "snapshot", "look", 1, {})
    assert len({request.key, request.key_within("a"), request.key_within("b")}) == 3
    assert request.key_within("a") == request.key_within("a")


def test_a_policy_knows_whether_it_would_lose_count() -> None:
    assert ProviderPolicy(on_store_failure="local", quota_per_attempt=True).loses_count
    assert not ProviderPolicy(on_store_failure="local").loses_count
    assert not ProviderPolicy(quota_per_attempt=True).loses_count
