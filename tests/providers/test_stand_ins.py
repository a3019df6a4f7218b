"""Kept answers and fallbacks against the database: what is returned, spent, counted and written down."""

import asyncio
import time
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db.models import Sum
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from structlog.testing import capture_logs

from engines.models import DeadLetter
from ergon_site.access.models import AuditEntry
from providers import (
    BreakerPolicy,
    Outcome,
    ProviderBadRequestError,
    ProviderExecutionResult,
    ProviderTimeoutError,
    calls,
    policies,
    telemetry,
)
from providers.calls import answers
from providers.core.breaker import Verdict
from providers.core.exchange import Source
from providers.core.gate import Asked
from providers.core.steps import GiveUp, Settle, StandIn
from providers.database import sql
from providers.models import (
    CachedAnswer,
    Gate,
    IdempotencyClaim,
    OutboxLetter,
    ProviderExecutionMetric,
    ProviderHealthState,
    ProviderMinute,
)
from providers.reads import health
from tests.providers.scripted_providers import TENANT, WHO, Scripted, context, scripted

pytestmark = pytest.mark.django_db(transaction=True)

CACHE: dict[str, Any] = {"cache_for": 3600.0}
STALE: dict[str, Any] = {"cache_for": 0.0, "stale_for": 3600.0}
SECRET = "a-payload-that-is-nobodys-business"


def counted(*names: str) -> list[int]:
    """Of all minutes: what a slow machine does takes longer than one."""
    sums = ProviderMinute.objects.aggregate(**{f"all_{name}": Sum(name) for name in names})
    return [sums[f"all_{name}"] for name in names]


def rows() -> list[tuple[Any, ...]]:
    columns = ("attempt_number", "outcome", "reason_code", "source")
    return list(ProviderExecutionMetric.objects.order_by("id").values_list(*columns))


