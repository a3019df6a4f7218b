"""Requests that are made once, dead letters kept with the end they tell of, and calls that are written once."""

import time
from datetime import timedelta
from math import ceil
from random import Random
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, transaction
from structlog.testing import capture_logs

from engines.models import DeadLetter
from providers import Outcome, ProviderBadRequestError, ProviderTimeoutError, RetryPolicy, calls
from providers.core.steps import Claimed
from providers.models import (
    IdempotencyClaim,
    OutboxLetter,
    ProviderExecutionMetric,
    ProviderHealthState,
    ProviderMinute,
)
from tests.broken_errors import MuteError
from tests.providers.scripted_providers import TENANT, WHO, Scripted, context, scripted

pytestmark = pytest.mark.django_db(transaction=True)

ONCE = RetryPolicy(max_attempts=1)
SEED_FIELDS = {
    *("tenant_id", "campaign_id", "task_name", "provider_name", "capability", "operation", "idempotency_key"),
    *("correlation_id", "reason_code", "error_type", "error_message", "attempts", "occurred_at"),
}


def test_a_success_is_given_again_for_the_same_key() -> None:
    provider = Scripted({"rank": 1}, {"rank": 2})
    first, second = (provider.ask({"keyword": "tea"}, idempotency_key="order-1") for _ in range(2))
    assert (first.replayed, second.replayed, second.payload) == (False, True, {"rank": 1})
    assert len(provider.calls) == 1


def test_a_key_with_another_payload_is_refused() -> None:
    provider = Scripted({"rank": 1})
    provider.ask({"keyword": "tea"}, idempotency_key="order-1")
    assert provider.ask({"keyword": "coffee"}, idempotency_key="order-1").reason_code == "bad_request"
    assert len(provider.calls) == 1


def test_a_failed_request_may_be_made_again() -> None:
    provider = Scripted(ProviderBadRequestError(), {"rank": 1})
    assert not provider.ask(idempotency_key="order-1").ok
    assert IdempotencyClaim.objects.get().state == "failed"
    assert provider.ask(idempotency_key="order-1").ok


def test_a_request_that_the_gate_refused_may_be_made_again() -> None:
    calls.force_open(WHO, by="ada", reason="maintenance")
    assert not Scripted({}).ask(idempotency_key="order-1").ok
    calls.reset(WHO, by="ada", reason="over")
    assert Scripted({}).ask(idempotency_key="order-1").ok


def test_a_second_one_during_the_first_is_refused() -> None:
    inner: list[Any] = []

    def answer(_: Any) -> dict[str, Any]:
        inner.append(Scripted({}).ask(idempotency_key="order-1"))
        return {"rank": 1}

    assert scripted(answer).ask(idempotency_key="order-1").ok
    assert inner[0].reason_code == "dependency_unavailable"
    assert inner[0].retry_after > 0


def test_a_request_whose_maker_is_gone_is_made_by_the_next() -> None:
    provider = Scripted({"rank": 1})
    ticket = provider._ticket(WHO.tenant_id, None, "snapshot", {}, context(idempotency_key="order-1"))
    assert isinstance(calls.claim(ticket, lease=3600.0), Claimed)  # and its process is killed
    assert not provider.ask(idempotency_key="order-1").ok
    IdempotencyClaim.objects.update(lease_until=0.0)
    assert provider.ask(idempotency_key="order-1").ok


def test_a_maker_that_stood_still_beyond_its_lease_does_not_make_again_what_another_has_made() -> None:
    other = scripted({"rank": 2})

    def stand_still(_: Any) -> dict[str, Any]:
        IdempotencyClaim.objects.update(lease_until=1.0)
        assert other.ask(idempotency_key="pay-1").ok
        raise TimeoutError

    provider = scripted(stand_still, {"rank": 3})
    result = provider.ask(idempotency_key="pay-1")
    assert (result.payload, result.replayed, len(provider.calls), len(other.calls)) == ({"rank": 2}, True, 1, 1)


