"""Where very many calls are settled, the visible tables tell failures at once and successes within a second."""

import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection

from ergon_site.access.database.clock import database_time
from providers import calls
from providers.calls import rating
from providers.calls.rating import Board, board
from providers.database import admitting
from providers.models import Gate, ProviderHealthState, QuotaState
from providers.reads import health as standings
from tests.processes import database_url, eventually, run_module
from tests.providers.scripted_providers import TENANT, WHO, scripted
from tests.providers.test_group_settling import Caller, gates_held, outcomes, somebody_waits_for_a_lock, success
from tests.providers.test_many_processes import MODULE

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that settles very many calls."""
    monkeypatch.setattr(rating, "SHOWN_AT_ONCE", 0)


def is_shown(attempts: int = 1) -> bool:
    rows = ProviderHealthState.objects.filter(attempts_1h=attempts, success_rate_1h=1.0, last_success_at__isnull=False)
    return rows.exists()


def test_a_success_is_shown_by_itself() -> None:
    calls.set_quota(WHO, limit=10, window=86400.0, by="tests")
    for _ in range(3):
        assert scripted({"rank": 1}).ask().ok
    eventually(lambda: is_shown(3), "health is shown")
    health = ProviderHealthState.objects.get()
    assert (health.breaker_state, health.consecutive_failures, health.last_error_code) == ("closed", 0, None)
    assert QuotaState.objects.get().used_count == 3


def test_whoever_reads_knows_a_success_before_it_is_shown() -> None:
    assert scripted({"rank": 1}).ask().ok
    board.forget()
    [seen] = standings.of_tenant(TENANT)
    assert (seen.who, seen.rates.attempts, seen.rates.success) == (WHO, 1, 1.0)
    assert seen.last_success_at is not None
    assert abs(seen.last_success_at - database_time()) < HOUR


def test_a_failure_is_shown_at_once() -> None:
    assert scripted({"rank": 1}).ask().ok
    scripted(TimeoutError()).ask()
    board.forget()
    health = ProviderHealthState.objects.get()
    assert (health.last_error_code, health.consecutive_failures) == ("timeout", 3)
    scripted(TimeoutError()).ask()
    assert ProviderHealthState.objects.get().breaker_state == "open"


def test_a_success_is_shown_after_the_failure_before_it() -> None:
    scripted(TimeoutError()).ask()
    assert scripted({"rank": 1}).ask().ok
    board.show_waiting()
    health = ProviderHealthState.objects.get()
    assert (health.last_error_code, health.consecutive_failures, health.success_rate_1h) == ("timeout", 0, 0.25)


def test_a_process_that_ends_shows_its_last_calls() -> None:
    ended = run_module(MODULE, "leave", "exit")
    assert ended.returncode == 0, ended.stderr
    assert is_shown()


@pytest.mark.postgresql
def test_what_a_process_has_not_shown_when_it_dies_is_shown_by_maintain() -> None:
    assert run_module(MODULE, "leave", "die").returncode != 0
    assert Gate.objects.get().settlements == 1
    assert not ProviderHealthState.objects.exists()
    assert calls.rollup() == 1
    assert is_shown()
    ProviderHealthState.objects.update(rated_at=database_time().timestamp() + 60)
    assert calls.rollup() == 0


@pytest.mark.postgresql
def test_what_a_database_that_is_away_cannot_take_is_shown_later(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scripted({"rank": 1}).ask().ok
    show, is_away = rating.show, threading.Event()

    def fail(_: Any) -> None:
        is_away.set()
        raise OperationalError

    monkeypatch.setattr(rating, "show", fail)  # for less than the second after which the thread shows it
    board.show_waiting()
    assert is_away.is_set()
    assert not ProviderHealthState.objects.exists()
    monkeypatch.setattr(rating, "show", show)
    eventually(is_shown, "health is shown")


@pytest.mark.postgresql
def test_a_connection_that_was_lost_is_made_anew() -> None:
    assert scripted({"rank": 1}).ask().ok
    eventually(is_shown, "health is shown")
    with psycopg.connect(database_url(), autocommit=True) as other:
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid NOT IN (pg_backend_pid(), %s)"
        other.execute(f"{others} AND datname = current_database()", [connection.connection.info.backend_pid])
    assert scripted({"rank": 1}).ask().ok
    eventually(lambda: is_shown(2), "health is shown")


def test_a_clock_that_is_set_back_shows_the_newest_success() -> None:
    """Not the latest by the clock: that was before the clock was set."""
    assert scripted({"rank": 1}).ask().ok
    board.show_waiting()
    ahead = database_time() + HOUR
    Gate.objects.update(decided_at=ahead.timestamp(), succeeded_at=ahead.timestamp())
    ProviderHealthState.objects.update(last_success_at=ahead, rated_at=ahead.timestamp(), updated_at=ahead)
    assert scripted({"rank": 1}).ask().ok
    board.show_waiting()
    health = ProviderHealthState.objects.get()
    assert health.last_success_at is not None
    assert health.last_success_at < ahead - HOUR / 2
    assert health.attempts_1h == 2


@pytest.mark.postgresql
def test_what_is_shown_never_overwrites_a_later_settlement() -> None:
    """It waits for its gate, and then tells what the gate has become."""
    assert scripted({"rank": 1}).ask().ok
    with gates_held():
        showing = Caller(board.show_waiting)
        eventually(somebody_waits_for_a_lock, "it has begun")
        Gate.objects.update(state="open", open_until=database_time().timestamp() + 60, consecutive_failures=5)
        ProviderHealthState.objects.update(breaker_state="open", consecutive_failures=5)
    assert outcomes([showing]) == [None]
    health = ProviderHealthState.objects.get()
    assert (health.breaker_state, health.consecutive_failures) == ("open", 5)


@pytest.mark.postgresql
def test_of_two_processes_the_one_that_has_seen_less_keeps_its_rates() -> None:
    admitting.make_gate(WHO)
    calls.settle(*success())
    ProviderHealthState.objects.create(**WHO._asdict(), attempts_1h=7, rated_settlement=7)
    board.show_waiting()
    assert ProviderHealthState.objects.get().attempts_1h == 7


def test_of_the_windows_of_waiting_calls_the_earliest_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(rating, "show", shown.append)  # no gate changes its window so often in the time of a test
    mine = Board()
    for start in (None, 120.0, 60.0, None, 180.0):
        mine.mark(WHO, start)
    mine.show_waiting()
    mine.release_connection()
    assert shown == [{WHO: 60.0}]


def test_a_process_that_settles_few_calls_shows_each_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert scripted({"rank": 1}).ask().ok
    board.forget()
    assert is_shown()


def test_a_process_is_calm_until_it_has_settled_many_within_a_second_and_again_after_a_calm_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rating, "SHOWN_AT_ONCE", 2)
    times = iter([5.0, 5.2, 5.9, 6.0, 7.5, 7.6])
    monkeypatch.setattr(rating, "time", SimpleNamespace(monotonic=lambda: next(times)))
    mine = Board()
    assert [mine.is_calm() for _ in range(6)] == [True, True, False, False, True, True]
