"""What keeps a worker's leases while it lives, and gives them back when it has died: nothing stops either."""

import io
import json
import sys
import threading
import time
from collections import deque
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from django.core.management.base import OutputWrapper
from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction
from psycopg.errors import DeadlockDetected

from engines import transactions, workers
from engines.connectors.database import DatabaseConnector
from engines.core import histogram
from engines.core.outcome import Later, Success
from engines.core.pacing import GLANCE
from engines.models import Durations, Throughput, Worker
from engines.transactions import LeasedTransaction, Settlement
from engines.transactions.statements import statements
from engines.transactions.statements.postgresql import BURST, CHANNEL
from engines.worker.database_retry import Portion
from engines.worker.heartbeat import Heartbeat
from engines.worker.notifier import Notifier
from engines.worker.poller import Poller
from engines.worker.progress import COUNTED
from engines.worker.supervisor import Supervisor
from tests.database import refusing
from tests.durable_transactions import claim, count, failed, states, submit
from tests.engines.test_database_connector import wait_for
from tests.factories import make_pipeline
from tests.processes import LIMIT
from tests.proxy import proxy

pytestmark = pytest.mark.django_db(transaction=True)

RUNNING = 1


@pytest.mark.parametrize("error", [ValueError("a fault in an errand"), IntegrityError("a fault in an errand")])
def test_a_heart_beats_on_whatever_fails_and_says_so_once(error: Exception) -> None:
    beats: list[int] = []

    def fail() -> None:
        raise error

    with structlog.testing.capture_logs() as logs, Heartbeat(["orders"]) as heartbeat:
        heartbeat.at_every_beat(fail)
        heartbeat.at_every_beat(lambda: beats.append(1))
        before = Worker.objects.get().heartbeat_at
        wait_for(lambda: len(beats) >= 4)
        wait_for(lambda: Worker.objects.get().heartbeat_at > before)
    said = [log for log in logs if log["event"] == "heartbeat_failed"]
    assert [(log["to"], log["error"]) for log in said] == [("fail", "a fault in an errand")]


def test_a_worker_whose_row_is_lost_is_enrolled_again_and_what_it_does_is_counted() -> None:
    """As after a replica that lacked the row was promoted."""
    pipeline = make_pipeline()
    with Heartbeat([pipeline.name]) as heartbeat:
        before = Worker.objects.get()
        heartbeat.worker.heartbeat_at -= timedelta(hours=1)
        Worker.objects.all().delete()
        heartbeat.tally(pipeline.pk, is_success=True)
        heartbeat._write_tally()
        heartbeat._renew()
        after = Worker.objects.get()
        assert (after.pk, after.state, after.pipelines) == (before.pk, before.state, before.pipelines)
        wait_for(lambda: Throughput.objects.filter(pipeline_id=pipeline.pk, succeeded=1).exists())


def test_durations_that_the_database_refuses_are_counted_later() -> None:
    pipeline = make_pipeline()
    heartbeat: Any = Heartbeat([pipeline.name])
    heartbeat.completer = SimpleNamespace(durations=deque([(pipeline.pk, 0.1), (pipeline.pk, 0.2)]))
    with refusing("engines_durations"), pytest.raises(DatabaseError):
        heartbeat._count_durations()
    for _ in range(2):  # the second time there are none
        heartbeat._count_durations()
    mine = Durations.objects.filter(pipeline_id=pipeline.pk)
    assert sum(sum(row) for row in mine.values_list(*histogram.COLUMNS)) == 2


def test_a_renewal_that_loses_a_conflict_is_repeated_for_every_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline()
    submit(pipeline, 2)
    leased, renew = claim(pipeline), statements().renew
    lost: list[Any] = []

    def lose_once(*given: Any) -> set[int]:
        if not lost:
            lost.append(given)
            msg = "deadlock detected"
            raise OperationalError(msg) from DeadlockDetected()
        renewed: set[int] = renew(*given)
        return renewed

    with Heartbeat([pipeline.name]) as heartbeat:
        monkeypatch.setattr(statements(), "renew", lose_once)
        heartbeat.hold(leased)
        wait_for(lambda: bool(lost) and heartbeat.confirm(leased[0].lease))
        heartbeat._renew()
        assert [one.lease.is_lost for one in leased] == [False, False]


