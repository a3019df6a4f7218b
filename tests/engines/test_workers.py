"""Whoever is gone serves nobody: readers go by heartbeats, not by what a worker's row last said."""

import signal
from datetime import timedelta

import pytest
from django.utils import timezone

from engines import workers
from engines.models import Worker
from engines.reads import dashboard, executors, explain, status
from engines.reads.doctor import fleet
from ergon_site.access.database.clock import database_time
from ergon_site.gauges import Gauges
from tests.durable_transactions import consumer, make_policy, submit, wait_until_started
from tests.factories import make_pipeline
from tests.processes import eventually

NO_WORKER = "waiting: no worker serves this pipeline"


def enrol(silent_for: float, lease: float = 30.0) -> Worker:
    worker = workers.enrol(["orders"])
    heard = timezone.now() - timedelta(seconds=silent_for)
    told = [{"name": "python", "processes": [{"pid": 7, "job": None}]}]
    Worker.objects.filter(pk=worker.pk).update(heartbeat_at=heard, lease=lease, executors=told)
    return Worker.objects.get(pk=worker.pk)


def alive_by_the_gauge() -> float:
    (family,) = [one for one in Gauges().collect() if one.name == "ergon_workers_alive"]
    return family.samples[0].value


@pytest.mark.django_db
def test_each_worker_is_alive_for_its_own_lease() -> None:
    brief, patient, lost = enrol(10, lease=5), enrol(10, lease=60), enrol(90, lease=60)
    assert set(workers.alive()) == {patient}
    assert set(workers.silent()) == {brief, lost}
    assert set(workers.enrolled()) == {brief, patient, lost}
    now = database_time()
    assert [workers.is_alive(one, now) for one in (brief, patient, lost)] == [False, True, False]


@pytest.mark.django_db
def test_those_that_have_ended_are_neither_alive_nor_silent() -> None:
    workers.retire(enrol(0).pk)
    workers.mark_dead(enrol(90).pk, note="gone")
    assert not workers.enrolled().exists()
    assert not workers.alive().exists()
    assert not workers.silent().exists()


@pytest.mark.django_db
def test_the_silent_are_noticed_and_nobody_else() -> None:
    here, gone = enrol(1), enrol(90)
    assert (workers.notice_the_dead(), workers.notice_the_dead()) == (1, 0)
    here.refresh_from_db()
    gone.refresh_from_db()
    assert (here.state, gone.state, gone.note) == ("running", "dead", "no heartbeat within its lease")


@pytest.mark.django_db
@pytest.mark.parametrize("is_here", [True, False])
def test_every_reader_goes_by_the_heartbeat(is_here: bool) -> None:  # noqa: FBT001 (a case)
    pipeline = make_pipeline()
    (uid,) = submit(pipeline)
    worker = enrol(1 if is_here else 90)
    there = [worker] if is_here else []
    now = database_time()
    taken = dashboard.take(now, minutes=1, shown=1)
    assert explain.serving(pipeline) == there
    assert explain.explain(uid)["sentence"] == ("waiting: it is next" if is_here else NO_WORKER)
    assert [one["id"] for one in status.read_status()["workers"]] == [one.pk for one in there]
    assert (taken.workers, taken.served) == (there, {"orders"} if is_here else set())
    assert alive_by_the_gauge() == len(there)
    assert [one.name for one in executors.list_executors()] == ["python"] * len(there)
    assert [share.is_alive for share in executors.of_worker(worker)] == [is_here]
    assert any("silent" in one.text for one in fleet.lost_workers()) is not is_here


@pytest.mark.django_db(transaction=True)
def test_a_killed_worker_serves_nobody_though_nobody_has_noticed() -> None:
    pipeline = make_pipeline(policy=make_policy())
    with consumer("orders", ERGON_LEASE_SECONDS="2") as process:
        wait_until_started(process)
        eventually(lambda: bool(explain.serving(pipeline)), "it serves the pipeline")
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    (uid,) = submit(pipeline)
    eventually(lambda: explain.explain(uid)["sentence"] == NO_WORKER, "it is known to be gone")
    assert status.read_status()["workers"] == []
    assert Worker.objects.get().state == "running"
