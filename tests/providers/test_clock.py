"""The database's clock is set while calls are made: nothing shuts calls out for as long as it was set back."""

from typing import Any

import pytest
from django.db.models import F

from ergon_site.access.database.clock import database_time
from providers import (
    BreakerPolicy,
    BulkheadPolicy,
    ProviderDependencyError,
    ProviderExecutionResult,
    RateLimit,
    calls,
)
from providers.core.breaker import OpeningRules
from providers.models import Gate, ProviderEvent
from providers.reads import health
from tests.providers.scripted_providers import AT_ONCE, WHO, scripted

pytestmark = pytest.mark.django_db(transaction=True)

AN_HOUR = 3600.0
LEASE = 30.0
TIMES = ("open_until", "cooldown_until", "window_start", "window_end", "previous_start", "bucket_full_at")
DECIDED = ("decided_at", "turned_at", "recorded_pause", "recorded_exhaustion")
DOWN, WELL = TimeoutError(), {"rank": 1}
SCOPES = [{}, {"breaker_scope": "account", "pause_scope": "account"}]


def set_back(by: float = AN_HOUR) -> None:
    """The clock is set back: every time that the rows know is so much later than it was."""
    Gate.objects.update(**{name: F(name) + by for name in (*TIMES, *DECIDED)})
    for gate in Gate.objects.all():
        gate.running, gate.probes = (
            {name: end + by for name, end in one.items()} for one in (gate.running, gate.probes)
        )
        gate.save(update_fields=["running", "probes"])


def now() -> float:
    return database_time().timestamp()


def row() -> Any:
    return Gate.objects.get(**WHO._asdict())


def trip(**attributes: Any) -> Any:
    """A provider whose breaker has just opened, and which is well again."""
    policy = BreakerPolicy(failure_threshold=1, open_cooldown_seconds=LEASE)
    provider = scripted(DOWN, WELL, retry_policy=AT_ONCE, breaker_policy=policy, **attributes)
    assert provider.ask().reason_code == "timeout"
    assert provider.ask().reason_code == "circuit_open"
    return provider


def paused(**attributes: Any) -> Any:
    asked = ProviderDependencyError("come back", retry_after=LEASE)
    provider = scripted(asked, WELL, retry_policy=AT_ONCE, **attributes)
    provider.ask(may_return=True)
    assert not provider.ask(may_return=True).ok
    return provider


@pytest.mark.parametrize("scope", SCOPES)
def test_a_breaker_that_opened_before_is_probed(scope: dict[str, Any]) -> None:
    provider = trip(**scope)
    set_back()
    [one] = health.of_gates(list(Gate.objects.exclude(state="closed")))
    assert (one.state, one.reopens_at) == ("half_open", None)
    assert [name for name in ("open", "half_open") if health.counts().filter(**{f"{name}__gt": 0})] == ["half_open"]
    assert provider.ask().ok


@pytest.mark.parametrize("scope", SCOPES)
def test_a_probe_that_began_before_does_not_keep_others_from_probing(scope: dict[str, Any]) -> None:
    provider = trip(**scope)
    lease = now() + LEASE + AN_HOUR
    Gate.objects.filter(state="open").update(state="half_open", open_until=None, probes={"1": lease})
    assert provider.ask().ok


@pytest.mark.parametrize("scope", SCOPES)
def test_a_pause_from_before_is_over(scope: dict[str, Any]) -> None:
    provider = paused(**scope)
    set_back()
    assert all(one.cooldown_until is None for one in health.of_gates(list(Gate.objects.all())))
    assert provider.ask().ok
    assert provider.ask().ok


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("end", [WELL, DOWN])
def test_so_it_is_if_the_first_to_come_is_a_call_that_ends(scope: dict[str, Any], end: Any) -> None:
    def pause_and_set_back(_: Any) -> Any:
        Gate.objects.update(cooldown_until=now() + LEASE)
        set_back()
        if end is DOWN:
            raise end
        return end

    provider = scripted(pause_and_set_back, WELL, retry_policy=AT_ONCE, **scope)
    provider.ask()
    assert provider.ask().ok


def test_a_pause_that_is_asked_for_afterwards_holds() -> None:
    paused()
    set_back()
    provider = paused()
    assert 0 < waits(provider.ask(may_return=True)) <= LEASE


@pytest.mark.parametrize("scope", SCOPES)
def test_a_quota_has_the_window_of_the_new_time(scope: dict[str, Any]) -> None:
    provider = scripted(WELL, **scope)
    calls.set_quota(WHO, limit=1, window=LEASE * 4, by="test")
    assert provider.ask().ok
    assert provider.ask().reason_code == "quota_exhausted"
    set_back()
    one = health.health_of(WHO)
    assert one is not None
    assert one.quota is not None
    assert (one.quota.used, one.quota.start <= one.read_at < one.quota.end) == (0, True)
    assert not health.counts().filter(spent__gt=0).exists()
    assert provider.ask().ok
    assert waits(provider.ask()) <= LEASE * 4
    gate = row()
    assert gate.window_start <= gate.decided_at < gate.window_end
    # An event tells it anew.
    assert ProviderEvent.objects.filter(kind="exhaustion").count() == 2


def test_a_bucket_lacks_no_more_than_its_tokens() -> None:
    provider = scripted(WELL, rate_limit=RateLimit(per_second=1 / LEASE))
    assert provider.ask().ok
    set_back()
    assert waits(provider.ask()) <= LEASE


def test_a_call_that_runs_holds_its_place_for_a_lease_from_now_at_most() -> None:
    provider = scripted(WELL, bulkhead=BulkheadPolicy(1, lease=LEASE), timeout=1.0)
    assert provider.ask().ok
    Gate.objects.update(running={"99": now() + LEASE})
    set_back()
    assert provider.ask().reason_code == "rate_limited"
    gate = row()
    assert gate.running["99"] == pytest.approx(gate.decided_at + LEASE)
    # Refused again, it keeps that end.
    assert provider.ask().reason_code == "rate_limited"
    assert row().running == gate.running
    Gate.objects.update(running={"99": now() - 1})
    assert provider.ask().ok


def test_rates_forget_what_is_further_ahead_than_their_window() -> None:
    rules = OpeningRules(failure_rate=0.5, seconds=LEASE, minimum_calls=4)
    provider = scripted(WELL, DOWN, opening_rules=rules, retry_policy=AT_ONCE, breaker_policy=BreakerPolicy(1000))
    provider.ask()
    [(slice_, _)] = Gate.objects.get().recent.items()
    later = {str(int(slice_) + int(AN_HOUR / rules.width)): [9, 9, 0]}
    Gate.objects.update(recent=later)
    provider.ask()
    gate = row()
    assert (gate.state, gate.recent.keys() & later.keys()) == ("closed", set())


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("made", [paused, trip])
def test_a_clock_that_is_set_forth_lets_calls_pass(made: Any, scope: dict[str, Any]) -> None:
    provider = made(**scope)
    set_back(-AN_HOUR)
    assert provider.ask().ok


def waits(result: ProviderExecutionResult) -> float:
    assert result.error is not None
    assert result.error.retry_after is not None
    return result.error.retry_after