def test_a_lease_whose_confirmation_came_too_late_to_be_trusted_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = make_pipeline()
    submit(pipeline, 1)
    [leased], renew = claim(pipeline), statements().renew
    is_slow = threading.Event()

    def answer_late_once(*given: Any) -> set[int]:
        renewed: set[int] = renew(*given)
        if threading.current_thread() is threading.main_thread() and not is_slow.is_set():
            is_slow.set()
            time.sleep(leased.lease.seconds)
        return renewed

    with Heartbeat([pipeline.name]) as heartbeat:
        monkeypatch.setattr(statements(), "renew", answer_late_once)
        leased.lease.seconds, leased.lease.confirmed_at = 0.5, None
        heartbeat.hold([leased])
        assert DatabaseConnector(pipeline, heartbeat).begin(leased)
    assert is_slow.is_set()
    # Of one that is not held any more nobody asks.
    leased.lease.confirmed_at = None
    heartbeat.drop([leased])
    assert not heartbeat.confirm(leased.lease)


@pytest.mark.postgresql
def test_a_renewal_and_outcomes_that_are_written_wait_for_each_other_in_one_order() -> None:
    """Of one batch some have ended, others wait for their next attempt: two statements in one transaction."""
    pipeline = make_pipeline()
    submit(pipeline, 2)
    first, second = claim(pipeline)
    later = Later(60.0, 1, failed(), of=3, is_parked=True)
    with structlog.testing.capture_logs() as logs, Heartbeat([pipeline.name]) as heartbeat:
        renewing = threading.Thread(target=_renew, args=[[first, second]])
        with transaction.atomic():
            transactions.lock([first.lease])
            renewing.start()
            wait_for(lambda: waiting_for_locks() == 1)
            for settlement in (Settlement(second, Success("done")), Settlement(first, later)):
                heartbeat.completer.put(settlement)
            wait_for(lambda: waiting_for_locks() == 2)
        renewing.join(LIMIT)
        heartbeat.completer.flush(LIMIT)
    assert [log["event"] for log in logs] == []
    assert states(second.id, first.id) == ["succeeded", "pending"]


def _renew(leased: list[LeasedTransaction]) -> None:
    transactions.heartbeat([one.lease for one in leased])
    connection.close()


def waiting_for_locks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return int(cursor.fetchone()[0])


@pytest.mark.postgresql
def test_a_notification_that_is_none_of_ours_does_not_end_the_listening() -> None:
    heard: list[int] = []
    poller = Poller()
    notifier = Notifier(poller)
    try:
        poller.subscribe(7, lambda: heard.append(7))
        wait_for(lambda: _notified("", "rubbish", "²", "7") and len(heard) > 0)
        heard.clear()
        wait_for(lambda: _notified("7") and len(heard) > 0)
    finally:
        notifier.close()


@pytest.mark.postgresql
def test_a_notifier_sleeps_until_it_is_told_of_something_or_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.worker.notifier.SILENCE", 3600.0)
    heard: list[int] = []
    before = set(threading.enumerate())
    poller = Poller()
    notifier = Notifier(poller)
    [thread] = set(threading.enumerate()) - before
    poller.subscribe(7, lambda: heard.append(7))
    wait_for(lambda: _notified("7") and len(heard) > 0)
    wait_for(lambda: not _heard_within(0.2, heard))
    woken = _times_woken(thread)
    assert not _heard_within(1.0, heard)
    assert _times_woken(thread) == woken
    notifier.close()
    thread.join(LIMIT)
    assert not thread.is_alive()


@pytest.mark.once
def test_a_commit_is_noticed_by_the_log_of_sqlite_without_asking_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.worker.notifier.ASK", 3600.0)
    heard: list[int] = []
    poller = Poller()
    notifier = Notifier(poller)
    try:
        poller.subscribe(7, lambda: heard.append(7))
        for number in range(3):
            wait_for(lambda: not _heard_within(1.0, heard))
            make_pipeline(f"orders-{number}")
            wait_for(lambda: len(heard) > 0)
    finally:
        notifier.close()


