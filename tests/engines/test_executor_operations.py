"""What operators see of executors: rows, status, metrics, explanations."""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
from django.test import Client

from engines import RetryPolicy, conf, pipelines, transactions, workers
from engines.core.errors import RetryLater
from engines.core.failures import storable
from engines.core.outcome import Failure, Later
from engines.executors.settings import executors_in
from engines.models import Worker
from engines.reads import executors as executor_reads
from tests import durable_transactions
from tests.commands import ask, run
from tests.executors.executor_pools import HANDLERS, Crew, job, pool_of
from tests.executors.telling import process, told, working
from tests.factories import make_pipeline
from tests.processes import LIMIT, eventually, free_port

pytestmark = pytest.mark.django_db

PYTHON = {"command": [sys.executable, "-m", "engines.executors", "--handlers", "tests.executors.handlers"]}
POLICY = {"steps": {"process": {"retry": {"max_attempts": 2, "timeout": 20, "backoff": 0.1}}}}


def configure(monkeypatch: pytest.MonkeyPatch, **executors: Any) -> None:
    known = replace(conf.settings(), executors=executors_in(executors))
    monkeypatch.setattr(executor_reads, "settings", lambda: known)


def test_an_executor_is_known_by_its_settings_by_a_worker_or_by_a_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, here={"command": ["/bin/here", "--secret"], "pool_size": 3, "env": {"KEY": "hidden"}})
    working(told("seen", process()))
    make_pipeline("jobs", task="", executor="named")
    here, named, seen = executor_reads.list_executors()
    assert (here.name, here.program, here.pool_size, here.is_configured) == ("here", "/bin/here", 3, True)
    assert (here.standing, here.shares) == ("not started", [])
    assert (named.program, named.is_configured, [str(one) for one in named.pipelines]) == ("", False, ["jobs"])
    assert (seen.program, seen.pool_size, seen.is_configured, seen.standing) == ("/usr/bin/x", 2, False, "idle")
    assert seen.totals == {"answered": 5, "started": 2, "died": 1, "killed": 3, "skipped": 7}


@pytest.mark.parametrize(
    ("heard", "standing"),
    [
        (told("python", process()), "idle"),
        (told("python", process(), process(2, "one")), "working"),
        (told("python"), "not started"),
        (told("python", deaths_in_a_row=2, starts_again_in=25.0), "backing off"),
        (told("python", deaths_in_a_row=2), "failing"),
    ],
)
def test_how_an_executor_stands_takes_a_word(heard: dict[str, Any], standing: str) -> None:
    working(heard)
    (executor,) = executor_reads.list_executors()
    assert executor.standing == standing


def test_the_job_in_hand_is_found_as_a_transaction() -> None:
    make_pipeline("jobs", task="", executor="python")
    made = transactions.submit("jobs", {"function": "echo"}, id="job 1")
    (share,) = executor_reads.of_worker(working(told("python", process(1, made.id), process(2, "from a broker"))))
    assert [one.record for one in share.processes] == [transactions.find(made.id).pk, None]
    assert (share.busy, share.total, share.unshown) == (2, 2, 0)


def test_the_processes_of_a_worker_that_has_ended_are_not_shown() -> None:
    worker = working(told("python", process()))
    workers.retire(worker.pk, executors=[told("python", process(), answered=9)])
    (share,) = executor_reads.of_worker(Worker.objects.get())
    assert (share.is_alive, share.processes, share.total, share.told["answered"]) == (False, [], 0, 9)
    assert executor_reads.list_executors() == []


def test_the_status_tells_executors_with_their_worker() -> None:
    worker = working(told("python", process(), deaths_in_a_row=4, last_fault="executor exited with code 9"))
    (row,) = ask("status")["workers"]
    assert row["executors"][0]["answered"] == 5
    text = run("status")
    assert "EXECUTOR  WORKER" in text
    assert re.search(rf"python +{worker} +1 of 2 +0 +5 +2 +1 +3 +7 +4 deaths in a row: executor exited", text)


def test_a_worker_tells_of_its_executors_and_serves_their_metrics(transactional_db: None, browse: Client) -> None:
    pipeline = make_pipeline("jobs", task="", executor="python", policy=durable_transactions.make_policy(body=POLICY))
    handlers = ["echo", "fail", "nobody"]
    for name in handlers:
        transactions.submit("jobs", {"function": name, "args": ["x"]}, id=name)
    port = free_port()
    variables = {"ERGON_EXECUTORS": json.dumps({"python": PYTHON}), "ERGON_METRICS_PORT": str(port)}
    with durable_transactions.consumer(pipeline.name, **variables) as running:
        durable_transactions.wait_until_started(running)
        eventually(
            lambda: durable_transactions.states(*handlers) == ["succeeded", "failed", "failed"], "all jobs have ended"
        )
        eventually(lambda: bool(_answered() and _answered() >= 4), "the worker's row says so")
        (share,) = executor_reads.of_worker(Worker.objects.get())
        page = browse.get("/admin/engines/executor/").content.decode()
        exposed = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT).text
    assert share.total >= 1
    assert share.told["program"] == sys.executable
    assert f">{share.processes[0].pid}</td>" in page
    for outcome, count in (("success", 1), ("error", 2)):
        labels = rf'ergon_executor="python",ergon_outcome="{outcome}"'
        assert re.search(rf"ergon_executor_jobs_total{{[^}}]*{labels}[^}}]*}} {count}\.0", exposed), exposed
    assert re.search(r'ergon_executor_jobs_total{[^}]*ergon_outcome="refused"[^}]*} 1\.0', exposed)
    assert re.search(r'ergon_executor_starts_total{[^}]*ergon_executor="python"[^}]*} [1-9]', exposed)
    for name in ("deaths", "kills", "lines_skipped"):
        assert re.search(rf"ergon_executor_{name}_total{{[^}}]*}} 0\.0", exposed), name
    assert 'ergon_state="idle"' in exposed


