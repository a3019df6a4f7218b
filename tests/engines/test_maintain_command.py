"""`manage.py maintain`: the chores are done by one process, whatever becomes of the others."""

import json
import signal
import threading
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.utils import timezone

from engines import schedules, workers
from engines.models import Leadership, Schedule, TransactionRecord
from engines.worker import maintenance
from engines.worker.maintenance import Chore, Maintenance
from engines.workers import MAINTENANCE
from tests.commands import next_event, run, running
from tests.database import NO_SPACE, refusing
from tests.factories import make_pipeline
from tests.faults.test_wrong_statements import renamed
from tests.processes import LIMIT, eventually, free_port, manage

BARRIER = """
import sys
from django.core.management import call_command
print("ready", flush=True)
sys.stdin.readline()
call_command("maintain", "--once", "--json")
"""


def overdue() -> None:
    """A schedule whose time has come."""
    make_pipeline()
    schedules.create("nightly", schedules.Plan(pipeline="orders", cron="0 2 * * *"), by="tests")
    Schedule.objects.update(next_run_at=timezone.now() - timedelta(seconds=5))


class Told:
    """Keeps what is told, and reacts to it."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.react: Any = lambda _event: None

    def __call__(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))
        self.react(event)

    def names(self) -> list[str]:
        return [event for event, _ in self.events]


@pytest.mark.django_db(transaction=True)
def test_one_round_does_every_chore_and_lets_go() -> None:
    overdue()
    events = [json.loads(line) for line in run("maintain", "--once", "--json").splitlines()]
    assert events[0]["event"] == "leading"
    counts = {event["chore"]: event["count"] for event in events[1:]}
    assert counts["scheduled"] == 1
    assert set(counts) == {chore.name for chore in maintenance.all_chores(30)}
    assert TransactionRecord.objects.count() == 1
    assert workers.leader(MAINTENANCE) is None


@pytest.mark.django_db
def test_one_round_is_left_to_whoever_leads() -> None:
    overdue()
    assert workers.lead(MAINTENANCE, "elsewhere:1:ab")
    assert run("maintain", "--once").endswith("standing by: elsewhere:1:ab leads\n")
    assert not TransactionRecord.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_schedule_is_fired_once_by_three_who_fire_at_once() -> None:
    overdue()
    with ExitStack() as stack:
        three = [stack.enter_context(running("shell", "-v0", "-c", BARRIER)) for _ in range(3)]
        for process in three:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        for process in three:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        errors = [process.communicate(timeout=60)[1] for process in three]
    assert [process.returncode for process in three] == [0, 0, 0], errors
    assert TransactionRecord.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_when_the_leader_is_killed_another_takes_over_and_ends_in_order() -> None:
    make_pipeline()
    for lease in ("6", "60"):  # the second for a machine that stood still
        stood_by = take_over_from_a_killed_leader(lease)
        if stood_by:
            break
    assert stood_by
    assert workers.leader(MAINTENANCE) is None


def take_over_from_a_killed_leader(lease: str) -> bool:
    """Whether the other had stood by until then; one that finds the leader's term over leads at once."""
    with running("maintain", "--json", ERGON_LEASE_SECONDS=lease) as first:
        leading = next_event(first, "leading")
        with running("maintain", "--json", ERGON_LEASE_SECONDS=lease) as second:
            if next_event(second, "leading", "standing_by").get("leader") != leading["holder"]:
                return False
            first.send_signal(signal.SIGKILL)
            holder = next_event(second, "leading")["holder"]
            eventually(lambda: workers.leader(MAINTENANCE) == holder, "it leads")
            overdue_now()
            assert next_event(second, "done")["chore"] == "scheduled"
            second.send_signal(signal.SIGTERM)
            assert next_event(second, "stopped")
            assert second.wait(LIMIT) == 0
    return True


def overdue_now() -> None:
    schedules.create("late", schedules.Plan(pipeline="orders", cron="0 2 * * *"), by="tests")
    Schedule.objects.filter(name="late").update(next_run_at=timezone.now())