@pytest.mark.postgresql
def test_who_is_told_of_a_burst_looks_by_itself_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.worker.notifier.WATCH", 3.0)
    heard: list[int] = []
    poller = Poller()
    notifier = Notifier(poller)
    try:
        poller.subscribe(7, lambda: heard.append(7))
        wait_for(lambda: _notified("7") and len(heard) > 0)
        heard.clear()
        _notified(f"7{BURST}")
        wait_for(lambda: len(heard) > 5)
        wait_for(lambda: not _heard_within(10 * GLANCE, heard))
    finally:
        notifier.close()


@pytest.mark.postgresql
def test_a_server_that_falls_silent_is_noticed_and_all_loops_are_told_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.worker.notifier.SILENCE", 0.1)
    monkeypatch.setattr("engines.worker.notifier.ANSWER_WITHIN", 1.0)
    connection.ensure_connection()
    server = connection.settings_dict
    heard: list[int] = []
    with proxy(server["HOST"], int(server["PORT"])) as link:
        monkeypatch.setitem(server, "HOST", "127.0.0.1")
        monkeypatch.setitem(server, "PORT", str(link.port))
        poller = Poller()
        notifier = Notifier(poller)
        try:
            poller.subscribe(7, lambda: heard.append(7))
            poller.subscribe(8, lambda: heard.append(8))
            wait_for(lambda: _notified("7") and 7 in heard)
            link.swallow()
            heard.clear()
            wait_for(lambda: {7, 8} <= set(heard))
            heard.clear()
            wait_for(lambda: _notified("8") and 8 in heard)
        finally:
            notifier.close()
        assert link.accepted >= 2


@pytest.mark.postgresql
def test_a_server_that_has_nothing_to_tell_is_asked_and_stays_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.worker.notifier.SILENCE", 0.0)
    monkeypatch.setattr("engines.worker.notifier.ANSWER_WITHIN", LIMIT)
    connection.ensure_connection()
    server = connection.settings_dict
    heard: list[int] = []
    with proxy(server["HOST"], int(server["PORT"])) as link:
        monkeypatch.setitem(server, "HOST", "127.0.0.1")
        monkeypatch.setitem(server, "PORT", str(link.port))
        poller = Poller()
        notifier = Notifier(poller)
        try:
            poller.subscribe(7, lambda: heard.append(7))
            for _ in range(3):
                heard.clear()
                wait_for(lambda: _notified("7") and 7 in heard)
        finally:
            notifier.close()
        assert link.accepted == 1


def _heard_within(seconds: float, heard: list[int]) -> bool:
    heard.clear()
    time.sleep(seconds)
    return bool(heard)


def _times_woken(thread: threading.Thread) -> int:
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def _notified(*payloads: str) -> bool:
    with connection.cursor() as cursor:
        for payload in payloads:
            cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, payload])
    return True


@pytest.mark.usefixtures("_signals")
def test_everything_that_a_dead_process_held_is_given_back_however_much_it_was() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 1300)
    worker = workers.enrol(["orders"]).pk
    while transactions.claim(pipeline.pk, 1000, worker):
        pass
    assert count(RUNNING) == 1300
    counts = dict.fromkeys(COUNTED, 0)
    event = json.dumps({"event": "started", "pipeline": "orders", "worker": worker, **counts})
    # As a process that told who it was and then ended badly, with a code that is final.
    command = ["-c", f"import sys; print({event!r}); sys.exit(1)"]
    assert sys.executable
    assert Supervisor([command], OutputWrapper(io.StringIO()), as_json=True).run() == 1
    assert count(RUNNING) == 0
    assert Worker.objects.get().state == "dead"


def test_what_took_too_long_is_halved_and_doubled_after_quick_tries() -> None:
    portion = Portion(500)
    assert portion.of(600) == 500
    portion.was_too_much(400)
    assert portion.of(600) == 200
    for _ in range(9):
        portion.was_too_much(portion.of(600))
    assert portion.of(600) == 1
    sizes = []
    for _ in range(10):
        sizes.append(portion.of(600))
        portion.was_quick()
    assert sizes == [1, 2, 4, 8, 16, 32, 64, 128, 256, 500]
    assert portion.of(3) == 3
