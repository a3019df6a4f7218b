"""Leases that lapsed while the database took no changes are left to their workers, who renew them a little later."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models import F

from engines.models import Attempt, TransactionRecord, Worker
from ergon_site.access.database.clock import database_time
from tests.commands import next_event
from tests.database import refusing
from tests.durable_transactions import consume, consumer, make_policy, states, wait_until_started
from tests.factories import make_pipeline
from tests.faults.test_leases import freeze, submit_marked
from tests.processes import LIMIT, eventually

pytestmark = pytest.mark.django_db(transaction=True)

# Half of it is the time to renew, and enough of that on a busy machine.
LEASE = {"ERGON_LEASE_SECONDS": "40"}


@contextmanager
def late_worker(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A worker that stands still at work; woken after the block, it ends that work, which nobody else has had."""
    make_pipeline(policy=make_policy())
    with consumer("orders", **LEASE) as worker:
        wait_until_started(worker)
        ids = submit_marked(4, folder)
        eventually(lambda: set(states(*ids)) == {"running"}, "it is at work")
        freeze(worker)
        try:
            yield worker
        finally:
            worker.send_signal(signal.SIGCONT)
        lapsed = TransactionRecord.objects.filter(lease_expires_at__lt=database_time())
        eventually(lambda: not lapsed.exists(), "it has renewed its leases")
        assert set(TransactionRecord.objects.values_list("rescues", flat=True)) == {0}
        (folder / "gate").touch()
        eventually(lambda: set(states(*ids)) == {"succeeded"}, "it has ended its work")
        worker.send_signal(signal.SIGTERM)
        assert next_event(worker, "stopped")["stale"] == 0
    assert set(TransactionRecord.objects.values_list("rescues", "attempts")) == {(0, 1)}
    assert Attempt.objects.count() == 4


def let_leases_lapse() -> None:
    """As if nobody had been able to renew for an hour."""
    TransactionRecord.objects.update(lease_expires_at=F("lease_expires_at") - timedelta(hours=1))
    Worker.objects.update(heartbeat_at=F("heartbeat_at") - timedelta(hours=1))


def wait_for_its_chores(process: subprocess.Popen[str]) -> None:
    """Until it has found that the worker is silent, which comes after a rescue where there is one."""
    while next_event(process, "done")["chore"] != "workers_lost":
        pass


def test_work_that_is_alive_is_not_rescued_after_the_database_took_no_changes_for_longer_than_a_lease(
    tmp_path: Path,
) -> None:
    with consumer(command="maintain", **LEASE) as maintain, late_worker(tmp_path):
        next_event(maintain, "leading")
        with (
            refusing("engines_transactionrecord", "UPDATE OF state"),
            refusing("engines_worker", "UPDATE OF state"),
            refusing("engines_leadership", "UPDATE"),
        ):
            let_leases_lapse()
            while next_event(maintain, "failed", "database_lost").get("chore") in {"rescued", "workers_lost"}:
                pass
        wait_for_its_chores(maintain)


def test_work_that_is_alive_is_not_rescued_by_a_maintain_that_starts(tmp_path: Path) -> None:
    with late_worker(tmp_path):
        let_leases_lapse()
        with consumer(command="maintain", **LEASE) as maintain:
            wait_for_its_chores(maintain)


def test_work_that_is_alive_is_not_rescued_by_a_single_round(tmp_path: Path) -> None:
    """It waits for what has lapsed, and no longer than for that."""
    with ExitStack() as stack:
        with late_worker(tmp_path):
            let_leases_lapse()
            maintain = stack.enter_context(consumer("--once", command="maintain", **LEASE))
            wait_for_its_chores(maintain)
        output, errors = maintain.communicate(timeout=LIMIT)
    assert maintain.returncode == 0, errors
    assert [json.loads(line)["count"] for line in output.splitlines() if '"rescued"' in line] == [0]


def test_work_that_is_alive_is_not_rescued_by_a_worker_that_stood_still_with_it(tmp_path: Path) -> None:
    """As on a host that was suspended: the first that is awake must not take the work of the others."""
    awake = Worker.objects.filter(heartbeat_at__gt=database_time() - timedelta(minutes=30))
    with late_worker(tmp_path), consumer("orders", **LEASE) as other:
        wait_until_started(other)
        freeze(other)
        let_leases_lapse()
        # Longer than workers have to renew: that begins with the database's first answer, and anew after a standstill.
        time.sleep(float(LEASE["ERGON_LEASE_SECONDS"]) / 2 + 2)
        other.send_signal(signal.SIGCONT)
        eventually(awake.exists, "it has renewed")
        time.sleep(2)  # it would rescue at once


def test_a_single_round_rescues_what_a_dead_worker_held(tmp_path: Path) -> None:
    make_pipeline(policy=make_policy())
    with consumer("orders") as worker:
        wait_until_started(worker)
        ids = submit_marked(4, tmp_path)
        eventually(lambda: set(states(*ids)) == {"running"}, "it is at work")
        worker.kill()
    let_leases_lapse()
    for lease in ("2", "20"):  # the second for a machine that stood still
        run = consume("--once", command="maintain", ERGON_LEASE_SECONDS=lease)
        rescued = [one["count"] for one in run.events if one.get("chore") == "rescued"]
        if rescued == [4]:
            break
    assert run.code == 0, run.errors
    assert rescued == [4]
    assert set(states(*ids)) == {"pending"}
