"""What operators see of executors: rows, status, doctor, metrics, and a bad configuration told in one line."""

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from engines import conf, executing, pipelines, transactions, workers
from engines.core.errors import RetryLater
from engines.core.outcome import Failure, Later
from engines.diagnosis import executors as diagnosis
from engines.executors.settings import ExecutorConfigurationError, ExecutorSettings, executors_in
from engines.management.base import EngineCommand
from engines.models import Worker
from tests import durable
from tests.commands import ask, run
from tests.processes import eventually, free_port, manage

pytestmark = pytest.mark.django_db

PYTHON = {"command": [sys.executable, "-m", "engines.executors", "--handlers", "tests.executors.handlers"]}
BROKEN = {"command": ["sh", "-c", "echo no such module >&2; exit 3"]}
POLICY = {"steps": {"process": {"retry": {"max_attempts": 2, "timeout": 20, "backoff": 0.1}}}}


def told(name: str = "python", **changes: Any) -> dict[str, Any]:
    """What a worker tells of an executor."""
    process = {"pid": 4711, "job": None, "answered": 3, "since": "2026-01-01T00:00:00+00:00"}
    counts = {"started": 2, "answered": 5, "died": 1, "killed": 1, "skipped": 7}
    state = {"deaths_in_a_row": 0, "starts_again_in": 0.0, "last_fault": ""}
    return {"name": name, "program": "/usr/bin/x", "pool_size": 2, "processes": [process], **counts, **state, **changes}


def working(*executors: dict[str, Any]) -> Worker:
    worker = workers.enrol(["jobs"])
    workers.beat(worker.pk, in_flight=0, abandoned=0, settled=0, is_stopping=False, executors=executors)
    worker.refresh_from_db()
    return worker


def configure(monkeypatch: pytest.MonkeyPatch, **executors: Any) -> None:
    known = replace(conf.settings(), executors=executors_in(executors))
    for module in (executing, diagnosis):
        monkeypatch.setattr(module, "settings", lambda: known)


def test_an_executor_is_known_by_its_settings_by_a_worker_or_by_a_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, here={"command": ["/bin/here", "--secret"], "pool_size": 3, "env": {"KEY": "hidden"}})
    working(told("seen"))
    durable.make_pipeline("jobs", task="", executor="named")
    here, named, seen = executing.executors()
    assert (here.name, here.program, here.pool_size, here.is_configured) == ("here", "/bin/here", 3, True)
    assert (here.standing, here.shares) == ("not started", [])
    assert (named.program, named.is_configured, [str(one) for one in named.pipelines]) == ("", False, ["jobs"])
    assert (seen.program, seen.pool_size, seen.is_configured, seen.standing) == ("/usr/bin/x", 2, False, "idle")
    assert seen.totals == {"answered": 5, "started": 2, "died": 1, "killed": 1, "skipped": 7}


@pytest.mark.parametrize(
    ("changes", "standing"),
    [
        ({}, "idle"),
        ({"processes": [{"pid": 1, "job": "one", "answered": 0, "since": None}]}, "working"),
        ({"processes": []}, "not started"),
        ({"deaths_in_a_row": 2, "starts_again_in": 25.0}, "backing off"),
        ({"deaths_in_a_row": 2}, "failing"),
    ],
)
def test_how_an_executor_stands_takes_a_word(changes: dict[str, Any], standing: str) -> None:
    working(told(**changes))
    (executor,) = executing.executors()
    assert executor.standing == standing


def test_the_job_in_hand_is_found_as_a_transaction() -> None:
    durable.make_pipeline("jobs", task="", executor="python")
    made = transactions.submit("jobs", {"function": "echo"}, id="job 1")
    busy = {"pid": 1, "job": made.id, "answered": 0, "since": None}
    strange = {"pid": 2, "job": "from a broker", "answered": 0, "since": None}
    (share,) = executing.of_worker(working(told(processes=[busy, strange])))
    assert [one.record for one in share.processes] == [transactions.find(made.id).pk, None]
    assert (share.busy, share.total, share.unshown) == (2, 2, 0)


def test_the_processes_of_a_worker_that_has_ended_are_not_shown() -> None:
    worker = working(told())
    workers.retire(worker.pk, executors=[told(answered=9)])
    (share,) = executing.of_worker(Worker.objects.get())
    assert (share.is_alive, share.processes, share.total, share.told["answered"]) == (False, [], 0, 9)
    assert executing.executors() == []