@pytest.mark.parametrize("uid", ["a\x00", "a\ud800"])
def test_a_worker_is_alive_whatever_the_job_is_called_that_an_executor_has_in_hand(uid: str) -> None:
    with ThreadPoolExecutor() as thread, pool_of(HANDLERS) as crew:
        running = thread.submit(crew.run, job(uid, 3600, function="sleep"), retry=RetryPolicy(timeout=3600))
        eventually(lambda: any(one["job"] for one in _processes(crew)), "the job has begun")
        worker = working(*crew.pools.snapshot())
        crew.pools.halt()
        running.result(LIMIT)
    (share,) = executor_reads.of_worker(worker)
    assert [one.job for one in share.processes] == [storable(uid)]


def _processes(crew: Crew) -> list[dict[str, Any]]:
    return [process for pool in crew.pools.snapshot() for process in pool["processes"]]


def _answered() -> int:
    return sum(one["answered"] for one in Worker.objects.get().executors)


def test_a_short_run_leaves_what_its_executors_did(transactional_db: None) -> None:
    make_pipeline("jobs", task="", executor="python")
    transactions.submit("jobs", {"function": "mumble"})
    assert durable_transactions.consume("jobs", "--drain", ERGON_EXECUTORS=json.dumps({"python": PYTHON})).code == 0
    (one,) = Worker.objects.get().executors
    assert (one["name"], one["answered"], one["started"]) == ("python", 1, 1)
    assert one["said"][-1].endswith("a \ufffd b")


def test_metrics_of_the_web_process_tell_of_executors(client: Any) -> None:
    working(told("python", process(1, "a"), deaths_in_a_row=1))
    exposed = client.get("/metrics").content.decode()
    assert 'ergon_executors_processes{executor="python",state="busy"} 1.0' in exposed
    assert 'ergon_executors_processes{executor="python",state="idle"} 0.0' in exposed
    assert 'ergon_executors_failing{executor="python"} 1.0' in exposed


def test_a_job_that_asked_to_be_tried_again_is_explained() -> None:
    pipeline = make_pipeline("jobs", task="", executor="python")
    transactions.submit("jobs", {"function": "echo"}, id="again")
    (leased,) = durable_transactions.claim(pipeline)
    later = RetryLater("the bank is closed")
    later.error_type = "RetryJob"
    postponed = Later(failure=Failure(later), seconds=600.0, spent=2)
    assert transactions.postpone([transactions.Settlement(leased, postponed)]) == []
    explained = ask("explain", "again")
    assert explained["sentence"] == (
        "due in 10 min; its handler asked for a retry after 2 attempts (RetryJob: the bank is closed)"
    )
    assert explained["facts"]["attempts_spent"] == 2
    assert "attempts spent" in run("explain", "again")


def test_what_a_job_is_can_be_read_from_its_payload() -> None:
    jobs = pipelines.create("jobs", pipelines.Plan(executor="python"), by="tests")
    task = pipelines.create("task", pipelines.Plan(task="tests.act"), by="tests")
    assert executor_reads.job_of(jobs, {"function": "node#a#b"}) == ("node", "a#b")
    assert executor_reads.job_of(jobs, {"function": "a"}) == ("python", "a")
    for payload in (None, {}, {"function": 1}, {"function": "node#"}):
        assert executor_reads.job_of(jobs, payload) == ("python", "")
    assert executor_reads.job_of(task, {"function": "a"}) is None
    assert executor_reads.job_of(None, {"function": "a"}) is None


def test_stderr_and_tracebacks_are_told_apart() -> None:
    jobs = pipelines.create("jobs", pipelines.Plan(executor="python"), by="tests")
    task = pipelines.create("task", pipelines.Plan(task="tests.act"), by="tests")
    assert executor_reads.is_stderr(jobs, "ExecutorDied", "Traceback (most recent call last):\nMemoryError")
    assert executor_reads.is_stderr(jobs, "ValueError", "it was not found")
    assert not executor_reads.is_stderr(jobs, "TimeoutError", "engines.core.errors.TransactionException: too late")
    assert not executor_reads.is_stderr(jobs, "ExecutorDied", "")
    assert not executor_reads.is_stderr(task, "ExecutorDied", "anything")
    assert not executor_reads.is_stderr(None, "ExecutorDied", "anything")