def answer_with(answer: Any) -> Any:
    """A fallback; an error is raised."""

    def fallback(self: Any, request: Any, error: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer(request, error) if callable(answer) else answer

    return fallback


def awaited(provider: Scripted, **about: Any) -> ProviderExecutionResult:
    execute = async_to_sync(provider.aexecute)
    return execute(tenant_id=TENANT, operation="snapshot", payload={}, context=context(**about))


def test_the_same_request_is_answered_from_the_cache_and_written_down_as_such() -> None:
    provider = scripted({"rank": 1}, {"rank": 2}, **CACHE)
    first, second = (provider.ask({"keyword": "tea"}) for _ in range(2))
    assert (first.source, second.source, second.payload) == (Source.PROVIDER, Source.CACHE, {"rank": 1})
    assert (second.ok, second.attempts, second.error) == (True, (), None)
    assert second.age is not None
    assert len(provider.calls) == 1
    assert rows() == [(1, "success", None, "provider"), (1, "success", None, "cache")]


@pytest.mark.parametrize(
    "other", [{"payload": {"keyword": "coffee"}}, {"operation": "other"}, {"tenant_id": "another"}]
)
def test_another_request_or_tenant_is_another_answer(other: dict[str, Any]) -> None:
    provider = scripted({"rank": 1}, {"rank": 2}, **CACHE)
    asked: dict[str, Any] = {"tenant_id": TENANT, "operation": "snapshot", "payload": {"keyword": "tea"}}
    provider.execute(**asked, context=context())
    assert provider.execute(**asked | other, context=context()).payload == {"rank": 2}


def test_fields_that_do_not_make_it_another_request_do_not_make_it_another_answer() -> None:
    provider = scripted({"rank": 1}, idempotency_fields={"snapshot": ("keyword",)}, **CACHE)
    provider.ask({"keyword": "tea", "asked_at": 1})
    assert provider.ask({"keyword": "tea", "asked_at": 2}).source is Source.CACHE


def test_a_new_version_of_the_provider_asks_anew() -> None:
    scripted({"rank": 1}, **CACHE).ask()
    assert scripted({"rank": 2}, version=2, **CACHE).ask().payload == {"rank": 2}


def test_an_answer_that_is_too_old_is_asked_for_again_and_replaced() -> None:
    provider = scripted({"rank": 1}, {"rank": 2}, **CACHE)
    provider.ask()
    CachedAnswer.objects.update(answered_at=time.time() - 3601)
    assert provider.ask().payload == {"rank": 2}
    assert (provider.ask().payload, CachedAnswer.objects.count()) == ({"rank": 2}, 1)


def test_how_long_an_answer_serves_is_changed_while_it_does() -> None:
    provider = scripted({"rank": 1}, {"rank": 2}, **CACHE)
    provider.ask()
    assert provider.ask().source is Source.CACHE
    policies.write("rank", "rank_snapshot", body={"cache_for": None}, by="ada", reason="it is wrong")
    assert provider.ask().payload == {"rank": 2}


def test_a_cache_hit_passes_no_gate_and_counts_for_no_rate() -> None:
    calls.set_quota(WHO, limit=1, window=3600, by="ada")
    provider = scripted({"rank": 1}, **CACHE)
    provider.ask()
    calls.force_open(WHO, by="ada", reason="maintenance")
    before = Gate.objects.values().get()
    assert [provider.ask().source for _ in range(3)] == [Source.CACHE] * 3
    assert Gate.objects.values().get() == before
    assert counted("attempts", "successes", "executions", "refusals") == [1, 1, 1, 0]
    assert counted("cache_hits", "stale_answers", "fallbacks") == [3, 0, 0]
    [one] = health.of_tenant(TENANT)
    assert (one.rates.attempts, one.rates.success, one.rates.cache_hits) == (1, 1.0, 3)


def test_a_key_keeps_the_answer_that_it_was_given() -> None:
    provider = scripted({"rank": 1}, {"rank": 2}, **CACHE)
    provider.ask()
    assert provider.ask(idempotency_key="order-1").source is Source.CACHE
    claim = IdempotencyClaim.objects.get()
    assert (claim.state, claim.answer) == ("succeeded", '{"rank": 1}')
    calls.drop_answers(WHO, by="ada", reason="wrong")
    again = provider.ask(idempotency_key="order-1")
    assert (again.replayed, again.source, again.payload) == (True, Source.PROVIDER, {"rank": 1})
    assert provider.ask(idempotency_key="order-2").payload == {"rank": 2}


def test_a_key_that_belongs_to_another_request_is_refused_whatever_is_kept() -> None:
    provider = scripted({"rank": 1}, **CACHE)
    provider.ask({"keyword": "tea"})
    provider.ask({"keyword": "coffee"}, idempotency_key="order-1")
    assert provider.ask({"keyword": "tea"}, idempotency_key="order-1").reason_code == "bad_request"


def test_dropped_answers_serve_nobody_and_whoever_dropped_them_is_known() -> None:
    provider = scripted({"rank": 1}, {"rank": 2}, **CACHE)
    provider.ask()
    assert calls.drop_answers(WHO, by="ada", reason="they were wrong") == 1
    assert provider.ask().payload == {"rank": 2}
    entry = AuditEntry.objects.get(action="cache.drop")
    assert (entry.actor, entry.reason, entry.before) == ("ada", "they were wrong", {"answers": 1})


def test_answers_are_pruned_when_they_serve_nobody_any_more() -> None:
    scripted({"rank": 1}, **CACHE).ask()
    assert calls.prune().answers == 0
    CachedAnswer.objects.update(useful_until=time.time() - 1)
    assert (calls.prune().answers, CachedAnswer.objects.count()) == (1, 0)


def test_of_two_that_miss_at_once_both_call_and_the_later_answer_is_kept() -> None:
    inner: list[Any] = []

    def answer(_: Any) -> dict[str, Any]:
        inner.append(scripted({"rank": 2}, **CACHE).ask())
        return {"rank": 1}

    outer = scripted(answer, **CACHE).ask()
    assert [one.payload for one in (*inner, outer)] == [{"rank": 2}, {"rank": 1}]
    assert (scripted({}, **CACHE).ask().payload, CachedAnswer.objects.count()) == ({"rank": 1}, 1)


def test_an_answer_that_is_too_large_is_not_kept() -> None:
    provider = scripted({"text": "x" * answers.LARGEST}, **CACHE)
    with capture_logs() as lines:
        assert provider.ask().ok
    assert (CachedAnswer.objects.count(), provider.ask().source) == (0, Source.PROVIDER)
    assert lines[0]["event"] == "provider answer too large to keep"


def test_an_old_answer_stands_in_after_the_attempts_and_the_error_is_told() -> None:
    scripted({"rank": 1}, **STALE).ask()
    provider = scripted(TimeoutError("slow"), **STALE)
    result = provider.ask()
    assert (result.ok, result.payload, result.source) == (True, {"rank": 1}, Source.STALE)
    assert isinstance(result.original_error, ProviderTimeoutError)
    assert len(provider.calls) == 3
    retries = [(number, "retry", "timeout", "provider") for number in (1, 2)]
    ended = [(3, "failed", "timeout", "provider"), (3, "success", "timeout", "stale")]
    assert rows()[1:] == [*retries, *ended]
    known = ProviderHealthState.objects.get()
    assert (known.success_rate_1h, known.execution_rate_1h, known.last_error_code) == (0.25, 0.5, "timeout")


def test_an_answer_that_is_too_old_to_stand_in_does_not() -> None:
    scripted({"rank": 1}, **STALE).ask()
    CachedAnswer.objects.update(answered_at=time.time() - 3601)
    assert scripted(TimeoutError("slow"), **STALE).ask().reason_code == "timeout"


def test_an_old_answer_stands_in_while_the_breaker_is_open_and_the_provider_answers_after_it() -> None:
    provider = scripted({"rank": 1}, {"rank": 2}, **STALE)
    provider.ask()
    calls.force_open(WHO, by="ada", reason="maintenance")
    result = provider.ask()
    assert (result.source, result.original_error and result.original_error.reason_code) == ("stale", "circuit_open")
    assert len(provider.calls) == 1
    calls.reset(WHO, by="ada", reason="over")
    assert provider.ask().payload == {"rank": 2}


def test_a_fallback_answers_for_a_failure_and_is_written_down_as_such() -> None:
    seen: list[Any] = []

    def note(request: Any, error: Any) -> dict[str, Any]:
        seen.append((request, error))
        return {"rank": None}

    provider = scripted(ProviderBadRequestError("no"), fallback=answer_with(note))
    result = provider.ask({"keyword": "tea"})
    assert (result.ok, result.payload, result.source) == (True, {"rank": None}, Source.FALLBACK)
    [(request, error)] = seen
    assert (request.tenant_id, request.operation, request.payload) == (TENANT, "snapshot", {"keyword": "tea"})
    assert (error, result.original_error) == (result.original_error, error)
    assert rows() == [(1, "failed", "bad_request", "provider"), (1, "success", "bad_request", "fallback")]
    assert counted("attempts", "successes", "executions", "fallbacks") == [1, 0, 1, 1]


def test_a_fallback_is_not_kept_for_a_key_or_for_others() -> None:
    provider = scripted(ProviderBadRequestError(), {"rank": 1}, fallback=answer_with({}), cache_for=3600.0)
    assert provider.ask(idempotency_key="order-1").source is Source.FALLBACK
    assert provider.ask(idempotency_key="order-1").payload == {"rank": 1}


@pytest.mark.parametrize("answer", [RuntimeError(SECRET), [SECRET]])
def test_an_error_in_a_fallback_leaves_the_error_of_the_call_and_tells_no_payload(answer: Any) -> None:
    provider = scripted(ProviderBadRequestError("no such keyword"), fallback=answer_with(answer))
    with capture_logs() as lines:
        result = provider.ask({"keyword": SECRET})
    assert (result.ok, result.reason_code, result.source) == (False, "bad_request", Source.PROVIDER)
    assert "provider fallback failed" in [line["event"] for line in lines]
    assert SECRET not in str(lines)


def test_a_fallback_that_says_nothing_lets_the_call_fail() -> None:
    assert scripted(ProviderBadRequestError(), fallback=answer_with(None)).ask().reason_code == "bad_request"


def test_an_awaited_call_follows_the_same_rules() -> None:
    async def afallback(self: Any, request: Any, error: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"from": "afallback"}

    failing = {"fallback": answer_with({"from": "fallback"})}
    assert awaited(scripted(ProviderBadRequestError(), **failing)).payload == {"from": "fallback"}
    assert awaited(scripted(ProviderBadRequestError(), **failing, afallback=afallback)).payload == {"from": "afallback"}
    provider = scripted({"rank": 1}, **CACHE)
    assert [awaited(provider).source for _ in range(2)] == [Source.PROVIDER, Source.CACHE]


def test_an_awaited_fallback_that_takes_too_long_is_cut_off() -> None:
    async def afallback(self: Any, request: Any, error: Any) -> dict[str, Any]:
        await asyncio.sleep(3600)
        return {}

    provider = scripted(ProviderBadRequestError(), afallback=afallback, timeout=0.05)
    assert awaited(provider, deadline=time.monotonic() + 600).reason_code == "bad_request"


def test_a_task_that_is_to_come_back_is_given_nothing_instead() -> None:
    scripted({"rank": 1}, **STALE).ask()
    calls.force_open(WHO, by="ada", reason="maintenance")
    provider = scripted({}, fallback=answer_with({}), **STALE)
    result = provider.ask(task_name="fetch", may_return=True)
    assert (result.outcome, result.reason_code) == (Outcome.RETRY, "circuit_open")
    calls.reset(WHO, by="ada", reason="over")
    assert provider.ask(task_name="fetch", may_return=True).source is Source.PROVIDER


def test_a_task_that_is_answered_leaves_no_dead_letter_and_one_that_is_not_leaves_one() -> None:
    error = ProviderBadRequestError("no")
    served = scripted(error, fallback=answer_with({})).ask(task_name="fetch")
    assert (served.outcome, DeadLetter.objects.count(), OutboxLetter.objects.count()) == (Outcome.SUCCESS, 0, 0)
    failed = scripted(error, fallback=answer_with(None)).ask(task_name="fetch")
    assert (failed.outcome, DeadLetter.objects.count()) == (Outcome.DEAD_LETTER, 1)
    letter = OutboxLetter.objects.get()
    assert (letter.payload["reason_code"], letter.payload["attempts"]) == ("bad_request", 1)
    assert rows()[-2:] == [(1, "failed", "bad_request", "provider"), (1, "dead_letter", "bad_request", "provider")]


def test_a_task_that_is_broken_off_in_its_fallback_leaves_its_dead_letter() -> None:
    provider = scripted(ProviderBadRequestError("no"), fallback=answer_with(SystemExit()))
    with pytest.raises(SystemExit):
        provider.ask(task_name="fetch")
    assert (DeadLetter.objects.count(), OutboxLetter.objects.get().payload["reason_code"]) == (1, "bad_request")


def test_what_is_written_down_twice_is_there_once() -> None:
    provider = scripted({"rank": 1}, fallback=answer_with({}))
    ticket = provider._ticket(TENANT, None, "snapshot", {}, context(task_name="fetch"))
    error = ProviderBadRequestError()
    stood_in, given_up = StandIn(1, Source.FALLBACK, {}, error), GiveUp(1, error, 1)
    for is_repeat in (False, True):
        calls.stand_in(ticket, stood_in, is_repeat=is_repeat)
        calls.give_up(ticket, given_up, is_repeat=is_repeat)
    assert [source for *_, source in rows()] == ["fallback", "provider"]
    assert DeadLetter.objects.count() == 1


def test_an_outcome_that_comes_from_the_journal_after_a_stand_in_is_settled_all_the_same() -> None:
    ticket = scripted({})._ticket(TENANT, None, "snapshot", {}, context())
    admission, error = calls.admit(WHO, Asked(BreakerPolicy(), 1)), ProviderTimeoutError("slow")
    calls.stand_in(ticket, StandIn(1, Source.FALLBACK, {}, error))
    late = Settle(1, admission, 0.5, None, Verdict.FAILURE, Outcome.FAILED, error=error, is_repeat=True)
    for _ in range(2):
        calls.settle(ticket, late)
    assert rows() == [(1, "success", "timeout", "fallback"), (1, "failed", "timeout", "provider")]
    assert Gate.objects.get().consecutive_failures == 1


def test_a_provider_that_uses_none_of_it_costs_no_statement_more(monkeypatch: pytest.MonkeyPatch) -> None:
    carried_out: list[str] = []
    rows = sql.rows

    def counted(statement: str, given: Any) -> Any:
        carried_out.append(statement)
        return rows(statement, given)

    # Counted here: Django does not see what is prepared on PostgreSQL.
    monkeypatch.setattr(sql, "rows", counted)

    def statements(**attributes: Any) -> int:
        provider = scripted({"rank": 1}, **attributes)
        provider.ask({"for": str(attributes)})
        carried_out.clear()
        provider.ask({"for": f"{attributes} again"})
        return len(carried_out)

    plain = statements()
    assert statements(fallback=answer_with({})) == plain
    assert statements(**STALE) == plain + 1
    assert statements(**CACHE) == plain + 2


def test_telemetry_counts_what_stood_in_apart_from_what_the_provider_did(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("tests")
    for name in ("executions", "stand_ins"):
        # The API takes a provider once per process and for good; this test wants one for a while.
        monkeypatch.setattr(telemetry, name, meter.create_counter(name))
    provider = scripted({"rank": 1}, fallback=answer_with({}), **CACHE)
    provider.ask()
    provider.ask()
    scripted(ProviderBadRequestError(), fallback=answer_with({})).ask()
    told: Any = reader.get_metrics_data()
    counted = {
        (metric.name, *(point.attributes.get(f"ergon.{label}") for label in ("outcome", "source", "reason_code"))): (
            point.value
        )
        for metric in told.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    }
    assert counted == {
        ("executions", "success", None, None): 1,
        ("executions", "failed", None, "bad_request"): 1,
        ("stand_ins", None, "cache", None): 1,
        ("stand_ins", None, "fallback", "bad_request"): 1,
    }
