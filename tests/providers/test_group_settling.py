"""Calls that end at the same time in threads of a process are settled together, each as if it were alone."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import IntegrityError, connection, connections, transaction
from hypothesis import HealthCheck, given, settings, strategies as st

from providers import ProviderPolicy, RetryBudget, calls
from providers.calls import rating, settling
from providers.calls.rating import board
from providers.core.breaker import Permit, Verdict
from providers.core.exchange import CallRequest, Outcome, ProviderExecutionContext, ProviderExecutionResult, Who
from providers.core.gate import Admission, Decision
from providers.core.steps import Settle
from providers.database import admitting, sql
from providers.models import Gate, IdempotencyClaim, ProviderExecutionMetric, ProviderHealthState, QuotaState
from providers.models.calls import ProviderMinute
from tests.processes import LIMIT, database_url, eventually
from tests.providers.scripted_providers import TENANT, WHO, Scripted, context, scripted
from tests.providers.test_many_processes import race

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that settles very many calls."""
    monkeypatch.setattr(rating, "SHOWN_AT_ONCE", 0)


COUNT = 8
DAY = 86400.0


class Caller(threading.Thread):
    """Calls something in a thread with a connection of its own, and keeps what came of it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.outcome: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self._call()
        except BaseException as error:  # noqa: BLE001 (to be looked at)
            self.outcome = error
        finally:
            connections.close_all()


def outcomes(callers: Sequence[Caller]) -> list[Any]:
    for caller in callers:
        caller.join(LIMIT)
        assert not caller.is_alive()
    return [caller.outcome for caller in callers]


@contextmanager
def gates_held() -> Iterator[None]:
    """Nobody settles anything: the first waits for a row, and the others for the first."""
    with transaction.atomic():
        list(Gate.objects.select_for_update())
        yield


def somebody_waits_for_a_lock() -> bool:
    """Whether a statement waits, where the database tells: with SQLite, nobody can see who does."""
    if connection.vendor != "postgresql":
        return True
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])


def settled_together(ends: Sequence[Callable[[], Any]], meanwhile: Callable[[], Any] = lambda: None) -> list[Any]:
    """What comes of calls of which the first is held up until all others wait for it."""
    with gates_held():
        callers = [Caller(ends[0])]
        eventually(lambda: settling.group.is_writing, "the first settles")
        callers += [Caller(end) for end in ends[1:]]
        eventually(lambda: settling.group.waiting == len(ends) - 1, "the others wait")
        meanwhile()
    return outcomes(callers)


def success(who: Who = WHO, **about: Any) -> tuple[CallRequest, Settle]:
    """A success as the rules settle it."""
    ticket = about.pop("ticket", {})
    request = CallRequest(
        who=who, operation="snapshot", key="k", fingerprint="f", policy=ProviderPolicy(), context=context(), **ticket
    )
    step = Settle(1, Admission(Decision.ADMITTED, Permit(0)), 0.1, 1.0, Verdict.SUCCESS, Outcome.SUCCESS)
    return request, step._replace(**about)


def settle_in_time(pair: tuple[CallRequest, Settle]) -> Decision:
    with calls.answered_within(LIMIT):
        return calls.settle(*pair)


def kept() -> int:
    """How many successes are written down; each of them once."""
    rows = ProviderExecutionMetric.objects.filter(outcome="success").values_list("call_id", flat=True)
    assert len(rows) == len(set(rows))
    gate = Gate.objects.get()
    assert gate.settlements == sum(ProviderMinute.objects.values_list("attempts", flat=True)) == len(rows)
    return len(rows)


def test_calls_that_end_at_once_are_settled_in_one_transaction() -> None:
    admitting.make_gate(WHO)
    ends = [partial(settle_in_time, success()) for _ in range(COUNT)]
    assert settled_together(ends) == [Decision.ENDED] * COUNT
    assert kept() == COUNT
    if sql.is_postgresql():
        assert ProviderExecutionMetric.objects.values("created_at").distinct().count() == 2


def test_executions_of_many_threads_leave_what_they_would_one_after_the_other() -> None:
    calls.set_quota(WHO, limit=10**6, window=DAY, by="tests")
    barrier = threading.Barrier(COUNT)
    rounds = 5

    def execute(number: int) -> list[ProviderExecutionResult]:
        provider = Scripted({"rank": number})
        barrier.wait(LIMIT)
        return [provider.ask(idempotency_key=f"order-{number}-{one}") for one in range(rounds)]

    results = [
        one for found in outcomes([Caller(partial(execute, number)) for number in range(COUNT)]) for one in found
    ]
    assert all(result.ok and result.is_kept for result in results)
    assert kept() == COUNT * rounds
    gate = Gate.objects.get()
    assert (gate.used, gate.admissions, gate.consecutive_failures) == (COUNT * rounds, COUNT * rounds, 0)
    board.show_waiting()
    assert QuotaState.objects.get().used_count == COUNT * rounds
    assert set(IdempotencyClaim.objects.values_list("state", flat=True)) == {"succeeded"}
    health = ProviderHealthState.objects.get()
    assert (health.attempts_1h, health.success_rate_1h, health.breaker_state) == (COUNT * rounds, 1.0, "closed")


def test_an_error_of_one_fails_none_of_the_others() -> None:
    admitting.make_gate(WHO)
    pairs = [success(), success(duration=-1.0), *(success() for _ in range(COUNT - 2))]  # which the table refuses
    first, wrong, *others = settled_together([partial(settle_in_time, pair) for pair in pairs])
    assert isinstance(wrong, IntegrityError)
    assert [first, *others] == [Decision.ENDED] * (COUNT - 1)
    assert kept() == COUNT - 1


@pytest.mark.postgresql
def test_a_connection_that_is_lost_under_the_group_loses_none_and_settles_none_twice() -> None:
    """The one that writes for all is cut off from the server, again and again."""
    barrier = threading.Barrier(COUNT + 1)

    def answer(_: ProviderExecutionContext) -> dict[str, Any]:
        barrier.wait(LIMIT)
        return {"rank": 1}

    callers = [Caller(scripted(answer).ask) for _ in range(COUNT)]
    eventually(lambda: barrier.n_waiting == COUNT, "all are called")
    with gates_held():
        barrier.wait(LIMIT)
        eventually(lambda: settling.group.waiting == COUNT - 1, "the others wait")
        for _ in range(2):
            eventually(terminate_those_who_wait, "one is cut off")
    results = outcomes(callers)
    assert [(result.ok, result.is_kept) for result in results] == [(True, True)] * COUNT
    assert kept() == COUNT
    assert calls.waiting() == 0


def terminate_those_who_wait() -> bool:
    waiting = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with psycopg.connect(database_url(), autocommit=True) as other:
        return bool(other.execute(waiting).fetchall())


def test_who_was_settled_by_a_thread_that_was_broken_off_is_not_settled_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal hits the thread that writes for all just after the commit: the others look before they settle."""
    admitting.make_gate(WHO)
    verb = settling.settle_together
    is_broken_off: list[bool] = []

    def break_off(pairs: Sequence[Any]) -> Any:
        found = verb(pairs)
        if len(pairs) > 1 and not is_broken_off:
            is_broken_off.append(True)
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(settling.group, "_write", break_off)  # at a moment that no signal can be made to hit
    found = settled_together([partial(settle_in_time, success()) for _ in range(COUNT)])
    assert sorted(type(one).__name__ for one in found) == ["Decision"] * (COUNT - 1) + ["KeyboardInterrupt"]
    assert kept() == COUNT


