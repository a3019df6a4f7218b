"""One execution against the database: what is returned, and what is written down."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from providers import (
    Outcome,
    ProviderBadRequestError,
    ProviderExecutionResult,
    ProviderTimeoutError,
    ProviderUsageError,
    active_policy,
    calls,
)
from providers.core.exchange import ProviderAnswer
from providers.models import Gate, ProviderExecutionMetric, ProviderHealthState, ProviderMinute
from tests.providers.scripted_providers import TENANT, Scripted, context, scripted

pytestmark = pytest.mark.django_db(transaction=True)


def rows() -> list[tuple[Any, ...]]:
    columns = ("attempt_number", "outcome", "reason_code", "retryable")
    return list(ProviderExecutionMetric.objects.order_by("id").values_list(*columns))


def awaited(provider: Scripted) -> ProviderExecutionResult:
    execute = async_to_sync(provider.aexecute)
    return execute(tenant_id=TENANT, operation="snapshot", payload={}, context=context())


def test_a_success_is_returned_and_written_down() -> None:
    result = Scripted({"rank": 3}).ask({"keyword": "tea"})
    assert (result.ok, result.outcome, result.payload) == (True, Outcome.SUCCESS, {"rank": 3})
    assert [attempt.outcome for attempt in result.attempts] == [Outcome.SUCCESS]
    assert rows() == [(1, "success", None, False)]
    health = ProviderHealthState.objects.get()
    assert (health.breaker_state, health.consecutive_failures, health.success_rate_1h) == ("closed", 0, 1.0)
    assert health.p95_latency_ms_1h is not None
    assert health.last_success_at is not None
    assert health.last_error_code is None
    minute = ProviderMinute.objects.get()
    assert (minute.attempts, minute.successes, minute.executions, sum(minute.buckets.values())) == (1, 1, 1, 1)


def test_a_transient_failure_is_tried_again_and_then_forgotten_by_the_breaker() -> None:
    provider = Scripted(TimeoutError("slow"), TimeoutError("slow"), {"rank": 1})
    result = provider.ask()
    assert result.ok
    assert [attempt.reason_code for attempt in result.attempts] == ["timeout", "timeout", None]
    assert rows() == [(1, "retry", "timeout", True), (2, "retry", "timeout", True), (3, "success", None, False)]
    health = ProviderHealthState.objects.get()
    assert health.consecutive_failures == 0
    assert health.success_rate_1h == pytest.approx(1 / 3)
    assert (health.execution_rate_1h, health.last_error_code) == (1.0, "timeout")


def test_a_failure_for_good_is_not_tried_again_and_is_raised_on_request() -> None:
    provider = Scripted(ProviderBadRequestError("no such keyword", http_status=404))
    result = provider.ask()
    assert (result.ok, result.outcome, result.reason_code) == (False, Outcome.FAILED, "bad_request")
    assert len(provider.calls) == 1
    assert rows() == [(1, "failed", "bad_request", False)]
    with pytest.raises(ProviderBadRequestError, match="no such keyword"):
        result.raise_for_failure()


def test_a_foreign_error_becomes_ours_and_stays_its_cause() -> None:
    slow = TimeoutError("slow")
    result = Scripted(slow).ask()
    assert isinstance(result.error, ProviderTimeoutError)
    assert result.error.__cause__ is slow


def test_a_failure_does_not_erase_the_last_success() -> None:
    Scripted({}).ask()
    Scripted(ProviderBadRequestError()).ask()
    health = ProviderHealthState.objects.get()
    assert health.last_success_at is not None
    assert health.last_error_at is not None


@pytest.mark.parametrize("tenant", ["", "  ", None])
def test_a_missing_tenant_is_refused(tenant: Any) -> None:
    with pytest.raises(ProviderUsageError, match="tenant_id is missing"):
        Scripted({}).execute(tenant_id=tenant, operation="snapshot", payload={}, context=context())


@pytest.mark.parametrize("mistake", [{"payload": None}, {"payload": [1]}, {"campaign_id": uuid4()}, {"operation": 7}])
def test_what_cannot_be_asked_is_refused(mistake: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"tenant_id": TENANT, "operation": "snapshot", "payload": {}, "context": context()}
    with pytest.raises(ProviderUsageError, match=next(iter(mistake))):
        Scripted({}).execute(**asked | mistake)
    assert Scripted({}).execute(**asked, campaign_id="").ok


def test_the_status_of_a_success_is_written_down() -> None:
    result = Scripted(ProviderAnswer({"rank": 1}, http_status=203)).ask(idempotency_key="order-1")
    assert (type(result.payload), result.payload, result.attempts[0].http_status) == (dict, {"rank": 1}, 203)
    assert ProviderExecutionMetric.objects.get().http_status == 203


def test_a_call_inside_an_open_transaction_is_refused() -> None:
    provider = Scripted({})
    with transaction.atomic(), pytest.raises(ProviderUsageError, match="atomic"):
        provider.ask()
    assert provider.calls == []


def test_an_awaited_call_inside_an_open_transaction_is_refused_whether_its_policy_is_known_or_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = Scripted({"rank": 1})
    for _ in range(2):
        with transaction.atomic(), pytest.raises(ProviderUsageError, match="atomic"):
            awaited(provider)
        assert (provider.calls, Gate.objects.count()) == ([], 0)
        active_policy.governing(provider)  # which the next one need not look for
    assert "provider execution" not in caplog.text
    assert awaited(provider).ok


def test_an_awaited_call_may_ask_the_database_for_its_account() -> None:
    class Asking(Scripted):
        def account_of(self, tenant_id: str) -> str:
            return f"{Gate.objects.filter(tenant_id=tenant_id).count() * 0}"

    provider = Asking({"rank": 1})
    assert [awaited(provider).ok for _ in range(2)] == [True, True]


def test_a_call_without_autocommit_is_refused() -> None:
    provider = Scripted({})
    transaction.set_autocommit(False)
    try:
        with pytest.raises(ProviderUsageError, match="autocommit"):
            provider.ask()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert provider.calls == []


@pytest.mark.parametrize(("is_set", "outcome"), [(True, True), (False, False)])
def test_whether_a_call_commits_by_itself_is_known_before_it_connects(
    is_set: bool,  # noqa: FBT001
    outcome: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", is_set)
    if outcome:
        calls.refuse_open_transaction()
    else:
        with pytest.raises(ProviderUsageError, match="autocommit"):
            calls.refuse_open_transaction()
    assert connection.connection is None


@pytest.mark.django_db(transaction=False)
def test_the_transaction_around_a_test_is_nobodys() -> None:
    assert Scripted({}).ask().ok


def test_an_awaited_execution_follows_the_same_rules() -> None:
    provider = Scripted(TimeoutError("slow"), {"rank": 1})
    result = awaited(provider)
    assert result.ok
    assert rows() == [(1, "retry", "timeout", True), (2, "success", None, False)]


def test_an_awaited_call_that_takes_too_long_is_cut_off() -> None:
    class Slow(Scripted):
        timeout = 0.05

        async def _aexecute_impl(self, **asked: Any) -> dict[str, Any]:
            await asyncio.sleep(60)
            return {}

    assert awaited(Slow()).reason_code == "timeout"


def test_an_answer_that_is_no_dict_is_invalid() -> None:
    assert scripted(lambda _: [1]).ask().reason_code == "response_invalid"  # type: ignore[arg-type,return-value]


def test_gates_of_tenants_are_their_own() -> None:
    Scripted({}).ask()
    Scripted({}).execute(tenant_id="other", operation="snapshot", payload={}, context=context())
    assert Gate.objects.count() == 2