def test_requests_without_a_key_are_known_by_what_they_ask_if_the_provider_says_so() -> None:
    fields = {"snapshot": ("keyword",)}
    provider = scripted({"rank": 1}, deduplicate=True, idempotency_fields=fields)
    results = [provider.ask({"keyword": "tea", "at": at}) for at in (1, 2)]
    assert [result.replayed for result in results] == [False, True]
    assert not provider.ask({"keyword": "coffee"}).replayed


def test_a_tasks_terminal_failure_is_kept_as_a_dead_letter() -> None:
    provider = scripted(TimeoutError("GET https://x/?token=abcdefgh"), retry_policy=RetryPolicy(2, 0, 0, 0))
    result = provider.ask({"keyword": "tea\x00"}, task_name="fetch_rank")
    assert result.outcome is Outcome.DEAD_LETTER
    outcomes = ProviderExecutionMetric.objects.order_by("id").values_list("outcome", flat=True)
    assert list(outcomes) == ["retry", "dead_letter"]
    letter = OutboxLetter.objects.get()
    assert set(letter.payload) == SEED_FIELDS
    assert (letter.payload["reason_code"], letter.payload["attempts"], letter.published_at) == ("timeout", 2, None)
    assert "abcdefgh" not in letter.payload["error_message"]
    assert "TimeoutError" in DeadLetter.objects.get().traceback
    assert "abcdefgh" not in DeadLetter.objects.get().traceback
    assert letter.request["payload"] == {"keyword": "tea\ufffd"}
    draft = DeadLetter.objects.get()
    assert draft.pk == letter.dead_letter_id
    assert (draft.source, draft.step, draft.uid) == ("rank/rank_snapshot", "snapshot", result.correlation_id)


ODD: Any = {"x": float("nan"), "half": "\ud800", "deep": [float("inf")], (1, 2): 3, "id": UUID(int=7)}


def test_a_request_that_no_column_takes_is_kept_as_text() -> None:
    arguments = {"args": [float("nan")], "kwargs": {}}
    asked = {"task_name": "fetch_rank", "task_arguments": arguments, "idempotency_key": "order-1"}
    result = Scripted(ProviderBadRequestError("half \ud800")).ask(ODD, **asked)
    assert (result.outcome, result.reason_code) == (Outcome.DEAD_LETTER, "bad_request")
    kept = {"x": "nan", "half": "?", "deep": ["inf"], "(1, 2)": 3, "id": str(UUID(int=7))}
    letter = OutboxLetter.objects.get()
    assert (letter.request["payload"], DeadLetter.objects.get().payload) == (kept, kept)
    assert letter.request["task_arguments"]["args"] == ["nan"]
    assert letter.payload["error_message"] == "half ?"


def test_an_answer_that_json_does_not_know_is_kept_and_given_again() -> None:
    odd: Any = {(1, 2): 3, "id": UUID(int=7), "odd": MuteError()}
    provider = Scripted(odd, ProviderBadRequestError())
    first, second = (provider.ask(idempotency_key="order-1") for _ in range(2))
    assert (first.ok, second.replayed) == (True, True)
    assert second.payload == {"(1, 2)": 3, "id": str(UUID(int=7)), "odd": "MuteError"}


def test_a_request_that_waits_to_be_tried_again_stays_under_way() -> None:
    inner: list[Any] = []

    def answer(_: Any) -> dict[str, Any]:
        inner.append(Scripted({}).ask(idempotency_key="order-1"))
        return {"rank": 1}

    waits = RetryPolicy(max_attempts=2, base_delay_seconds=2, max_delay_seconds=2, jitter_ratio=0)
    provider = scripted(TimeoutError(), answer, retry_policy=waits, idempotency_lease=1.0)
    assert provider.ask(idempotency_key="order-1").ok
    assert inner[0].reason_code == "dependency_unavailable"