def test_a_success_that_could_change_its_gate_is_settled_by_itself() -> None:
    admitting.make_gate(WHO)
    half_open = lambda: Gate.objects.update(state="half_open", generation=1)  # noqa: E731 (short)
    found = settled_together([partial(settle_in_time, success()) for _ in range(3)], half_open)
    assert found == [Decision.ENDED] * 3
    gate = Gate.objects.get()
    assert (gate.state, gate.generation, gate.settlements) == ("half_open", 1, 3)
    assert kept() == 3


def test_what_ends_in_a_transaction_of_the_caller_is_part_of_that_alone() -> None:
    """As in a test case that is one transaction: others' calls are never written in it."""
    admitting.make_gate(WHO)
    with transaction.atomic():
        assert calls.settle(*success()) is Decision.ENDED
        assert settling.group.waiting == 0
        transaction.set_rollback(True)
    assert ProviderExecutionMetric.objects.count() == 0


def test_coroutines_that_end_at_once_are_all_settled() -> None:
    async def ask() -> list[ProviderExecutionResult]:
        provider = Scripted({"rank": 1})
        asked = (
            provider.aexecute(tenant_id=TENANT, operation="snapshot", payload={}, context=context())
            for _ in range(COUNT)
        )
        return await asyncio.gather(*asked)

    assert all(result.ok and result.is_kept for result in async_to_sync(ask)())
    assert kept() == COUNT


def test_a_process_that_is_forked_while_others_settle_settles_its_own() -> None:
    assert race("fork") == [["ended", 0]]


