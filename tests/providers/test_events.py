"""Events: each change is a row, written with it and once; callables are told of it after the commit."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from structlog.testing import capture_logs

from ergon_site.access.database.clock import database_time
from providers import (
    BreakerPolicy,
    EventKind,
    ProviderEventNotice,
    ProviderRateLimitError,
    ProviderUsageError,
    QuotaState,
    RetryPolicy,
    calls,
    on_event,
)
from providers.core.exchange import Who
from providers.core.gate import moment
from providers.database import events
from providers.models import Gate, ProviderEvent
from providers.reads import lists
from tests import database
from tests.api.api_clients import problem
from tests.processes import ROOT, eventually
from tests.providers.scripted_providers import TENANT, WHO, Scripted, scripted
from tests.providers.test_many_processes import RACERS, race
from tests.providers.test_summary_api import OTHER, client_of

pytestmark = pytest.mark.django_db(transaction=True)

EVENTS = "/api/v1/provider-events"
POLICY = BreakerPolicy(failure_threshold=2, open_cooldown_seconds=3600, success_threshold=2)
ONCE = RetryPolicy(max_attempts=1)
Row = tuple[str, str, str, str, int, str]


def written(**about: Any) -> list[Row]:
    columns = ("kind", "from_state", "to_state", "why", "generation", "by")
    return list(ProviderEvent.objects.filter(**about).order_by("id").values_list(*columns))


def asked(*script: Any) -> Scripted:
    return scripted(*script, breaker_policy=POLICY, retry_policy=ONCE)


def is_close(one: datetime | None, seconds: float | None) -> bool:
    """Whether a time is one of the gate; each database rounds fractions as it likes."""
    return one is not None and seconds is not None and abs(one.timestamp() - seconds) < 1e-3


def cool_down() -> None:
    Gate.objects.update(open_until=1.0)


@pytest.fixture
def told() -> Iterator[list[ProviderEventNotice]]:
    """What a listener is told."""
    heard: list[ProviderEventNotice] = []
    listener = on_event(heard.append)
    yield heard
    events.forget(listener)


def test_every_change_of_a_breaker_is_an_event(told: list[ProviderEventNotice]) -> None:
    provider = asked(TimeoutError(), TimeoutError(), ConnectionError(), {})
    for _ in range(3):
        provider.ask()  # the third is refused
    trip = ProviderEvent.objects.get()
    assert is_close(trip.until, Gate.objects.get().open_until)
    assert abs(trip.at - database_time()) < timedelta(minutes=5)
    assert trip.who == WHO
    for _ in range(3):
        cool_down()
        provider.ask()
    assert written() == [
        ("breaker", "closed", "open", "timeout", 1, ""),
        ("breaker", "open", "half_open", "the cooldown is over", 2, ""),
        ("breaker", "half_open", "open", "connection_error", 3, ""),
        ("breaker", "open", "half_open", "the cooldown is over", 4, ""),
        ("breaker", "half_open", "closed", "2 probes succeeded", 5, ""),
    ]
    same = [(one.kind.value, one.from_state, one.to_state, one.why, one.generation, one.by) for one in told]
    assert same == written()


def test_a_success_under_an_override_closes_a_half_open_breaker_and_is_an_event() -> None:
    """The one success that changes a state without being a probe."""
    asked(TimeoutError()).ask()
    Gate.objects.update(state="half_open", successes=1)
    calls.force_closed(WHO, by="ada", reason="we know better")
    asked({}).ask()
    assert written(kind="breaker") == [("breaker", "half_open", "closed", "2 probes succeeded", 1, "")]
    assert Gate.objects.get().state == "closed"


def test_usual_calls_write_no_events(told: list[ProviderEventNotice]) -> None:
    calls.set_quota(WHO, limit=10, window=86_400, by="ada")
    provider = asked(TimeoutError(), {})
    for _ in range(3):
        provider.ask(idempotency_key="order-1")
    assert [row[0] for row in written()] == ["quota"]
    assert [one.kind for one in told] == [EventKind.QUOTA]


def limited(seconds: float, first: Callable[[], Any] = dict) -> Scripted:
    """A provider that asks for a pause, after something else has happened."""

    def answer(_: Any) -> dict[str, Any]:
        first()
        raise ProviderRateLimitError(retry_after=seconds, http_status=429)

    return asked(answer)


def test_a_pause_is_an_event_when_it_begins_and_when_it_grows() -> None:
    # Each is let through before the one inside it asks for its pause.
    limited(120, limited(30, limited(60).ask).ask).ask()
    assert written() == [
        ("pause", "none", "paused", "rate_limited", 0, ""),
        ("pause", "paused", "paused", "rate_limited", 0, ""),
    ]
    assert is_close(ProviderEvent.objects.latest("id").until, Gate.objects.get().cooldown_until)
    Gate.objects.update(cooldown_until=1.0)
    limited(5).ask()
    assert [row[1] for row in written()] == ["none", "paused", "none"]


def test_a_failure_can_open_the_breaker_and_ask_for_a_pause(told: list[ProviderEventNotice]) -> None:
    provider = scripted(
        ProviderRateLimitError(retry_after=60),
        breaker_policy=BreakerPolicy(failure_threshold=1),
        retry_policy=ONCE,
        count_rate_limited=True,
    )
    provider.ask()
    assert sorted(row[:3] for row in written()) == [("breaker", "closed", "open"), ("pause", "none", "paused")]
    gate = Gate.objects.get()
    opened, paused = told
    assert (opened.kind, is_close(opened.until, gate.open_until)) == (EventKind.BREAKER, True)
    assert (paused.kind, is_close(paused.until, gate.cooldown_until)) == (EventKind.PAUSE, True)


def test_the_first_refusal_of_a_window_is_an_event_and_no_other() -> None:
    calls.set_quota(WHO, limit=1, window=86_400, by="ada")
    provider = asked({})
    for _ in range(4):
        provider.ask()
    with pytest.raises(Exception, match="spent"):
        QuotaState.reserve(tenant_id=TENANT, provider_name="rank", capability="rank_snapshot")
    spent = ("exhaustion", "available", "exhausted", "the quota is used up", 0, "")
    assert written(kind="exhaustion") == [spent]
    assert is_close(ProviderEvent.objects.get(kind="exhaustion").until, Gate.objects.get().window_end)
    calls.set_quota(WHO, limit=2, window=86_400, by="ada")
    for _ in range(3):
        provider.ask()
    assert written(kind="exhaustion") == [spent] * 2


def test_each_window_that_is_used_up_is_an_event() -> None:
    calls.set_quota(WHO, limit=0, window=1.0, by="ada")
    provider = asked({})

    def windows() -> list[Any]:
        provider.ask()
        return list(ProviderEvent.objects.filter(kind="exhaustion").values_list("until", flat=True))

    eventually(lambda: len(windows()) >= 3, "three windows are used up")
    found = windows()
    assert len(found) == len(set(found))


def test_quotas_that_change_are_events() -> None:
    calls.set_quota(WHO, limit=10, window=60, by="ada", reason="a contract")
    calls.set_quota(WHO, limit=10, window=60, by="ada", reason="the same")
    calls.set_quota(WHO, limit=20, window=3600, by="bob")
    calls.drop_quota(WHO, by="ada", reason="a better one")
    assert written() == [
        ("quota", "none", "10 in 60 s", "a contract", 0, "ada"),
        ("quota", "10 in 60 s", "20 in 3600 s", "", 0, "bob"),
        ("quota", "20 in 3600 s", "none", "a better one", 0, "ada"),
    ]


def test_overrides_are_events_with_who_and_why() -> None:
    gate = calls.force_open(WHO, by="ada", reason="they move")
    calls.force_closed(WHO, by="bob", reason="w" * 2000, lasting=None)
    calls.reset(WHO, by="ada", reason="over")
    assert written() == [
        ("override", "none", "open", "they move", 0, "ada"),
        ("override", "open", "closed", "w" * 1000, 0, "bob"),
        ("override", "closed", "none", "over", 1, "ada"),
        ("breaker", "closed", "closed", "over", 1, "ada"),
    ]
    first, second, *_ = ProviderEvent.objects.order_by("id")
    assert (is_close(first.until, gate.override_until), second.until) == (True, None)


def test_a_reset_ends_all_that_holds() -> None:
    asked(TimeoutError()).ask()
    limited(60).ask()
    asked(TimeoutError()).ask()  # paused
    Gate.objects.update(state="open", open_until=9e9)
    calls.reset(WHO, by="ada", reason="they are back")
    assert written()[1:] == [
        ("pause", "paused", "none", "they are back", 1, "ada"),
        ("breaker", "open", "closed", "they are back", 1, "ada"),
    ]


def test_an_override_that_expires_is_an_event_of_the_time_when_it_ended() -> None:
    calls.force_open(WHO, by="ada", reason="a moment")
    Gate.objects.update(override_until=1_700_000_000.0)
    for _ in range(2):
        calls.rollup()
    expired = ("override", "open", "none", "its time is over", 0, "")
    assert written() == [("override", "none", "open", "a moment", 0, "ada"), expired]
    assert ProviderEvent.objects.latest("id").at == moment(1_700_000_000.0)
    assert Gate.objects.get().override == ""


@pytest.mark.parametrize(
    ("verb", "rows"),
    [
        (calls.force_closed, [("override", "none", "closed", "next", 0, "bob")]),
        (calls.reset, [("breaker", "closed", "closed", "next", 1, "bob")]),
    ],
)
def test_what_replaces_an_expired_override_says_so_first(verb: Callable[..., Any], rows: list[Row]) -> None:
    calls.force_open(WHO, by="ada", reason="a moment")
    Gate.objects.update(override_until=1.0)
    verb(WHO, by="bob", reason="next")
    assert written()[1:] == [("override", "open", "none", "its time is over", 0, ""), *rows]


def test_processes_that_fail_at_once_open_the_breaker_once() -> None:
    rounds = 5
    made = race("fail", RACERS, rounds)
    assert made == [rounds] * RACERS
    turned = [row for row in written() if row[1] == "closed"]
    assert turned == [("breaker", "closed", "open", "timeout", 1 + 2 * number, "") for number in range(rounds)]
    assert [row[1:3] for row in written(by="ada")] == [("open", "closed")] * rounds


def test_processes_that_race_for_a_quota_exhaust_it_once() -> None:
    calls.set_quota(WHO, limit=20, window=86_400, by="ada")
    race("admit", RACERS, 1.0, 1, 1)
    assert len(written(kind="exhaustion")) == 1


def test_processes_that_race_for_a_probe_half_open_the_breaker_once() -> None:
    scripted(TimeoutError(), retry_policy=ONCE, breaker_policy=BreakerPolicy(1, 0.5)).ask()
    race("admit", RACERS, 1.0, 0, 3)
    assert [row[1:3] for row in written()] == [("closed", "open"), ("open", "half_open")]


def test_events_are_written_once_and_removed_only_when_they_are_old() -> None:
    calls.force_open(WHO, by="ada", reason="they move")
    rows = ProviderEvent.objects.all()
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        rows.update(why="it was not me")
    with pytest.raises(DatabaseError, match="not old enough"), transaction.atomic():
        rows.delete()
    assert calls.prune(older_than=timedelta(days=1)).events == 0
    assert calls.prune(older_than=timedelta(seconds=-120)).events == 1
    assert not rows.exists()


@pytest.mark.postgresql
def test_rows_that_are_pruned_are_held_for_seconds_at_most() -> None:
    calls.force_open(WHO, by="ada", reason="they move")
    with database.idle_limits("DELETE FROM") as limits:
        calls.prune(older_than=timedelta(seconds=-120))
    assert set(limits) == {"5s"}


def test_attempts_are_still_kept_by_a_rule_of_their_own() -> None:
    asked({}).ask()
    assert calls.prune(older_than=timedelta(days=1)).metrics == 0
    assert calls.prune(older_than=timedelta(seconds=-120)).metrics == 1


def test_callables_are_told_after_the_commit() -> None:
    seen: list[tuple[bool, int]] = []

    def listener(event: ProviderEventNotice) -> None:
        seen.append((connection.in_atomic_block, ProviderEvent.objects.filter(to_state=event.to_state).count()))

    on_event(listener)
    try:
        with transaction.atomic():
            calls.force_open(WHO, by="ada", reason="they move")
            assert seen == []
        assert seen == [(False, 1)]
        with transaction.atomic():
            calls.force_closed(WHO, by="ada", reason="they move")
            transaction.set_rollback(True)
        assert seen == [(False, 1)]
    finally:
        events.forget(listener)


def test_an_error_in_a_callable_hurts_nobody(told: list[ProviderEventNotice]) -> None:
    def broken(event: ProviderEventNotice) -> None:
        msg = f"no {event.kind} for password=hunter2"
        raise RuntimeError(msg)

    on_event(broken)
    try:
        with capture_logs() as lines:
            result = scripted(TimeoutError(), {}, breaker_policy=BreakerPolicy(1, 0.0)).ask()
    finally:
        events.forget(broken)
    assert result.ok
    assert [one.to_state for one in told] == ["open", "half_open", "closed"]
    failed = [line for line in lines if line["event"] == "event listener failed"]
    assert [(line["kind"], line["error_type"]) for line in failed] == [("breaker", "RuntimeError")] * 3
    assert "hunter2" not in str(failed)


@pytest.mark.postgresql
def test_a_slow_callable_takes_nothing_of_the_databases_time() -> None:
    """Settling has no longer than the call; were that over, the outcome would be kept in the journal."""

    def outcome(limit: float) -> tuple[str | None, bool, int]:
        def slow(_: ProviderEventNotice) -> None:
            time.sleep(1.5 * limit)

        about = {"provider_name": f"rank {limit}", "breaker_policy": BreakerPolicy(1), "retry_policy": ONCE}
        on_event(slow)
        try:
            result = scripted(TimeoutError(), **about).ask(deadline=time.monotonic() + limit)
        finally:
            events.forget(slow)
        return result.reason_code, result.is_kept, calls.waiting()

    expected = ("timeout", True, 0)
    for limit in (1.0, 10.0):  # the second for a machine that stood still
        found = outcome(limit)
        if found == expected:
            break
    assert found == expected


async def later(event: ProviderEventNotice) -> None:
    """A coroutine function."""


@pytest.mark.parametrize("wrong", ["text", None, isinstance, lambda: None, later], ids=range(5))
def test_what_cannot_take_an_event_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ProviderUsageError, match="cannot be told of events"):
        on_event(wrong)


def test_a_callable_is_told_once_however_often_it_is_registered(told: list[ProviderEventNotice]) -> None:
    on_event(told.append)
    calls.force_open(WHO, by="ada", reason="they move")
    assert len(told) == 1


def test_the_callable_of_the_page_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "reference" / "providers.md").read_text()
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(next(block for block in blocks if "page_somebody" in block), names)  # noqa: S102 (our own page)
    try:
        for _ in range(2):
            asked(TimeoutError()).ask()
    finally:
        events.forget(names["page_somebody"])
    assert "rank rank_snapshot is open until 20" in capsys.readouterr().out


@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("words", "index"),
    [
        ({"tenant": "t7", "provider": "rank", "capability": "c1"}, "provider_event_capability"),
        ({"tenant": "t7"}, "provider_event_tenant"),
        ({}, "provider_events_pkey"),
    ],
)
def test_lists_of_events_are_read_in_the_order_of_an_index(words: dict[str, str], index: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("""
INSERT INTO provider_events (tenant_id, provider_name, capability, kind, from_state, to_state, generation)
SELECT 't' || n % 100, 'rank', 'c' || n / 100 % 2, 'breaker', 'closed', 'open', n FROM generate_series(1, 20000) n""")
        cursor.execute("ANALYZE provider_events")
    plan = lists.events(words).all()[:10].explain()
    assert index in plan
    assert "Sort" not in plan


def test_events_over_the_api() -> None:
    calls.force_open(WHO, by="ada", reason="they move")
    calls.set_quota(WHO._replace(capability="other"), limit=1, window=60, by="ada")
    calls.force_open(Who(OTHER, "rank", "rank_snapshot"), by="ada", reason="theirs")
    api = client_of(TENANT)
    found = api.get(EVENTS).json()
    assert set(found) == {"results", "next", "previous"}
    assert [one["kind"] for one in found["results"]] == ["quota", "override"]
    assert list(found["results"][1]) == [
        *("id", "tenant_id", "provider_name", "capability", "kind", "from_state", "to_state", "why", "generation"),
        *("at", "until", "by"),
    ]
    for words, count in {
        "kind=override": 1,
        "kind=pause": 0,
        "provider=rank&capability=other": 1,
        "after=2020-01-01T00:00:00Z": 2,
        "before=2020-01-01T00:00:00%2B02:00": 0,
        f"tenant_id={TENANT}": 2,
    }.items():
        assert len(api.get(f"{EVENTS}?{words}").json()["results"]) == count, words
    first = api.get(EVENTS, {"limit": 1}).json()
    assert [one["kind"] for one in api.get(first["next"]).json()["results"]] == ["override"]
    assert len(client_of(scopes=("providers:read", "platform"), name="all").get(EVENTS).json()["results"]) == 3
    problem(api.get(EVENTS, {"tenant_id": OTHER}), 403, "permission_denied")
    problem(client_of(TENANT, scopes=("providers:operate",), name="none").get(EVENTS), 403, "permission_denied")


@pytest.mark.parametrize("words", ["kind=odd", "after=yesterday", "provider=", "tenant_id=x", "capability=%00"])
def test_odd_filters_of_events_are_refused(words: str) -> None:
    problem(Client.get(client_of(TENANT), f"{EVENTS}?{words}"), 400, "invalid_request")