@pytest.mark.django_db(transaction=True)
def test_a_chore_that_fails_does_not_stop_the_others_and_is_told_once() -> None:
    told = Told()
    done: list[int] = []

    def fail() -> int:
        msg = "the cupboard is bare\nrow: secret"
        raise ValueError(msg)

    def succeed() -> int:
        done.append(1)
        if len(done) == 5:
            leader.stop()
        return 1

    leader = Maintenance(told, chores=[Chore("bad", 0.01, fail), Chore("good", 0.01, succeed)])
    leader.run()
    assert len(done) == 5
    failures = [fields for event, fields in told.events if event == "failed"]
    assert failures == [{"chore": "bad", "error": "ValueError: the cupboard is bare"}]
    assert told.names()[-1] == "stopped"


@pytest.mark.django_db(transaction=True)
def test_one_round_with_a_failing_chore_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "all_chores", lambda _lease: [Chore("bad", 1.0, lambda: 1 // 0)])
    with pytest.raises(SystemExit) as ended:
        call_command("maintain", "--once")
    assert ended.value.code == 1


@pytest.mark.django_db(transaction=True)
def test_a_long_chore_does_not_make_the_others_late() -> None:
    told, begun, punctual = Told(), threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        assert punctual.wait(20)
        leader.stop()
        return 1

    def quick() -> int:
        if begun.is_set():
            punctual.set()
        return 0

    leader = Maintenance(told, chores=[Chore("slow", 600.0, slow), Chore("quick", 0.01, quick)])
    leader.run()
    assert ("done", "slow") in [(event, fields.get("chore")) for event, fields in told.events]


@pytest.mark.django_db(transaction=True)
def test_a_lost_database_is_waited_for_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told, name = Told(), connection.settings_dict["NAME"]
    calls: list[int] = []

    def lose_it() -> int:
        calls.append(1)
        if len(calls) == 1:
            monkeypatch.setitem(connection.settings_dict, "NAME", "/nowhere/at/all")
            connection.close()
            Leadership.objects.count()
        leader.stop()
        return 1

    def find_it_again() -> None:
        monkeypatch.setitem(connection.settings_dict, "NAME", name)

    def react(event: str) -> None:
        if event == "database_lost":
            threading.Timer(0.6, find_it_again).start()

    told.react = react
    leader = Maintenance(told, chores=[Chore("lost", 0.01, lose_it)])
    leader.run()
    assert told.names() == ["leading", "database_lost", "database_back", "leading", "done", "stopped"]


@pytest.mark.django_db(transaction=True)
def test_a_round_without_a_database_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_it() -> int:
        monkeypatch.setitem(connection.settings_dict, "NAME", "/nowhere/at/all")
        msg = "gone"
        raise OperationalError(msg)

    monkeypatch.setattr(maintenance, "all_chores", lambda _lease: [Chore("lost", 1.0, lose_it)])
    with pytest.raises(CommandError, match="the database does not answer or refuses: gone") as refusal:
        call_command("maintain", "--once")
    assert refusal.value.returncode == 69


@pytest.mark.django_db(transaction=True)
def test_a_round_in_a_database_that_takes_no_changes_says_so() -> None:
    assert workers.lead(MAINTENANCE, "elsewhere:1:ab")
    workers.resign(MAINTENANCE, "elsewhere:1:ab")
    with refusing("engines_leadership", "UPDATE"):
        ended = manage("maintain", "--once")
    assert (ended.returncode, "standing by" in ended.stdout) == (69, False), ended.stderr
    assert f"refuses: {NO_SPACE}" in ended.stderr


@pytest.mark.django_db(transaction=True)
def test_a_round_that_cannot_ask_who_leads_ends_with_1() -> None:
    with renamed("engines_leadership"):
        ended = manage("maintain", "--once")
    assert (ended.returncode, "standing by" in ended.stdout) == (1, False), ended.stderr


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_whoever_does_the_chores_serves_its_metrics() -> None:
    port = free_port()
    with running("maintain", "--json", "--metrics-port", str(port)) as process:
        next_event(process, "leading")
        assert "python_info" in httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT).text
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