def test_the_status_tells_executors_with_their_worker() -> None:
    worker = working(told(deaths_in_a_row=4, last_fault="executor exited with code 9"))
    (row,) = ask("status")["workers"]
    assert row["executors"][0]["answered"] == 5
    text = run("status")
    assert "EXECUTOR  WORKER" in text
    assert re.search(rf"python +{worker} +1 of 2 +0 +5 +2 +1 +1 +7 +4 deaths in a row: executor exited", text)


def test_a_worker_tells_of_its_executors_and_serves_their_metrics(transactional_db: None, browse: Client) -> None:
    pipeline = durable.make_pipeline("jobs", task="", executor="python", policy=durable.make_policy(body=POLICY))
    handlers = ["echo", "fail", "nobody"]
    for name in handlers:
        transactions.submit("jobs", {"function": name, "args": ["x"]}, id=name)
    port = free_port()
    variables = {"ERGON_EXECUTORS": json.dumps({"python": PYTHON}), "ERGON_METRICS_PORT": str(port)}
    with durable.consumer(pipeline.name, **variables) as process:
        durable.wait_until_started(process)
        eventually(lambda: durable.states(*handlers) == ["succeeded", "failed", "failed"], "all jobs have ended")
        eventually(lambda: bool(_answered() and _answered() >= 4), "the worker's row says so")
        (share,) = executing.of_worker(Worker.objects.get())
        page = browse.get("/admin/engines/executor/").content.decode()
        exposed = httpx.get(f"http://127.0.0.1:{port}/metrics").text
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


def _answered() -> int:
    told = Worker.objects.get().executors
    return sum(one["answered"] for one in told)


def test_a_short_run_leaves_what_its_executors_did(transactional_db: None) -> None:
    durable.make_pipeline("jobs", task="", executor="python")
    transactions.submit("jobs", {"function": "echo"})
    assert durable.consume("jobs", "--drain", ERGON_EXECUTORS=json.dumps({"python": PYTHON})).code == 0
    (one,) = Worker.objects.get().executors
    assert (one["name"], one["answered"], one["started"]) == ("python", 1, 1)


def test_metrics_of_the_web_process_tell_of_executors(client: Any) -> None:
    working(told(processes=[{"pid": 1, "job": "a", "answered": 0, "since": None}], deaths_in_a_row=1))
    exposed = client.get("/metrics").content.decode()
    assert 'ergon_executors_processes{executor="python",state="busy"} 1.0' in exposed
    assert 'ergon_executors_processes{executor="python",state="idle"} 0.0' in exposed
    assert 'ergon_executors_failing{executor="python"} 1.0' in exposed


def findings() -> list[tuple[str, str]]:
    return [(finding.level.value, finding.text) for finding in diagnosis.executors()]


def test_the_doctor_starts_every_executor_and_leaves_none_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "grandchild"
    script = f"sleep 1000 & echo $! > {mark}; cat"
    configure(monkeypatch, python=PYTHON, sleepy={"command": ["sh", "-c", script]})
    assert findings() == [
        ("ok", f"python: {sys.executable} starts and waits for work"),
        ("ok", "sleepy: sh starts and waits for work"),
    ]
    eventually(lambda: not _runs(int(mark.read_text())), "what an executor had started has gone with it")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.once
@pytest.mark.parametrize(
    ("executor", "text"),
    [
        (BROKEN, "x: sh ended at once with code 3: no such module"),
        ({"command": ["true"]}, "x: true ended at once with code 0"),
        ({"command": ["no-such-program"]}, "x: the program no-such-program is not found, or may not be run"),
        ({"command": ["./tool"], "cwd": "/"}, "x: the program ./tool is not found, or may not be run"),
        ({"command": ["cat"], "env": {"PATH": "/nowhere"}}, "x: the program cat is not found, or may not be run"),
        ({"command": ["cat"], "cwd": "/no/such/folder"}, "x: there is no folder /no/such/folder"),
    ],
)
def test_the_doctor_says_why_an_executor_cannot_run(
    executor: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, x=executor)
    assert findings() == [("problem", text)]


@pytest.mark.once
def test_the_doctor_finds_a_program_in_the_folder_of_its_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\ncat\n")
    (tmp_path / "tool").chmod(0o755)
    configure(monkeypatch, x={"command": ["./tool"], "cwd": str(tmp_path)})
    assert findings() == [("ok", "x: ./tool starts and waits for work")]