def test_a_refused_task_is_a_dead_letter_unless_it_comes_back() -> None:
    calls.force_open(WHO, by="ada", reason="maintenance")
    assert Scripted({}).ask(task_name="fetch_rank", may_return=True).outcome is Outcome.RETRY
    assert not OutboxLetter.objects.exists()
    assert Scripted({}).ask(task_name="fetch_rank").outcome is Outcome.DEAD_LETTER
    assert OutboxLetter.objects.get().payload["reason_code"] == "circuit_open"
    outcomes = ProviderExecutionMetric.objects.order_by("id").values_list("outcome", flat=True)
    assert list(outcomes) == ["failed", "dead_letter"]


def test_a_deadline_covers_calls_and_waits() -> None:
    provider = scripted(TimeoutError(), retry_policy=RetryPolicy(3, 60, 60, 0))
    result = provider.ask(deadline=time.monotonic() + 30)
    assert (len(provider.calls), result.reason_code) == (1, "timeout")
    late = Scripted({})
    assert late.ask(deadline=time.monotonic() - 1).reason_code == "timeout"
    assert late.calls == []


def test_calls_are_written_once_and_removed_only_when_they_are_old() -> None:
    Scripted({}).ask()
    rows = ProviderExecutionMetric.objects.all()
    with pytest.raises(DatabaseError), transaction.atomic():
        rows.update(outcome="failed")
    with pytest.raises(DatabaseError), transaction.atomic():
        rows.delete()
    assert calls.prune(older_than=timedelta(days=1)).metrics == 0
    pruned = calls.prune(older_than=timedelta(seconds=-120), by="ada", reason="a test")
    assert (pruned.metrics, pruned.minutes, rows.count(), ProviderMinute.objects.count()) == (1, 1, 0, 0)


def test_rates_equal_those_counted_one_by_one() -> None:
    chance = Random(7)  # noqa: S311 (a script, not a secret)

    def answer(_: Any) -> dict[str, Any]:
        time.sleep(chance.random() / 100)
        if chance.random() < 0.3:
            raise ProviderBadRequestError
        return {}

    provider = scripted(answer, retry_policy=ONCE)
    for _ in range(60):
        provider.ask()
    rows = list(ProviderExecutionMetric.objects.values_list("duration_ms", "outcome"))
    exact = sorted(duration for duration, _ in rows)[ceil(0.95 * len(rows)) - 1]
    health = ProviderHealthState.objects.get()
    assert health.p95_latency_ms_1h == pytest.approx(exact, rel=0.07)
    assert health.success_rate_1h == pytest.approx(sum(outcome == "success" for _, outcome in rows) / len(rows))


def test_an_hour_without_calls_has_no_rates() -> None:
    Scripted({}).ask()
    ProviderMinute.objects.update(minute=1)
    ProviderHealthState.objects.update(rated_at=1.0)
    assert calls.rollup() == 1
    health = ProviderHealthState.objects.get()
    assert (health.success_rate_1h, health.p95_latency_ms_1h, health.attempts_1h) == (None, None, 0)


@pytest.mark.parametrize("verb", ["give_up", "record_dead_letter"])
def test_a_request_that_ends_outside_of_execute_is_logged_with_the_same_fields(verb: str) -> None:
    provider = scripted({})
    asked: dict[str, Any] = {"tenant_id": TENANT, "operation": "snapshot", "payload": {}}
    with capture_logs() as lines:
        getattr(provider, verb)(ProviderTimeoutError("slow"), attempts=2, **asked, context=context(task_name="fetch"))
        provider.execute(**asked, context=context())
    ended, executed = [line for line in lines if line["event"] == "provider execution"]
    assert set(ended) == set(executed)
    assert (ended["outcome"], ended["reason_code"], ended["attempt"]) == ("dead_letter", "timeout", 2)
