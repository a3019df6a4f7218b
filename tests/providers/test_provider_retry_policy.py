"""The retry policy: capped exponential waits with jitter, and nothing but what may help is tried again."""

from collections.abc import Callable
from typing import Any

import pytest

from providers import (
    ProviderAuthError,
    ProviderBadRequestError,
    ProviderConnectionError,
    ProviderError,
    ProviderQuotaExceededError,
    ProviderResponseFormatError,
    ProviderTimeoutError,
    RetryPolicy,
)
from providers.core.retry import RetryBudget
from providers.models import Gate, ProviderExecutionMetric
from tests.providers.scripted_providers import AT_ONCE, Scripted, scripted

POLICY = RetryPolicy(max_attempts=6, base_delay_seconds=0.2, max_delay_seconds=1, jitter_ratio=0.25)


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def failing(*errors: Exception) -> Callable[[], str]:
    script = iter(errors)

    def call() -> str:
        error = next(script, None)
        if error is not None:
            raise error
        return "done"

    return call


@pytest.mark.parametrize(("attempt", "delay"), [(1, 0.2), (2, 0.4), (3, 0.8), (4, 1.0), (50, 1.0)])
def test_retry_policy_computes_capped_exponential_delays_and_jitter_bounds(attempt: int, delay: float) -> None:
    assert POLICY.delay(attempt, lambda: 0.5) == pytest.approx(delay)
    assert POLICY.delay(attempt, lambda: 0.0) == pytest.approx(delay * 0.75)
    assert POLICY.delay(attempt, lambda: 1.0) == pytest.approx(delay * 1.25)
    assert delay * 0.75 <= POLICY.delay(attempt) <= delay * 1.25


def test_two_workers_do_not_wait_alike() -> None:
    assert len({POLICY.delay(3) for _ in range(20)}) > 1


@pytest.mark.parametrize(
    "error",
    [ProviderAuthError(), ProviderQuotaExceededError(), ProviderBadRequestError(), ProviderResponseFormatError()],
)
def test_retry_policy_stops_on_non_retryable_errors(error: ProviderError) -> None:
    clock = Clock()
    tries = POLICY.run(failing(error), clock=clock, sleep=clock.sleep)
    assert (tries.ok, tries.error, len(tries.attempts), clock.slept) == (False, error, 1, [])
    with pytest.raises(type(error)):
        tries.raise_for_failure()


def test_retryable_errors_are_tried_again_until_it_succeeds() -> None:
    clock = Clock()
    call = failing(TimeoutError("slow"), ProviderConnectionError())
    tries = POLICY.run(call, clock=clock, sleep=clock.sleep, random=lambda: 0.5)
    assert (tries.ok, tries.value) == (True, "done")
    assert clock.slept == pytest.approx([0.2, 0.4])
    assert [one.number for one in tries.attempts] == [1, 2, 3]
    assert isinstance(tries.attempts[0].error, ProviderTimeoutError)
    tries.raise_for_failure()


def test_a_wait_that_would_cross_the_budget_is_not_begun() -> None:
    clock = Clock()
    tries = POLICY.run(failing(*[TimeoutError()] * 9), budget=0.5, clock=clock, sleep=clock.sleep, random=lambda: 0.5)
    assert len(tries.attempts) == 2
    assert clock.slept == pytest.approx([0.2])


@pytest.mark.django_db(transaction=True)
def test_a_retry_budget_ends_retries_in_an_outage() -> None:
    provider = scripted(TimeoutError(), retry_budget=RetryBudget(capacity=3), count_rate_limited=False)
    provider.__class__.breaker_policy = provider.breaker_policy.__class__(failure_threshold=1000)
    results = [provider.ask() for _ in range(4)]
    assert [len(result.attempts) for result in results] == [3, 2, 1, 1]
    assert [result.retry_suppressed for result in results] == [False, True, True, True]
    assert {result.reason_code for result in results} == {"timeout"}
    suppressed = ProviderExecutionMetric.objects.filter(retry_suppressed=True)
    assert list(suppressed.values_list("outcome", flat=True)) == ["failed"] * 3
    assert Gate.objects.get().retry_tokens == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [ValueError("a bug"), ProviderBadRequestError(), ProviderAuthError()])
def test_what_cannot_be_helped_is_called_once(error: Exception) -> None:
    provider = Scripted(error)
    assert len(provider.ask().attempts) == 1
    assert len(provider.calls) == 1


@pytest.mark.django_db(transaction=True)
def test_attempts_run_out() -> None:
    provider = Scripted(TimeoutError())
    result: Any = provider.ask()
    assert (len(provider.calls), result.reason_code) == (AT_ONCE.max_attempts, "timeout")
