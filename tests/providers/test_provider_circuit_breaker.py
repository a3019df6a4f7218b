"""The breaker: one for all processes, closed, open and half open."""

import threading
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ergon_site.access.database.clock import database_time
from ergon_site.access.models import AuditEntry
from providers import BreakerPolicy, ProviderBadRequestError, ProviderTimeoutError, RetryPolicy, calls
from providers.core.breaker import BreakerState, Permit
from providers.core.errors import ProviderCircuitOpenError, ProviderRateLimitError
from providers.core.gate import Asked, Decision
from providers.drivers.circuit_breaker import CircuitBreaker
from providers.models import Gate, ProviderExecutionMetric, ProviderHealthState
from providers.reads import health as standings
from tests.processes import eventually
from tests.providers.scripted_providers import AT_ONCE, WHO, Scripted, scripted

ONCE = RetryPolicy(max_attempts=1)
QUICK = BreakerPolicy(failure_threshold=2, open_cooldown_seconds=1, half_open_max_calls=1, success_threshold=2)
# Its cooldown ends when the test ends it.
LONG = replace(QUICK, open_cooldown_seconds=3600)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_circuit_breaker_transitions_closed_open_half_open() -> None:
    clock = Clock()
    breaker = CircuitBreaker(QUICK, clock=clock)
    for _ in range(2):
        breaker.after_call(breaker.before_call(), error=ProviderTimeoutError())
    assert (breaker.state, breaker.open_until, breaker.consecutive_failures) == (BreakerState.OPEN, 1.0, 2)
    with pytest.raises(ProviderCircuitOpenError) as refused:
        breaker.before_call()
    assert refused.value.retry_after == 1.0
    clock.now = 1.0
    assert breaker.state is BreakerState.HALF_OPEN
    probe = breaker.before_call()
    with pytest.raises(ProviderCircuitOpenError):
        breaker.before_call()
    breaker.after_call(probe)
    breaker.after_call(breaker.before_call())
    assert (breaker.state, breaker.consecutive_failures) == (BreakerState.CLOSED, 0)


def test_any_failing_probe_opens_it_again() -> None:
    clock = Clock()
    breaker = CircuitBreaker(QUICK, clock=clock)
    for _ in range(2):
        breaker.after_call(breaker.before_call(), error=ProviderTimeoutError())
    clock.now = 1.0
    breaker.after_call(breaker.before_call(), error=ProviderTimeoutError())
    assert (breaker.state, breaker.open_until) == (BreakerState.OPEN, 2.0)


pytestmark = pytest.mark.django_db(transaction=True)


def trip(**attributes: Any) -> None:
    failing = scripted(TimeoutError(), retry_policy=ONCE, **{"breaker_policy": LONG, **attributes})
    for _ in range(2):
        failing.ask()
    assert ProviderHealthState.objects.get().breaker_state == "open"


def cool_down() -> None:
    Gate.objects.update(open_until=1.0)


def state() -> str:
    return Gate.objects.get().effective_state(database_time()).value


def test_breaker_fast_fails_while_open_and_recovers_after_cooldown_and_half_open_probe_success() -> None:
    trip()
    healthy = scripted({"rank": 1}, retry_policy=ONCE, breaker_policy=LONG)
    refused = healthy.ask()
    assert (refused.reason_code, refused.attempts, healthy.calls) == ("circuit_open", (), [])
    assert refused.retry_after is not None
    assert 0 < refused.retry_after <= 3600
    row = ProviderExecutionMetric.objects.latest("id")
    assert (row.outcome, row.reason_code, row.duration_ms) == ("failed", "circuit_open", 0)
    cool_down()
    assert state() == "half_open"
    assert healthy.ask().ok
    assert ProviderHealthState.objects.get().breaker_state == "half_open"
    assert healthy.ask().ok
    assert ProviderHealthState.objects.get().breaker_state == "closed"


def test_retries_stop_the_moment_it_opens_and_the_reason_is_the_original_one() -> None:
    provider = scripted(TimeoutError(), retry_policy=AT_ONCE, breaker_policy=LONG)
    result = provider.ask()
    assert (len(provider.calls), result.reason_code) == (2, "timeout")
    assert [attempt.outcome.value for attempt in result.attempts] == ["retry", "failed"]


