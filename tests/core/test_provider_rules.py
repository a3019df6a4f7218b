"""Quota, budget, histogram, keys and policies of providers, as tables."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies

from engines.core.errors import PolicyError
from providers.core import histogram, request as idempotency
from providers.core.errors import ProviderTimeoutError
from providers.core.exchange import Outcome, ProviderExecutionContext, ProviderExecutionResult
from providers.core.gate import NOTHING, Quota, Reservation, aligned, opened
from providers.core.policy import ProviderPolicy
from providers.core.request import Request
from providers.core.retry import RetryBudget, RetryPolicy

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_windows_are_aligned_and_never_overlap() -> None:
    quota = opened(5, 10, 103)
    assert (quota.start, quota.end, quota.remaining) == (100, 110, 5)
    assert quota.at(109.9) is quota
    later = quota.reserve(2).at(137)
    assert (later.start, later.end, later.used, later.previous_start, later.previous_used) == (130, 140, 0, 100, 2)
    assert Quota(5, 10, 95, 105).at(106).start == 105
    assert later.at(100) is later


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
    start = aligned(now, window)
    assert start - 1e-3 <= now <= start + window + 1e-3


def test_successes_earn_and_retries_spend() -> None:
    budget = RetryBudget(capacity=2, earned_by_success=0.5)
    assert (budget.earn(1), budget.earn(1.9), budget.spend(2), budget.spend(9)) == (1.5, 2, 1, 1)
    assert budget.spend(0.9) is None


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
