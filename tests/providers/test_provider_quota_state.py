"""Quotas: so many calls in a window, whoever makes them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from ergon_site.access.database.clock import database_time
from providers import (
    ProviderCircuitOpenError,
    ProviderConnectionError,
    ProviderQuotaExceededError,
    ProviderUsageError,
    QuotaState,
    RetryPolicy,
    calls,
)
from providers.models import Gate, ProviderExecutionMetric, ProviderHealthState
from tests.factories import QuotaStateFactory
from tests.processes import eventually
from tests.providers.scripted_providers import TENANT, WHO, Scripted, scripted

pytestmark = pytest.mark.django_db(transaction=True)

ONCE = RetryPolicy(max_attempts=1)
DAY = 86400.0
# SQLite, which judges whether a window is over, counts in whole ones.
MILLISECOND = 0.001
RESERVE: dict[str, Any] = {"tenant_id": TENANT, "provider_name": "rank", "capability": "rank_snapshot"}


def quota() -> tuple[int, int, int]:
    row = QuotaState.objects.latest("window_start")
    return row.limit_count, row.used_count, row.remaining_count


def wait_until_the_window_is_over() -> None:
    end = (Gate.objects.get().window_end or 0.0) + MILLISECOND
    eventually(lambda: database_time().timestamp() >= end, "the window is over")


@pytest.mark.parametrize("window", [316_223_999.999_999_94, 86_400 / 7, 0.0015])
def test_a_window_may_have_any_length(window: float) -> None:
    row = calls.set_quota(WHO, limit=204, window=window, by="ada")
    assert row.limit_count == 204
    assert calls.set_quota(WHO, limit=205, window=window, by="ada").limit_count == 205


def test_quota_state_reservation_and_exhaustion_behavior() -> None:
    calls.set_quota(WHO, limit=2, window=DAY, by="ada")
    assert quota() == (2, 0, 2)
    QuotaState.reserve(**RESERVE)
    assert quota() == (2, 1, 1)
    QuotaState.reserve(**RESERVE)
    with pytest.raises(ProviderQuotaExceededError) as refused:
        QuotaState.reserve(**RESERVE)
    assert refused.value.retry_after is not None
    assert 0 < refused.value.retry_after <= DAY
    assert quota() == (2, 2, 0)


def test_a_reservation_that_is_refused_shows_since_when_the_quota_is_spent() -> None:
    calls.set_quota(WHO, limit=1, window=DAY, by="ada")
    QuotaState.reserve(**RESERVE)
    assert QuotaState.objects.get().last_exhausted_at is None
    for _ in range(2):
        with pytest.raises(ProviderQuotaExceededError):
            QuotaState.reserve(**RESERVE)
    assert QuotaState.objects.get().last_exhausted_at is not None


@pytest.mark.parametrize(
    "mistake",
    [{"tenant_id": ""}, {"tenant_id": None}, {"provider_name": " "}, {"capability": 7}, {"cost": 0}, {"cost": -1}],
)
def test_a_reservation_that_is_a_mistake_is_refused_and_leaves_nothing(mistake: dict[str, Any]) -> None:
    with pytest.raises(ProviderUsageError, match=next(iter(mistake))):
        QuotaState.reserve(**RESERVE | mistake)
    assert not Gate.objects.exists()


def test_a_reservation_inside_an_open_transaction_is_refused() -> None:
    with transaction.atomic(), pytest.raises(ProviderUsageError, match="atomic"):
        QuotaState.reserve(**RESERVE)
    assert not Gate.objects.exists()


def test_a_reservation_is_no_probe() -> None:
    calls.set_quota(WHO, limit=5, window=DAY, by="ada")
    Gate.objects.update(state="half_open")
    with pytest.raises(ProviderCircuitOpenError):
        QuotaState.reserve(**RESERVE)
    gate = Gate.objects.get()
    assert (gate.probes, gate.used) == ({}, 0)
    assert Scripted({}).ask().ok


def test_quota_exhaustion_fails_fast_with_canonical_quota_exhausted_reason() -> None:
    calls.set_quota(WHO, limit=1, window=DAY, by="ada")
    provider = Scripted({"rank": 1})
    assert provider.ask().ok
    assert QuotaState.objects.get().last_exhausted_at is None
    result = provider.ask()
    assert (result.reason_code, len(provider.calls)) == ("quota_exhausted", 1)
    assert isinstance(result.error, ProviderQuotaExceededError)
    first = QuotaState.objects.get().last_exhausted_at
    assert first is not None
    provider.ask()
    assert (QuotaState.objects.get().last_exhausted_at or first) > first
    refused = ProviderExecutionMetric.objects.filter(reason_code="quota_exhausted")
    assert list(refused.values_list("outcome", flat=True)) == ["failed", "failed"]
    assert quota() == (1, 1, 0)


def test_without_a_quota_there_is_none() -> None:
    for _ in range(3):
        assert Scripted({}).ask().ok
    assert not QuotaState.objects.exists()


def test_a_quota_is_used_once_for_all_attempts() -> None:
    calls.set_quota(WHO, limit=10, window=DAY, by="ada")
    assert Scripted(TimeoutError(), {}).ask().ok
    assert quota() == (10, 1, 9)


def test_a_quota_is_used_by_each_attempt_if_the_provider_bills_each() -> None:
    calls.set_quota(WHO, limit=10, window=DAY, by="ada")
    provider = scripted(TimeoutError(), {}, quota_per_attempt=True, cost=3)
    assert provider.ask().ok
    assert quota() == (10, 6, 4)


def test_what_never_left_is_given_back() -> None:
    calls.set_quota(WHO, limit=10, window=DAY, by="ada")
    refused = Scripted(ConnectionRefusedError()).ask()
    assert refused.reason_code == "connection_error"
    assert quota() == (10, 0, 10)


def test_what_may_have_left_is_not_given_back() -> None:
    calls.set_quota(WHO, limit=10, window=DAY, by="ada")
    Scripted(ProviderConnectionError("hung up")).ask()
    assert quota() == (10, 1, 9)
    Scripted(ConnectionRefusedError(), TimeoutError(), ConnectionRefusedError()).ask()
    assert quota() == (10, 2, 8)


def test_a_refused_call_spends_nothing_and_quota_is_named_first() -> None:
    calls.set_quota(WHO, limit=0, window=DAY, by="ada")
    calls.force_open(WHO, by="ada", reason="maintenance")
    assert Scripted({}).ask().reason_code == "quota_exhausted"
    calls.set_quota(WHO, limit=5, window=DAY, by="ada")
    assert Scripted({}).ask().reason_code == "circuit_open"
    assert quota() == (5, 0, 5)


def test_a_refund_never_reaches_a_later_window() -> None:
    calls.set_quota(WHO, limit=10, window=2.0, by="ada")

    def wait_for_the_next(_: Any) -> dict[str, Any]:
        wait_until_the_window_is_over()
        QuotaState.reserve(**RESERVE)
        raise ConnectionRefusedError

    scripted(wait_for_the_next, retry_policy=ONCE).ask()
    assert Gate.objects.get().used == 1
    used = list(QuotaState.objects.order_by("window_start").values_list("used_count", flat=True))
    assert used[-2:] == [1, 1]


def test_windows_are_aligned_to_their_length() -> None:
    row = calls.set_quota(WHO, limit=1, window=3600.0, by="ada")
    assert (row.window_start.minute, row.window_start.second, row.window_start.microsecond) == (0, 0, 0)
    assert row.window_end - row.window_start == timedelta(hours=1)


def test_a_new_window_is_a_new_row() -> None:
    calls.set_quota(WHO, limit=1, window=1.0, by="ada")
    provider = Scripted({})
    provider.ask()
    eventually(lambda: provider.ask().ok, "the next window")
    assert QuotaState.objects.filter(used_count=1).count() >= 2


def test_a_quota_that_was_written_by_hand_is_adopted() -> None:
    QuotaStateFactory.create(
        **RESERVE, window_end=datetime.now(UTC) + timedelta(minutes=55), limit_count=2, used_count=1
    )
    provider = Scripted({})
    assert [provider.ask().reason_code for _ in range(2)] == [None, "quota_exhausted"]
    assert QuotaState.objects.count() == 1
    assert quota() == (2, 2, 0)


def test_a_changed_limit_keeps_what_was_used() -> None:
    calls.set_quota(WHO, limit=5, window=DAY, by="ada")
    Scripted({}).ask()
    calls.set_quota(WHO, limit=1, window=DAY, by="ada", reason="too dear")
    assert quota() == (1, 1, 0)
    assert Scripted({}).ask().reason_code == "quota_exhausted"
    calls.drop_quota(WHO, by="ada")
    assert Scripted({}).ask().ok


@pytest.mark.parametrize(("limit", "window"), [(-1, 60.0), (1, 0.0)])
def test_a_quota_that_makes_no_sense_is_refused(limit: int, window: float) -> None:
    with pytest.raises(calls.OrderError):
        calls.set_quota(WHO, limit=limit, window=window, by="ada")


def test_a_quota_that_is_set_again_after_it_was_dropped_has_its_window_back() -> None:
    first = calls.set_quota(WHO, limit=5, window=DAY, by="ada")
    calls.drop_quota(WHO, by="ada")
    again = calls.set_quota(WHO, limit=7, window=DAY, by="ada")
    assert (again.window_start, again.window_end, again.limit_count) == (first.window_start, first.window_end, 7)


def test_a_longer_window_that_begins_at_the_same_time_ends_later() -> None:
    now = database_time().timestamp()
    length = next(days * DAY for days in range(1, 100) if now // (days * DAY) % 2 == 0)
    short = calls.set_quota(WHO, limit=5, window=length, by="ada")
    long = calls.set_quota(WHO, limit=5, window=2 * length, by="ada")
    assert (long.pk, long.window_start) == (short.pk, short.window_start)
    assert long.window_end - long.window_start == timedelta(seconds=2 * length)


def test_the_last_time_that_a_quota_was_found_spent_is_shown() -> None:
    calls.set_quota(WHO, limit=0, window=DAY, by="ada")
    times = []
    for _ in range(2):
        assert scripted({}).ask().reason_code == "quota_exhausted"
        times.append(QuotaState.objects.get().last_exhausted_at or datetime.min.replace(tzinfo=UTC))
    assert times[0] < times[1]


def test_what_was_reserved_in_a_window_is_shown_however_long_the_calls_last() -> None:
    calls.set_quota(WHO, limit=5, window=1.0, by="ada")

    def linger(_: Any) -> dict[str, Any]:
        """Two windows pass meanwhile, each with a call of its own."""
        for _step in range(2):
            wait_until_the_window_is_over()
            assert Scripted({}).ask().ok
        return {}

    assert scripted(linger).ask().ok
    assert sum(QuotaState.objects.values_list("used_count", flat=True)) == 3


def test_a_refusal_is_the_last_error_too() -> None:
    calls.set_quota(WHO, limit=0, window=DAY, by="ada")
    scripted({}).ask()
    health = ProviderHealthState.objects.get()
    assert health.last_error_code == "quota_exhausted"
    assert health.last_error_at is not None