def rows() -> list[tuple[str, str | None]]:
    return list(ProviderExecutionMetric.objects.order_by("id").values_list("outcome", "reason_code"))


def forced_open_in_the_wait(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """One that fails, and is forced open by the time that its wait is over."""
    mine, sleep = threading.current_thread(), time.sleep

    def wait(seconds: float) -> None:
        # Threads that others have left behind sleep as they ever did.
        if threading.current_thread() is not mine:
            sleep(seconds)
        else:
            calls.force_open(WHO, by="ada", reason="maintenance")

    # Nothing else comes between the wait and the next admission, every time.
    monkeypatch.setattr("time.sleep", wait)
    return scripted(TimeoutError(), retry_policy=AT_ONCE)


def test_a_retry_that_finds_it_opened_by_others_ends_with_the_original_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = forced_open_in_the_wait(monkeypatch)
    result = provider.ask()
    assert (len(provider.calls), result.reason_code) == (1, "timeout")
    assert rows() == [("retry", "timeout"), ("failed", "circuit_open")]


def test_an_execution_that_ends_by_a_refused_retry_is_in_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    Scripted({}).ask()
    forced_open_in_the_wait(monkeypatch).ask()
    assert ProviderHealthState.objects.get().execution_rate_1h == 0.5
    Scripted({}).ask()
    standing = standings.health_of(WHO)
    assert standing is not None
    assert (standing.rates.execution, standing.rates.refusals) == (0.5, 2)


def test_whoever_is_forced_open_in_mid_call_is_not_tried_again() -> None:
    def fail(_: Any) -> dict[str, Any]:
        calls.force_open(WHO, by="ada", reason="maintenance")
        raise TimeoutError

    scripted(fail, retry_policy=AT_ONCE).ask()
    assert rows() == [("failed", "timeout")]


def test_a_breaker_that_is_forced_closed_lets_retries_pass_too() -> None:
    trip()
    calls.force_closed(WHO, by="ada", reason="we know better")
    provider = scripted(TimeoutError(), {"rank": 1}, retry_policy=AT_ONCE, breaker_policy=LONG)
    assert provider.ask().ok
    assert len(provider.calls) == 2


def test_the_visible_state_is_what_the_operator_says() -> None:
    calls.force_open(WHO, by="ada", reason="maintenance")
    health = ProviderHealthState.objects.get()
    assert (health.breaker_state, health.consecutive_failures) == ("open", 0)
    calls.force_closed(WHO, by="ada", reason="over")
    assert ProviderHealthState.objects.get().breaker_state == "closed"
    calls.reset(WHO, by="ada", reason="over")
    trip()
    calls.force_closed(WHO, by="ada", reason="we know better")
    assert ProviderHealthState.objects.get().breaker_state == "closed"
    scripted({}, breaker_policy=LONG).ask()
    assert (ProviderHealthState.objects.get().breaker_state, Gate.objects.get().state) == ("closed", "open")
    calls.reset(WHO._replace(tenant_id="nobody"), by="ada", reason="never called")
    assert ProviderHealthState.objects.count() == 1


def test_failures_that_are_not_the_providers_do_not_count() -> None:
    provider = scripted(ProviderBadRequestError(), breaker_policy=LONG)
    for _ in range(5):
        provider.ask()
    assert ProviderHealthState.objects.get().consecutive_failures == 0
    assert state() == "closed"


@pytest.mark.parametrize(("counts", "opened"), [(False, "closed"), (True, "open")])
def test_being_rate_limited_counts_only_if_the_provider_says_so(counts: bool, opened: str) -> None:  # noqa: FBT001
    about = {"retry_policy": ONCE, "breaker_policy": LONG, "count_rate_limited": counts}
    provider = scripted(ProviderRateLimitError(), **about)
    for _ in range(2):
        provider.ask()
    assert state() == opened


def test_a_late_success_of_an_older_generation_changes_nothing() -> None:
    def late(_: Any) -> dict[str, Any]:
        trip()
        return {"rank": 1}

    assert scripted(late, retry_policy=ONCE, breaker_policy=LONG).ask().ok
    assert (state(), Gate.objects.get().consecutive_failures) == ("open", 2)


def test_a_pause_that_the_provider_asks_for_holds_for_everybody() -> None:
    limited = scripted(ProviderRateLimitError(retry_after=5, http_status=429), retry_policy=ONCE)
    assert limited.ask().retry_after == 5
    other = Scripted({"rank": 1})
    refused = other.ask()
    assert (refused.reason_code, other.calls) == ("rate_limited", [])
    assert refused.retry_after is not None
    assert 0 < refused.retry_after <= 5
    eventually(lambda: other.ask().ok, "the pause is over")


def test_a_pause_is_capped() -> None:
    limited = scripted(ProviderRateLimitError(retry_after=86400), retry_policy=ONCE)
    assert limited.ask().retry_after == 300


def test_an_operator_opens_closes_and_resets_it_with_a_reason_that_is_kept() -> None:
    healthy = Scripted({"rank": 1})
    calls.force_open(WHO, by="ada", reason="maintenance", lasting=timedelta(minutes=5))
    refused = healthy.ask()
    assert refused.reason_code == "circuit_open"
    assert refused.retry_after is not None
    assert 0 < refused.retry_after <= 300
    calls.reset(WHO, by="ada", reason="over")
    assert healthy.ask().ok
    trip(failure_threshold=2)
    calls.force_closed(WHO, by="ada", reason="we know better", lasting=timedelta(minutes=5))
    assert healthy.ask().ok
    actions = AuditEntry.objects.order_by("id").values_list("actor", "action", "reason")
    assert list(actions) == [
        ("ada", "breaker.force_open", "maintenance"),
        ("ada", "breaker.reset", "over"),
        ("ada", "breaker.force_closed", "we know better"),
    ]


def test_an_override_ends_by_itself() -> None:
    calls.force_open(WHO, by="ada", reason="a moment", lasting=timedelta(seconds=0.5))
    eventually(lambda: Scripted({}).ask().ok, "the override is over")


def test_an_override_needs_a_reason() -> None:
    with pytest.raises(calls.OrderError, match="needs a reason"):
        calls.force_open(WHO, by="ada", reason=" ")


def test_a_probe_that_never_reports_back_frees_its_place() -> None:
    trip()
    cool_down()
    asked = Asked(LONG, cost=0, probe_lease=3)
    eventually(lambda: calls.admit(WHO, asked).decision is Decision.PROBE, "the cooldown is over")
    assert calls.admit(WHO, asked).decision is Decision.CIRCUIT
    eventually(lambda: calls.admit(WHO, asked).decision is Decision.PROBE, "the lease has lapsed")


def test_a_permit_is_a_value() -> None:
    assert Permit(1) == Permit(1, None)


@pytest.mark.django_db(transaction=True)
def test_every_change_of_a_breaker_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    provider = scripted(TimeoutError(), TimeoutError(), {}, {}, breaker_policy=LONG, retry_policy=ONCE)
    for _ in range(2):
        provider.ask()
    cool_down()
    eventually(lambda: provider.ask().ok, "a probe is let through")
    provider.ask()
    calls.force_open(WHO, by="ada", reason="they move")
    calls.reset(WHO, by="ada", reason="they are back")
    lines: list[Any] = [record.msg for record in caplog.records if "breaker changed" in str(record.msg)]
    told = [(line["state"], line["generation"], line["why"], line["by"]) for line in lines]
    assert told == [
        ("open", 1, "timeout", None),
        ("half_open", 2, "the cooldown is over", None),
        ("closed", 3, "2 probes succeeded", None),
        ("forced open", 3, "they move", "ada"),
        ("closed", 4, "they are back", "ada"),
    ]
    assert all(line["provider_name"] == "rank" for line in lines)
    assert Gate.objects.get().turned_at is not None


@pytest.mark.django_db(transaction=True)
def test_an_override_that_is_over_is_no_longer_shown() -> None:
    scripted({}).ask()
    calls.force_open(WHO, by="ada", reason="they move", lasting=timedelta(milliseconds=1))
    assert ProviderHealthState.objects.get().breaker_state == "open"
    eventually(lambda: bool(calls.rollup() + 1) and _shown() == "closed", "it is over")


def _shown() -> str:
    return ProviderHealthState.objects.get().breaker_state
