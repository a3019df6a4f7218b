"""Breakers that open by rates of failed and of slow calls, and rules in the shadow."""

import time
from typing import Any

import pytest

from providers import BreakerPolicy, ProviderBadRequestError, ProviderEventNotice, RetryPolicy
from providers.core.breaker import OpeningRules
from providers.core.exchange import Who
from providers.database import events
from providers.models import Gate, ProviderEvent
from providers.reads import health
from tests.providers.scripted_providers import TENANT, WHO, scripted
from tests.providers.test_scopes import ACCOUNTS, OTHER, ask

pytestmark = pytest.mark.django_db(transaction=True)

# Failures in a row never open it here.
NEVER = {"breaker_policy": BreakerPolicy(failure_threshold=1000), "retry_policy": RetryPolicy(max_attempts=1)}
HALF = OpeningRules(failure_rate=0.5, calls=20, minimum_calls=4)
DOWN, WELL = TimeoutError(), {"rank": 1}


def called(*script: Any, rules: OpeningRules = HALF, **more: Any) -> list[str | None]:
    provider = scripted(*script, opening_rules=rules, **NEVER | more)
    return [provider.ask().reason_code for _ in script]


def test_the_share_of_failed_calls_opens_the_breaker_once_there_are_enough() -> None:
    assert called(WELL, DOWN, WELL) == [None, "timeout", None]
    assert Gate.objects.get().state == "closed"
    assert called(DOWN, WELL) == ["timeout", "circuit_open"]
    event = ProviderEvent.objects.get()
    assert (event.kind, event.from_state, event.to_state) == ("breaker", "closed", "open")
    assert event.why == "50 % of 4 calls failed"
    assert health.of_tenant(TENANT)[0].opened_by == event.why
    assert Gate.objects.get().recent == {}


def test_what_says_nothing_of_the_provider_is_not_counted() -> None:
    wrong = ProviderBadRequestError("no such rank")
    assert called(wrong, wrong, wrong, DOWN, WELL) == ["bad_request"] * 3 + ["timeout", None]
    assert Gate.objects.get().state == "closed"


def test_calls_that_are_long_past_are_forgotten() -> None:
    rules = OpeningRules(failure_rate=0.5, calls=10, minimum_calls=4)
    called(DOWN, rules=rules)
    called(*[WELL] * 12, rules=rules)
    called(DOWN, rules=rules)
    calls = [counts[:2] for counts in Gate.objects.get().recent.values()]
    assert sum(failed for _, failed in calls) == 1
    assert sum(count for count, _ in calls) <= 10


def test_slow_answers_open_the_breaker_though_all_are_right() -> None:
    def slow(_: Any) -> dict[str, int]:
        time.sleep(0.02)
        return WELL

    rules = OpeningRules(slow_rate=0.5, slow_after=0.01, calls=20, minimum_calls=3)
    assert called(slow, slow, slow, WELL, rules=rules) == [None, None, None, "circuit_open"]
    assert ProviderEvent.objects.get().why == "100 % of 3 calls were slow"


def test_a_window_of_seconds_looks_at_what_happened_in_them() -> None:
    rules = OpeningRules(failure_rate=1.0, seconds=3600.0, minimum_calls=3)
    assert called(DOWN, DOWN, DOWN, WELL, rules=rules) == ["timeout"] * 3 + ["circuit_open"]


def test_in_the_shadow_a_rule_records_what_it_would_have_done_and_does_nothing() -> None:
    told: list[ProviderEventNotice] = []
    events.on_event(told.append)
    try:
        rules = OpeningRules(failure_rate=0.5, calls=20, minimum_calls=4, is_shadow=True)
        assert called(*[DOWN] * 8, WELL, rules=rules) == ["timeout"] * 8 + [None]
    finally:
        events.forget(told.append)
    gate = Gate.objects.get()
    assert (gate.state, gate.shadow_openings) == ("closed", 2)
    rows = ProviderEvent.objects.order_by("id").values_list("kind", "to_state", "why")
    assert list(rows) == [("shadow", "would open", "100 % of 4 calls failed")] * 2
    assert [(one.kind, one.why) for one in told] == [("shadow", "100 % of 4 calls failed")] * 2
    assert health.of_tenant(TENANT)[0].shadow_opened_at is not None


def test_rates_of_an_account_are_those_of_all_its_tenants() -> None:
    rules = {**NEVER, "opening_rules": HALF, "breaker_scope": "account"}
    failing = scripted(DOWN, **rules)
    for tenant in (TENANT, OTHER, TENANT, OTHER):
        ask(failing, tenant)
    assert ask(scripted(WELL, **rules)).reason_code == "circuit_open"
    states = dict(Gate.objects.values_list("tenant_id", "state"))
    assert states == {"*": "open", TENANT: "closed", OTHER: "closed"}
    assert ProviderEvent.objects.get().tenant_id == Who.of_account("rank").tenant_id


def test_without_rates_nothing_is_counted() -> None:
    ask(scripted(DOWN, **ACCOUNTS))
    ask(scripted(DOWN, **NEVER))
    assert all(gate.recent == {} for gate in Gate.objects.all())
    assert WHO in {gate.who for gate in Gate.objects.all()}
