"""A drill: the provider goes down under load and comes back.

Retries add little to what it must bear, the breaker keeps callers away from it, and closes again by itself.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from providers import BreakerPolicy, RetryBudget, RetryPolicy, SyntheticProvider
from providers.models import Gate, ProviderExecutionMetric, ProviderHealthState
from tests.processes import eventually
from tests.providers.scripted_providers import TENANT, WHO, context

pytestmark = pytest.mark.django_db(transaction=True)

CALLERS = 4
COOLDOWN = 0.5
BUDGET = RetryBudget(capacity=10, earned_by_success=0.1)


class Drilled(SyntheticProvider):
    provider_name, capability = WHO.provider_name, WHO.capability
    retry_policy = RetryPolicy(max_attempts=4, base_delay_seconds=0.01, max_delay_seconds=0.05, jitter_ratio=0.2)
    breaker_policy = BreakerPolicy(failure_threshold=8, open_cooldown_seconds=COOLDOWN, success_threshold=2)
    retry_budget = BUDGET


class Stubborn(Drilled):
    """Its breaker never opens, so that the budget alone stands between the callers and the provider."""

    breaker_policy = BreakerPolicy(failure_threshold=1_000_000)


@contextmanager
def load(provider: SyntheticProvider) -> Iterator[Counter[str]]:
    """Callers who do not give up; what they were told is counted."""
    told: Counter[str] = Counter()
    is_over = threading.Event()

    def call() -> None:
        while not is_over.is_set():
            asked = {"tenant_id": TENANT, "operation": "snapshot", "payload": {}}
            result = provider.execute(**asked, context=context())  # type: ignore[arg-type]
            told[result.reason_code or "ok"] += 1
            time.sleep(0.002)
        connection.close()

    threads = [threading.Thread(target=call) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    try:
        yield told
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def attempts(**about: object) -> int:
    return ProviderExecutionMetric.objects.exclude(reason_code="circuit_open").filter(**about).count()


def ride_out(provider: SyntheticProvider, outage: float, failures: int = 0, refusals: int = 0) -> tuple[int, float]:
    """An outage of so many seconds, failures and refusals of the breaker, before and after which it works.

    What the provider had to bear meanwhile, and what it may be made to bear: the calls that open the breaker, those
    under way by then, and a probe after each cooldown.
    """
    with load(provider) as told:
        eventually(lambda: told["ok"] >= 20, "it works")
        provider.break_down()
        before, began = provider.calls, time.monotonic()
        time.sleep(outage)
        eventually(lambda: told["dependency_unavailable"] >= failures, "that many have failed")
        eventually(lambda: told["circuit_open"] >= refusals, "the breaker has refused that many")
        borne, lasted = provider.calls - before, time.monotonic() - began
        provider.recover()
        well = told["ok"]
        eventually(lambda: told["ok"] >= well + 20, "it works again")
    return borne, provider.breaker_policy.failure_threshold + 2 * CALLERS + lasted / COOLDOWN + 1


def assert_retries_kept_to_the_budget() -> None:
    earned = attempts(outcome="success") * BUDGET.earned_by_success
    assert attempts(attempt_number__gt=1) <= BUDGET.capacity + earned


def assert_the_breaker_has_closed() -> None:
    gate, health = Gate.objects.get(), ProviderHealthState.objects.get()
    assert (gate.state, health.breaker_state, health.consecutive_failures) == ("closed", "closed", 0)
    assert gate.generation >= 3  # opened, probed, closed, at least once
    assert gate.override == ""


def test_in_an_outage_the_breaker_spares_the_provider_and_closes_by_itself() -> None:
    borne, allowed = ride_out(Drilled(), 3.0, refusals=1)
    assert borne <= allowed
    assert_retries_kept_to_the_budget()
    assert_the_breaker_has_closed()


def test_in_an_outage_without_a_breaker_the_budget_bounds_what_retries_add() -> None:
    ride_out(Stubborn(), 0.5, failures=100)
    assert_retries_kept_to_the_budget()
    assert ProviderExecutionMetric.objects.filter(retry_suppressed=True).exists()
    # Three retries for each failed call would be three times as much again.
    failed_first = attempts(attempt_number=1, reason_code="dependency_unavailable")
    assert attempts(attempt_number__gt=1) < failed_first


@pytest.mark.soak
def test_outage_after_outage_the_breaker_spares_the_provider_and_closes_by_itself() -> None:
    provider = Drilled(
        seed=1, latency=(0.001, 0.02), failures={"timeout": 0.01, "rate_limited": 0.005}, retry_after=0.05
    )
    for _ in range(5):
        borne, allowed = ride_out(provider, 20.0)
        assert borne <= allowed
        eventually(lambda: Gate.objects.get().state == "closed", "the breaker is closed")
    assert_retries_kept_to_the_budget()