@pytest.mark.once
def test_the_doctor_knows_a_program_that_is_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tool").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "tool").chmod(0o755)
    configure(monkeypatch, x={"command": [str(tmp_path / "tool")]})
    ((level, text),) = findings()
    assert (level, text.startswith("x: cannot be started: ")) == ("problem", True)


def test_the_doctor_tells_of_executors_that_keep_dying_on_a_worker() -> None:
    worker = working(told(deaths_in_a_row=7, starts_again_in=25.0, last_fault="executor exited with code 9"))
    warned = [text for level, text in findings() if level == "warning"]
    assert len(warned) == 1
    assert warned[0].startswith(f"python died 7 times in a row on {worker}, and starts again in 2")
    assert warned[0].endswith(": executor exited with code 9")


@pytest.mark.once
@pytest.mark.parametrize("command", [["consume"], ["doctor"], ["check"]])
@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"command": "python"}, "the executor 'py': 'command' must be a list of strings"),
        ({"command": ["x"], "pool_size": 0}, "the executor 'py': 'pool_size' must be a whole number"),
        ({"command": ["x"], "shell": True}, "the executor 'py': 'shell' is none of"),
    ],
)
def test_a_malformed_executor_ends_every_command_with_one_line_and_code_78(
    command: list[str], about: dict[str, Any], words: str
) -> None:
    failed = manage(*command, ERGON_EXECUTORS=json.dumps({"py": about}))
    assert failed.returncode == os.EX_CONFIG
    assert failed.stderr.startswith(f"ergon: ERGON_EXECUTORS cannot be used: {words}")
    assert failed.stderr.count("\n") == 1


@pytest.mark.once
def test_settings_of_another_project_that_name_a_malformed_executor_are_code_78_too() -> None:
    class Broken(EngineCommand):
        def run(self, **_: Any) -> None:
            executors_in({"py": {"command": []}})

    with pytest.raises(CommandError, match="the executor 'py': 'command'") as caught:
        call_command(Broken())
    assert caught.value.returncode == os.EX_CONFIG
    assert isinstance(caught.value.__cause__, ExecutorConfigurationError)


def test_a_job_that_asked_to_be_tried_again_is_explained() -> None:
    pipeline = durable.make_pipeline("jobs", task="", executor="python")
    transactions.submit("jobs", {"function": "echo"}, id="again")
    (leased,) = durable.claim(pipeline)
    later = RetryLater("the bank is closed")
    later.error_type = "RetryJob"
    postponed = Later(failure=Failure(later), seconds=600.0, spent=2)
    assert transactions.postpone([transactions.Settlement(leased, postponed)]) == []
    explained = ask("explain", "again")
    assert explained["sentence"] == (
        "due in 10 min; it asked to be tried again after 2 attempts (RetryJob: the bank is closed)"
    )
    assert explained["facts"]["attempts_spent"] == 2
    assert "attempts spent" in run("explain", "again")


def test_what_a_job_is_can_be_read_from_its_payload() -> None:
    jobs = pipelines.create("jobs", pipelines.Plan(executor="python"), by="tests")
    task = pipelines.create("task", pipelines.Plan(task="tests.act"), by="tests")
    assert executing.job_of(jobs, {"function": "node#a#b"}) == ("node", "a#b")
    assert executing.job_of(jobs, {"function": "a"}) == ("python", "a")
    for payload in (None, {}, {"function": 1}, {"function": "node#"}):
        assert executing.job_of(jobs, payload) == ("python", "")
    assert executing.job_of(task, {"function": "a"}) is None
    assert executing.job_of(None, {"function": "a"}) is None


def test_stderr_and_tracebacks_are_told_apart() -> None:
    jobs = pipelines.create("jobs", pipelines.Plan(executor="python"), by="tests")
    task = pipelines.create("task", pipelines.Plan(task="tests.act"), by="tests")
    assert executing.is_stderr(jobs, "ExecutorDied", "Traceback (most recent call last):\nMemoryError")
    assert executing.is_stderr(jobs, "ValueError", "it was not found")
    assert not executing.is_stderr(jobs, "TimeoutError", "engines.core.errors.TransactionException: too late")
    assert not executing.is_stderr(jobs, "ExecutorDied", "")
    assert not executing.is_stderr(task, "ExecutorDied", "anything")
    assert not executing.is_stderr(None, "ExecutorDied", "anything")


def test_settings_show_what_is_not_given() -> None:
    assert executors_in({"x": {"command": ["y"]}})["x"] == ExecutorSettings(name="x", command=("y",))
