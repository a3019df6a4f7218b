"""A worker starts no handler of a transaction that another one has by now, and never takes away its own."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.utils import timezone

from engines import transactions
from engines.models import TransactionRecord
from ergon_site.access.database.clock import database_time
from tests.commands import next_event
from tests.durable_transactions import consumer, count, make_policy, states, wait_until_started
from tests.engines.test_executor_pipelines import VARIABLES, jobs_pipeline, submit_job
from tests.factories import make_pipeline
from tests.processes import eventually, is_alive, words_of

pytestmark = pytest.mark.django_db(transaction=True)

SUCCEEDED = 2
# Long enough that none is lost for being slow on a busy machine.
LEASE = "9"
COMMANDS = {
    "tests.act": "consume",
    "tests.wait_async": "consume",
    "tests.send": "produce",
    "tests.wait_sending_async": "produce",
}
# Two slots, and a reserve of what else has been claimed.
TWO_SLOTS = {
    "loop": {"concurrency": {"value": 2}, "batch": {"size": 40}, "empty_queue": {"backoff": 0.05, "backoff_cap": 0.2}},
    "steps": {"process": {"retry": {"max_attempts": 1}}},
}
TWO_SLOTS_TO_PRODUCE = {
    "loop": {"concurrency": {"value": 2}, "batch": {"size": 40}},
    "steps": {"produce": {"retry": {"max_attempts": 1}}},
}


def submit_marked(how_many: int, folder: Path) -> list[str]:
    """Transactions that note who runs them, and end when the gate is open."""
    gate, mark, cancelled = (str(folder / name) for name in ("gate", "mark", "cancelled"))
    drafts = [
        transactions.Draft({"id": f"t{number}", "mark": mark, "until": gate, "cancelled": cancelled}, id=f"t{number}")
        for number in range(how_many)
    ]
    return [one.id for one in transactions.submit_many("orders", drafts)]


def started_by(process: subprocess.Popen[str], folder: Path) -> list[str]:
    """What the handlers of this process have noted."""
    lines = [line.split() for line in (folder / "mark").read_text().splitlines()]
    return [uid for uid, pid, _ in lines if int(pid) == process.pid]


def wake(process: subprocess.Popen[str]) -> Callable[[], bool]:
    """Let a consumer go on; whether nothing of it is in flight any more, by a heartbeat that it has sent since."""
    from engines.models import Worker

    woken = Worker.objects.filter(pid=process.pid, in_flight=0, heartbeat_at__gt=database_time())
    process.send_signal(signal.SIGCONT)
    return woken.exists


@pytest.mark.parametrize("task", COMMANDS)
def test_a_worker_that_was_frozen_beyond_its_lease_starts_nothing_that_another_has_ended(
    task: str, tmp_path: Path
) -> None:
    freeze_and_wake(task, tmp_path, how_many=30)


@pytest.mark.soak
@pytest.mark.parametrize("task", COMMANDS)
def test_workers_frozen_again_and_again_start_nothing_that_another_has_ended(task: str, tmp_path: Path) -> None:
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        freeze_and_wake(task, folder, how_many=200)
        TransactionRecord.objects.all().delete()


def freeze_and_wake(task: str, folder: Path, how_many: int) -> None:
    from engines.models import Pipeline

    command = COMMANDS[task]
    if not Pipeline.objects.filter(name="orders").exists():
        if command == "consume":
            make_pipeline(task=task, policy=make_policy("two", TWO_SLOTS))
        else:
            policy = make_policy("two", TWO_SLOTS_TO_PRODUCE, kind="producer")
            make_pipeline(task=task, direction="outbound", policy=policy)
    submit_marked(how_many, folder)
    with consumer("orders", command=command, ERGON_LEASE_SECONDS="3") as frozen:
        wait_until_started(frozen)
        eventually(lambda: TransactionRecord.objects.filter(state=1).count() >= 10, "it has a reserve")
        eventually(lambda: (folder / "mark").exists() and len(started_by(frozen, folder)) == 2, "its slots are full")
        freeze(frozen)
        try:
            (folder / "gate").touch()
            with consumer("orders", command=command, ERGON_LEASE_SECONDS="3"):
                eventually(lambda: count(SUCCEEDED) == how_many, "another worker has done everything")
        finally:
            has_noticed = wake(frozen)
        eventually(has_noticed, "it has noticed")
        assert len(started_by(frozen, folder)) == 2
        frozen.send_signal(signal.SIGTERM)
        _, errors = frozen.communicate(timeout=60)
    assert "leases_lost" in errors
    assert frozen.returncode == 0, errors


def freeze(process: subprocess.Popen[str]) -> None:
    """Stop it where it holds no lock: on SQLite, one that is frozen in mid-write stops every other writer."""
    while True:
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "it is stopped")
        try:
            with connection.cursor() as cursor:
                if connection.vendor == "sqlite":
                    cursor.execute("PRAGMA busy_timeout = 500")
                cursor.execute("UPDATE engines_worker SET note = note")
        except OperationalError:
            process.send_signal(signal.SIGCONT)
        else:
            return
        finally:
            connection.close()


def take_away(uid: str) -> None:
    """Another worker rescues a transaction and claims it."""
    TransactionRecord.objects.filter(uid=uid).update(
        fencing_token=F("fencing_token") + 1,
        lease_owner=F("lease_owner") + 1000,
        lease_expires_at=timezone.now() + timedelta(hours=1),
        rescues=F("rescues") + 1,
    )


def test_a_handler_can_ask_whether_its_lease_is_lost(tmp_path: Path) -> None:
    make_pipeline(policy=make_policy())
    uid = transactions.submit("orders", {"until_lost": str(tmp_path / "told")}).id
    with consumer("orders", ERGON_LEASE_SECONDS=LEASE) as process:
        wait_until_started(process)
        eventually(lambda: states(uid) == ["running"], "it runs")
        take_away(uid)
        eventually((tmp_path / "told").exists, "the handler is told")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    last = [json.loads(line) for line in output.splitlines()][-1]
    assert (last["succeeded"], last["failed"], process.returncode) == (0, 0, 0)
    assert states(uid) == ["running"]  # of the other one


def test_an_async_attempt_whose_lease_is_lost_is_cancelled(tmp_path: Path) -> None:
    make_pipeline(task="tests.wait_async", policy=make_policy())
    (uid,) = submit_marked(1, tmp_path)
    with consumer("orders", ERGON_LEASE_SECONDS=LEASE) as process:
        wait_until_started(process)
        eventually((tmp_path / "mark").exists, "it runs")
        take_away(uid)
        eventually((tmp_path / "cancelled").exists, "the attempt is cancelled")
        good = transactions.submit("orders", {"until": os.devnull}).id
        eventually(lambda: states(good) == ["succeeded"], "the worker goes on")


def test_the_process_of_an_executor_whose_job_has_lost_its_lease_is_ended() -> None:
    jobs_pipeline(max_attempts=3)
    uid = submit_job("python#sleep", 3600)
    with consumer("jobs", ERGON_LEASE_SECONDS=LEASE, **VARIABLES) as process:
        wait_until_started(process)
        eventually(lambda: states(uid) == ["running"], "it runs")
        eventually(lambda: len(executors_of(process)) == 1, "in a process of its own")
        (executor,) = executors_of(process)
        take_away(uid)
        eventually(lambda: not is_alive(executor), "that is ended")
        done = submit_job("python#echo", 1)
        eventually(lambda: states(done) == ["succeeded"], "the worker goes on")
    assert TransactionRecord.objects.get(uid=uid).attempts == 1


def executors_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "tests.executors.handlers" in words_of(child)]


@contextmanager
def nobody_writes(seconds: float) -> Iterator[None]:
    """Another session keeps every writer of transactions waiting for so long."""
    has_begun = threading.Event()

    def block() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("LOCK TABLE engines_transactionrecord IN ACCESS EXCLUSIVE MODE")
            has_begun.set()
            time.sleep(seconds)  # the length of the block is what is tested
        connection.close()

    blocker = threading.Thread(target=block)
    blocker.start()
    assert has_begun.wait(30)
    yield
    blocker.join()


def test_work_that_is_alive_is_not_rescued_after_a_block_that_was_longer_than_a_lease(tmp_path: Path) -> None:
    """Neither by its own worker nor by another one."""
    make_pipeline(policy=make_policy())
    with (
        consumer("orders", ERGON_LEASE_SECONDS=LEASE) as first,
        consumer("orders", ERGON_LEASE_SECONDS=LEASE) as second,
    ):
        wait_until_started(first)
        ids = submit_marked(8, tmp_path)
        wait_until_started(second)
        eventually(lambda: set(states(*ids)) == {"running"}, "both workers are at work")
        with nobody_writes(float(LEASE) + 1):
            pass
        renewed = TransactionRecord.objects.order_by("lease_expires_at").values_list("lease_expires_at", flat=True)
        before = renewed.first()
        eventually(lambda: renewed.first() != before, "leases are renewed again")
        (tmp_path / "gate").touch()
        eventually(lambda: set(states(*ids)) == {"succeeded"}, "they have ended")
    assert set(TransactionRecord.objects.values_list("rescues", "attempts")) == {(0, 1)}


def test_a_claim_that_a_crash_took_back_and_the_same_worker_made_again_runs_once(tmp_path: Path) -> None:
    make_pipeline(policy=make_policy())
    (uid,) = submit_marked(1, tmp_path)
    with consumer("orders", ERGON_LEASE_SECONDS="60") as process:
        wait_until_started(process)
        eventually((tmp_path / "mark").exists, "it runs")
        # As a crash of the server leaves a row whose claim had not reached the disk.
        TransactionRecord.objects.filter(uid=uid).update(
            state=0, lease_owner=None, lease_expires_at=None, started_at=None, fencing_token=0, attempts=0
        )
        eventually(lambda: states(uid) == ["running"], "the same worker has claimed it again")
        (tmp_path / "gate").touch()
        eventually(lambda: states(uid) == ["succeeded"], "it has ended")
        after: dict[str, Any] = {"id": "after", "mark": str(tmp_path / "mark")}
        transactions.submit("orders", after, id="after")
        eventually(lambda: states("after") == ["succeeded"], "whatever else the worker had claimed came before this")
        assert started_by(process, tmp_path) == ["t0", "after"]
        process.send_signal(signal.SIGTERM)
        assert next_event(process, "stopped")["stale"] == 0