GATES = [WHO._replace(capability=f"capability-{number}") for number in range(3)]
BUDGETS = [RetryBudget(50.0, 0.25), RetryBudget(50.0, 0.5)]  # of one capacity: else their order would count
gate_states = st.fixed_dictionaries(
    {
        "state": st.sampled_from(["closed", "closed", "open", "half_open"]),
        "generation": st.integers(0, 1),
        "consecutive_failures": st.integers(0, 3),
        "retry_tokens": st.sampled_from([None, 0.0, 1.5, 60.0]),
        "quota_limit": st.sampled_from([None, 100]),
    }
)
ends = st.fixed_dictionaries(
    {
        "gate": st.integers(0, 2),
        "generation": st.integers(0, 1),
        "duration": st.sampled_from([0.0, 0.001, 0.1, 0.1001, 3.0]),
        "http_status": st.sampled_from([None, 200]),
        "budget": st.sampled_from([0, 0, 0, 1]),
        "has_key": st.booleans(),
        "window": st.sampled_from([None, "present", "before"]),
    }
)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(gate_states, min_size=3, max_size=3), calls_made=st.lists(ends, min_size=2, max_size=7))
def test_any_group_leaves_what_its_calls_would_one_after_the_other(rows: list[Any], calls_made: list[Any]) -> None:
    begin = float(int(sql.rows(f"SELECT {sql.dialect().clock}", {})[0][0] // DAY * DAY))
    found = []
    for verb in (one_by_one, together):
        for model in (Gate, ProviderHealthState, ProviderMinute, QuotaState, IdempotencyClaim):
            model._default_manager.all().delete()
        earlier = set(ProviderExecutionMetric.objects.values_list("pk", flat=True))
        for who, row in zip(GATES, rows, strict=True):
            limited = row["quota_limit"] is not None
            windows = {"window_start": begin, "window_end": begin + 2 * DAY, "quota_window": DAY, "used": 5}
            windows |= {"previous_start": begin - DAY, "previous_used": 7}
            open_until = begin + 2 * DAY if row["state"] == "open" else None
            Gate.objects.create(**who._asdict(), **row, **(windows if limited else {}), open_until=open_until)
        verb([pair_of(number, call, begin) for number, call in enumerate(calls_made)])
        board.show_waiting()
        found.append(state_of(earlier))
    assert found[0] == found[1]


def one_by_one(pairs: list[tuple[CallRequest, Settle]]) -> None:
    for pair in pairs:
        assert calls.settle(*pair) is Decision.ENDED


def together(pairs: list[tuple[CallRequest, Settle]]) -> None:
    """As the group does: what it leaves is settled alone."""
    for pair, seen in zip(pairs, settling.settle_together(pairs), strict=True):
        if seen is None:
            assert calls.settle(*pair) is Decision.ENDED
        elif sql.is_postgresql():
            board.mark(pair[0].who, pair[1].admission.window_start)


def pair_of(number: int, call: dict[str, Any], begin: float) -> tuple[CallRequest, Settle]:
    window = {"present": begin, "before": begin - DAY}.get(call["window"])
    admission = Admission(Decision.ADMITTED, Permit(call["generation"]), window, 0 if window is None else 1)
    request, step = success(
        GATES[call["gate"]],
        admission=admission,
        duration=call["duration"],
        http_status=call["http_status"],
        payload={"number": number},
        ticket={"call_id": f"call-{number}"},
    )
    request.policy = ProviderPolicy(budget=BUDGETS[call["budget"]])
    request.key = f"key-{number}"
    if call["has_key"]:
        request.token = request.call_id
        calls.claim(request, lease=60.0)
    return request, step


def state_of(earlier: set[int]) -> dict[str, Any]:
    """All that settlements leave, but for times and ids."""
    minutes: dict[str, Any] = {}
    names = dict(Gate.objects.values_list("pk", "capability"))
    for minute in ProviderMinute.objects.order_by("minute"):
        counts = minutes.setdefault(names[minute.gate_id], [0, 0, 0, 0, {}])
        numbers = (minute.attempts, minute.successes, minute.executions, minute.successful_executions)
        counts[:4] = [before + more for before, more in zip(counts, numbers, strict=False)]
        for bucket, count in minute.buckets.items():
            counts[4][bucket] = counts[4].get(bucket, 0) + count
    about = [
        *(
            "capability",
            "operation",
            "idempotency_key",
            "attempt_number",
            "duration_ms",
            "timeout_budget_ms",
            "outcome",
        ),
        *("reason_code", "retryable", "http_status", "retry_suppressed", "call_id", "source"),
    ]
    gates = [
        *("capability", "state", "generation", "consecutive_failures", "settlements", "retry_tokens", "used"),
        *("decision", "turned_from", "held_from", "successes"),
    ]
    health = ("capability", "breaker_state", "consecutive_failures", "last_error_code")
    windows = ("capability", "window_start", "limit_count", "used_count")
    return {
        "minutes": minutes,
        "attempts": sorted(map(str, ProviderExecutionMetric.objects.exclude(pk__in=earlier).values_list(*about))),
        "gates": sorted(map(str, Gate.objects.values_list(*gates))),
        "health": sorted(map(str, ProviderHealthState.objects.values_list(*health))),
        "succeeded": ProviderHealthState.objects.filter(last_success_at__isnull=False).count(),
        "quotas": sorted(map(str, QuotaState.objects.values_list(*windows))),
        "claims": sorted(
            (key, state, json.dumps(answer))
            for key, state, answer in IdempotencyClaim.objects.values_list("key", "state", "answer")
        ),
    }
