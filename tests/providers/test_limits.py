"""Bulkhead and rate limit: so many calls at once and so fast, whoever calls, and a wait that has an end."""

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from providers import (
    BreakerPolicy,
    BulkheadPolicy,
    Outcome,
    ProviderExecutionResult,
    ProviderRateLimitError,
    ProviderTimeoutError,
    RateLimit,
    calls,
)
from providers.calls import journal
from providers.core.gate import Asked, Decision
from providers.database import admitting
from providers.models import Gate, ProviderExecutionMetric, ProviderHealthState
from tests.processes import eventually
from tests.providers.scripted_providers import AT_ONCE, TENANT, WHO, Scripted, context, scripted
from tests.providers.test_group_settling import somebody_waits_for_a_lock
from tests.providers.test_many_processes import RACERS, child, race
from tests.providers.test_settling import without_the_database, won_and_not_kept

pytestmark = pytest.mark.django_db(transaction=True)

# Long enough to be no matter of chance, and never waited for.
LONG = 60.0
HOUR = 3600.0


def most_at_once(spans: list[tuple[float, float]]) -> int:
    """The calls that ran at the same time: one that ends as another begins makes room for it."""
    turns = sorted([(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans])
    return max(itertools.accumulate(change for _, change in turns))


class Blocking:
    """An answer that waits until it is let go, and knows how many wait with it."""

    def __init__(self) -> None:
        self.running = threading.Semaphore(0)
        self.may_end = threading.Event()

    def __call__(self, _: Any) -> dict[str, Any]:
        self.running.release()
        assert self.may_end.wait(LONG)
        return {"rank": 1}


@contextmanager
def in_threads(count: int, ask: Callable[[], Any]) -> Iterator[list[Any]]:
    """So many threads that ask, each with a connection that is closed in the end."""

    def asked() -> Any:
        try:
            return ask()
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as threads:
        yield [threads.submit(asked) for _ in range(count)]


async def awaited(provider: Scripted, **about: Any) -> ProviderExecutionResult:
    return await provider.aexecute(tenant_id=TENANT, operation="snapshot", payload={}, context=context(**about))


def test_racing_processes_never_run_more_calls_at_once_than_may() -> None:
    told = race("crowd", RACERS, 3, 2.0, "fleet")
    spans = [tuple(span) for ran, _ in told for span in ran]
    assert most_at_once(spans) <= 3
    assert len(spans) > 3
    assert sum(refused for _, refused in told) > 0
    gate = Gate.objects.get()
    assert (gate.running, gate.state, gate.consecutive_failures) == ({}, "closed", 0)


def test_each_process_has_places_of_its_own_where_the_bulkhead_is_its_own() -> None:
    told = race("crowd", RACERS, 1, 1.0, "process")
    assert sum(refused for _, refused in told) == 0
    assert all(most_at_once([tuple(span) for span in ran]) == 1 for ran, _ in told if ran)
    assert Gate.objects.get().running == {}


def test_a_process_that_is_killed_frees_its_place_when_the_lease_ends() -> None:
    provider = scripted({"rank": 1}, bulkhead=BulkheadPolicy(1, lease=HOUR))
    with child("occupy") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "calling\n"
        assert provider.ask().reason_code == "rate_limited"
        process.kill()
        process.wait()
        assert provider.ask().reason_code == "rate_limited"
        Gate.objects.update(running=dict.fromkeys(Gate.objects.get().running, 1.0))  # its lease is over
        assert provider.ask().ok
    assert Gate.objects.get().running == {}


def test_racing_processes_get_a_burst_and_then_tokens_as_they_come() -> None:
    per_second, burst = 20.0, 5
    told = sorted(tuple(span) for one in race("pace", RACERS, per_second, burst, 3.0) for span in one)
    assert len(told) > burst
    # Tokens come by the database's clock, which has milliseconds on SQLite, and which may be set meanwhile.
    ahead = [ahead for _, _, ahead in told]
    unsure = 0.002 + max(ahead) - min(ahead)
    # From any admission on, no time has more than the burst and what has come back meanwhile.
    ends = [ended for _, ended, _ in told]
    for number, (began, _, _) in enumerate(told):
        for count, ended in enumerate(sorted(ends[number:]), start=1):
            assert count <= burst + per_second * (ended - began + unsure)


@pytest.mark.parametrize("scope", ["fleet", "process"])
def test_threads_wait_for_a_place_and_are_refused_if_none_comes(scope: str) -> None:
    answer = Blocking()
    provider = scripted(answer, bulkhead=BulkheadPolicy(2, scope), timeout=LONG)
    with in_threads(2, provider.ask) as running:
        for _ in running:
            assert answer.running.acquire(timeout=LONG)
        refused = provider.ask(may_return=True, task_name="t")
        assert (refused.outcome, refused.reason_code, refused.retry_after) == (Outcome.RETRY, "rate_limited", None)
        waiting = scripted({"rank": 2}, bulkhead=BulkheadPolicy(2, scope), max_wait=0.2)
        refused = waiting.ask()
        assert refused.reason_code == "rate_limited"
        assert refused.duration_ms >= 200
        patient = scripted({"rank": 2}, bulkhead=BulkheadPolicy(2, scope), max_wait=LONG)
        with in_threads(2, patient.ask) as others:
            answer.may_end.set()
            assert [one.result().payload for one in (*running, *others)] == [{"rank": 1}] * 2 + [{"rank": 2}] * 2
    refusals = ProviderExecutionMetric.objects.filter(reason_code="rate_limited")
    assert refusals.count() == 2
    assert (Gate.objects.get().running, ProviderHealthState.objects.get().consecutive_failures) == ({}, 0)


@pytest.mark.parametrize("scope", ["fleet", "process"])
def test_coroutines_wait_for_a_place_and_one_that_is_cancelled_lets_go_of_its_own(scope: str) -> None:
    class Held(Scripted):
        bulkhead = BulkheadPolicy(1, scope)
        timeout = LONG
        began: asyncio.Event

        async def _aexecute_impl(self, **_: Any) -> dict[str, Any]:
            self.began.set()
            await asyncio.Event().wait()  # until it is cancelled
            return {}

    async def play() -> tuple[str | None, bool]:
        provider = Held()
        provider.began = asyncio.Event()
        first = asyncio.ensure_future(awaited(provider))
        await provider.began.wait()
        second = await awaited(provider)
        patient = scripted({"rank": 2}, bulkhead=BulkheadPolicy(1, scope), max_wait=LONG)
        third = asyncio.ensure_future(awaited(patient))
        first.cancel()
        return second.reason_code, (await third).ok

    assert async_to_sync(play)() == ("rate_limited", True)
    assert Gate.objects.get().running == {}


@pytest.mark.parametrize("is_awaited", [False, True])
def test_calls_wait_for_a_token_and_never_beyond_the_deadline(is_awaited: bool) -> None:  # noqa: FBT001
    def ask(provider: Scripted, **about: Any) -> ProviderExecutionResult:
        return async_to_sync(awaited)(provider, **about) if is_awaited else provider.ask(**about)

    slow = scripted({}, rate_limit=RateLimit(1 / HOUR, 1), max_wait=HOUR)
    assert ask(slow).ok
    refused = ask(slow, deadline=time.monotonic() + HOUR / 2)
    assert refused.reason_code == "rate_limited"
    assert HOUR / 2 < (refused.retry_after or 0) <= HOUR
    fast = scripted({}, rate_limit=RateLimit(5, 1), max_wait=HOUR)
    # By the clock that tokens come back by, which a machine may set while it runs.
    began = time.time()
    assert [(result.ok, result.reason_code) for result in (ask(fast), ask(fast), ask(fast))] == [(True, None)] * 3
    # However long the first has waited, the others come a fifth of a second after each other.
    assert time.time() - began > 0.39


def test_a_token_that_comes_in_a_moment_is_waited_for() -> None:
    """SQLite returns times rounded to ten microseconds: here both are the same, although its statement has refused."""
    at = 1763429536.60284
    row = ("rate", 0, 1, None, None, json.dumps([at, None, None, "", None, None, "{}", at]))
    refused = admitting.admission_in(row, Asked(BreakerPolicy(), rate_limit=RateLimit(5, 1)))
    assert 0 < (refused.retry_after or 0) < 0.001


def test_a_call_that_waits_for_the_gate_gives_back_no_token_that_was_taken_meanwhile() -> None:
    asked = Asked(BreakerPolicy(), rate_limit=RateLimit(10, 1))
    assert calls.admit(WHO, asked).decision.is_admission
    is_held, asks = threading.Event(), threading.Event()

    def ask() -> None:
        assert is_held.wait(LONG)
        asks.set()
        calls.admit(WHO, asked)

    with in_threads(1, ask), transaction.atomic():
        Gate.objects.select_for_update().get()
        is_held.set()
        assert asks.wait(LONG)
        eventually(somebody_waits_for_a_lock, "the other call waits for the gate")
        eventually(lambda: calls.admit(WHO, asked).decision.is_admission, "a token has come back")
        full_at = Gate.objects.get().bucket_full_at or 0.0
    # Refused, it leaves the bucket as it is; admitted on a machine that took its time, it takes a token.
    assert (Gate.objects.get().bucket_full_at or 0.0) > full_at - 0.001


def test_what_is_refused_spends_no_quota_and_says_nothing_of_the_provider() -> None:
    calls.set_quota(WHO, limit=10, window=86400.0, by="tests")
    provider = scripted({}, rate_limit=RateLimit(1 / LONG, 2), breaker_policy=BreakerPolicy(1), count_rate_limited=True)
    results = [provider.ask() for _ in range(5)]
    assert [result.ok for result in results] == [True, True, False, False, False]
    gate = Gate.objects.get()
    assert (gate.used, gate.state, gate.decision) == (2, "closed", Decision.RATE.value)
    with pytest.raises(ProviderRateLimitError, match="the rate limit is reached"):
        results[-1].raise_for_failure()


def test_every_attempt_takes_a_token_and_a_place_and_every_end_lets_go_of_it() -> None:
    limits = {"rate_limit": RateLimit(1 / LONG, 3), "bulkhead": BulkheadPolicy(1), "retry_policy": AT_ONCE}
    failing = scripted(ProviderTimeoutError(), **limits)
    assert len(failing.ask().attempts) == 3
    assert Gate.objects.get().running == {}
    assert failing.ask().reason_code == "rate_limited"


def test_a_call_that_is_broken_off_lets_go_of_its_place() -> None:
    provider = scripted(KeyboardInterrupt(), bulkhead=BulkheadPolicy(1))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            provider.ask()
    assert (len(provider.calls), Gate.objects.get().running) == (2, {})


def test_a_call_that_outlives_its_lease_makes_room_and_lets_go_of_nobody_elses_place() -> None:
    limited = {"bulkhead": BulkheadPolicy(1, "process", lease=0.01), "timeout": None}
    other = scripted({"rank": 2}, **limited, max_wait=LONG)
    reasons: list[str | None] = []

    def outlive(_: Any) -> dict[str, Any]:
        reasons.append(other.ask().reason_code)
        return {}

    assert scripted(outlive, **limited).ask().ok
    assert (reasons, scripted({}, **limited).ask().ok) == ([None], True)


@pytest.mark.parametrize("scope", ["tenant", "both"])
def test_limits_are_the_tenants_beside_an_accounts_gate(scope: str) -> None:
    provider = scripted({}, bulkhead=BulkheadPolicy(1), rate_limit=RateLimit(1 / LONG, 1), breaker_scope=scope)
    assert provider.ask().ok
    assert provider.ask().reason_code == "rate_limited"
    other = provider.execute(tenant_id="other", operation="snapshot", payload={}, context=context())
    assert other.ok
    assert all(gate.running == {} for gate in Gate.objects.all())


@pytest.mark.parametrize("scope", ["fleet", "process"])
def test_calls_that_are_cancelled_at_a_moment_by_chance_leave_no_place_taken(scope: str) -> None:
    limits = {"bulkhead": BulkheadPolicy(1, scope), "rate_limit": RateLimit(200), "max_wait": LONG}

    async def cancel(after: float) -> None:
        call = asyncio.create_task(awaited(scripted({"rank": 1}, **limits)))
        await asyncio.sleep(after)
        call.cancel()
        await asyncio.wait([call])

    for step in range(12):
        async_to_sync(cancel)(step * 0.002)
    assert scripted({"rank": 1}, bulkhead=limits["bulkhead"]).ask().ok
    assert Gate.objects.get().running == {}


@pytest.mark.postgresql
def test_an_outcome_from_the_journal_lets_go_of_its_place() -> None:
    limited: dict[str, Any] = {"bulkhead": BulkheadPolicy(1)}
    result = won_and_not_kept(**limited)
    assert (result.ok, result.is_kept) == (True, False)
    assert len(Gate.objects.get().running) == 1
    assert journal.replay() == 1
    assert scripted({}, **limited).ask().ok
    assert Gate.objects.get().running == {}


@pytest.mark.postgresql
def test_without_the_database_the_bulkhead_of_the_fleet_is_that_of_the_process() -> None:
    limited = {"bulkhead": BulkheadPolicy(1), "on_store_failure": "local"}
    inner = scripted({}, **limited)
    reasons: list[str | None] = []

    def outer(_: Any) -> dict[str, Any]:
        reasons.append(inner.ask().reason_code)
        return {}

    with without_the_database():
        assert scripted(outer, **limited).ask().ok
        assert (reasons, inner.ask().ok) == (["rate_limited"], True)
