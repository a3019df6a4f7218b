"""`manage.py consume` and `produce` as people and programs meet them: codes, events, options."""

import io
import json
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from engines.models import TransactionRecord, Worker
from tests.commands import hear
from tests.database import NO_SPACE, refusing
from tests.durable_transactions import consume, consumer, make_policy, states, submit, wait_until_started
from tests.factories import make_pipeline
from tests.processes import LIMIT, eventually, free_port, manage

pytestmark = pytest.mark.django_db(transaction=True)


def test_draining_runs_everything_and_tells_it_event_by_event() -> None:
    pipeline = make_pipeline(policy=make_policy())
    good, bad = submit(pipeline, 30), submit(pipeline, 2, fail="broken")
    run = consume("--drain")
    assert run.code == 0
    assert states(*good, *bad) == ["succeeded"] * 30 + ["failed"] * 2
    assert run.events[0]["event"] == "started"
    stopped = run.last("stopped")
    told = {name: stopped[name] for name in ("pipeline", "succeeded", "failed", "given_back", "code")}
    assert told == {"pipeline": "orders", "succeeded": 30, "failed": 2, "given_back": 0, "code": 0}
    assert all({"event", "pipeline", "succeeded", "failed", "at"} <= set(event) for event in run.events)


@pytest.mark.once
def test_without_pipelines_draining_ends_well_and_says_what_to_do() -> None:
    run = consume("--drain")
    assert (run.code, run.events) == (0, [])
    assert "manage.py pipeline create" in run.errors


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["nowhere"], 2, "there is no pipeline named 'nowhere'"),
        (["--concurrency", "0"], 2, "must be a whole number from 1"),
        (["--timeout", "soon"], 2, "must be a number of seconds"),
        (["out"], 2, "is outbound: use manage.py produce"),
        (["lost"], 78, "there is no task named 'no.such.task'"),
    ],
)
def test_what_cannot_run_ends_at_once_with_its_code_and_one_line(arguments: list[str], code: int, problem: str) -> None:
    make_pipeline("lost", task="no.such.task")
    make_pipeline("out", task="tests.send", direction="outbound")
    run = consume("--drain", *arguments)
    assert run.code == code
    assert problem in run.errors
    assert "Traceback" not in run.errors
    assert not Worker.objects.filter(state="running").exists()


@pytest.mark.once
def test_a_database_that_does_not_answer_is_code_69() -> None:
    run = consume("--drain", DATABASE_URL="postgresql://nobody:x@127.0.0.1:1/none")
    assert run.code == 69
    assert "the database does not answer" in run.errors


@pytest.mark.once
def test_a_database_without_its_migrations_is_code_69_and_one_line(tmp_path: Path) -> None:
    run = consume("--drain", DATABASE_URL=f"sqlite:///{tmp_path}/empty.sqlite3")
    assert run.code == 69
    assert "run manage.py migrate" in run.errors
    assert "Traceback" not in run.errors


def test_a_consumer_says_at_its_start_what_it_runs_and_on_which_database() -> None:
    make_pipeline(policy=make_policy())
    run = manage("consume", "--drain", ERGON_TASKS="tests.tasks")
    where = "PostgreSQL" if connection.vendor == "postgresql" else "SQLite"
    first, headings, row = run.stderr.splitlines()[:3]
    assert first.startswith(f"consume: 1 pipeline, database {where} ")
    assert str(connection.settings_dict["NAME"]) in first
    assert headings.split() == ["PIPELINE", "RUNS", "CONNECTOR", "CONCURRENCY", "POLICY"]
    assert row.split() == ["orders", "task", "tests.act", "database", "4", "quick", "v1"]
    assert run.stdout == "orders: 0 succeeded, 0 failed\n"
    several = manage("consume", "--drain", "--processes", "2", "--concurrency", "7", ERGON_TASKS="tests.tasks")
    assert several.stderr.startswith("consume: 1 pipeline in 2 processes, database ")
    assert " 7 " in several.stderr.splitlines()[2]
    assert several.stderr.count("consume: ") == 1


@pytest.mark.parametrize("task", ["tests.act", "tests.act_async"])
def test_each_final_failure_is_one_line_of_the_log_with_its_error(task: str) -> None:
    retried = {"steps": {"process": {"retry": {"max_attempts": 2, "backoff": 0}}}}
    pipeline = make_pipeline(task=task, policy=make_policy(body=retried))
    failing = submit(pipeline, 2, fail="no such customer; see https://ada:hunter2@shop.example")
    submit(pipeline, 3)
    refused = submit(pipeline, 1, reject="closed on Sundays")
    run = consume("--drain")
    lines = [json.loads(line) for line in run.errors.splitlines() if "transaction_failed" in line]
    assert {line["transaction"] for line in lines} == {*failing, *refused}
    assert len(lines) == 3
    told = next(line for line in lines if line["transaction"] == failing[0])
    assert told["error"].startswith("ValueError: no such customer")
    assert "hunter2" not in run.errors
    assert (told["pipeline"], told["step"], told["category"], told["attempts"]) == ("orders", "process", "SYSTEM", 2)
    assert next(line for line in lines if line["transaction"] == refused[0])["category"] == "BUSINESS"


@pytest.mark.once
def test_a_pipeline_whose_task_is_not_here_is_left_out_and_named() -> None:
    pipeline = make_pipeline(policy=make_policy())
    make_pipeline("lost", task="no.such.task")
    ids = submit(pipeline, 2)
    run = consume("--drain")
    assert run.code == 0
    assert "the pipeline 'lost' is skipped: there is no task 'no.such.task' here" in run.errors
    assert set(states(*ids)) == {"succeeded"}


@pytest.mark.once
def test_a_pipeline_without_the_address_of_its_broker_is_left_out_or_is_bad_configuration() -> None:
    ids = submit(make_pipeline(policy=make_policy()), 2)
    make_pipeline("queue", connector="broker", policy="quick")
    run = consume("--drain", CELERY_BROKER_URL="")
    assert (run.code, set(states(*ids))) == (0, {"succeeded"})
    assert "the pipeline 'queue' is skipped: there is no address of a broker (CELERY_BROKER_URL) here" in run.errors
    run = consume("queue", "--drain", CELERY_BROKER_URL="")
    assert run.code == 78
    assert "set CELERY_BROKER_URL to its address" in run.errors
    assert not Worker.objects.filter(state="running").exists()


def test_a_database_without_room_is_code_69_and_one_line() -> None:
    make_pipeline(policy=make_policy())
    with refusing("engines_worker"):
        run = consume("--drain")
    assert run.code == 69
    assert f"the database refuses: {NO_SPACE}" in run.errors
    assert "Traceback" not in run.errors


@pytest.mark.once
def test_a_file_that_may_not_grow_is_code_69_and_one_line(tmp_path: Path) -> None:
    make_pipeline()
    payload = tmp_path / "payload.jsonl"
    # More than the room that there may still be in the file.
    payload.write_text("\n".join([json.dumps({"payload": "x" * 900_000})] * 50))
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA page_count")
        cursor.execute(f"PRAGMA max_page_count = {cursor.fetchone()[0]}")
    try:
        with pytest.raises(CommandError, match="the database refuses: database or disk is full") as refused:
            call_command("submit", "orders", "--input", str(payload), stdout=io.StringIO())
    finally:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA max_page_count = 4294967294")
    assert refused.value.returncode == 69


@pytest.mark.postgresql
def test_a_database_that_is_read_only_is_code_69_and_one_line() -> None:
    make_pipeline(policy=make_policy())
    run = consume("--drain", PGOPTIONS="-c default_transaction_read_only=on")
    assert run.code == 69
    assert "the database refuses: cannot execute INSERT in a read-only transaction" in run.errors
    assert "Traceback" not in run.errors


@pytest.mark.once
def test_a_time_limit_ends_a_producer_that_has_nothing_to_do() -> None:
    make_pipeline("out", task="tests.send", direction="outbound")
    assert consume("out", "--timeout", "0.5", command="produce").code == 0


def test_a_limit_and_a_time_limit_end_it_well() -> None:
    pipeline = make_pipeline(policy=make_policy())
    ids = submit(pipeline, 10)
    assert consume("orders", "--limit", "4").code == 0
    assert states(*ids).count("succeeded") == 4
    assert consume("orders", "--timeout", "10").code == 0
    assert states(*ids).count("succeeded") == 10


@pytest.mark.once
def test_options_can_be_given_as_variables() -> None:
    pipeline = make_pipeline(policy=make_policy())
    ids = submit(pipeline, 5)
    assert consume("orders", ERGON_DRAIN="1", ERGON_LIMIT="2", ERGON_CONCURRENCY="1").code == 0
    assert states(*ids).count("succeeded") == 2


def test_an_idle_consumer_says_that_it_waits_and_can_be_asked_for_its_metrics() -> None:
    pipeline = make_pipeline(policy=make_policy())
    port = free_port()
    with consumer("orders", "--metrics-port", str(port)) as process:
        assert wait_until_started(process)["pipeline"] == "orders"
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "waiting"
        address = f"http://127.0.0.1:{port}/metrics"
        assert "python_info" in httpx.get(address, timeout=LIMIT).text
        submit(pipeline, 2)
        labels = 'ergon_outcome="success",ergon_pipeline="orders",ergon_task="Act"'
        eventually(
            lambda: f"ergon_transactions_total{{{labels}" in httpx.get(address, timeout=LIMIT).text,
            "its pipeline is told",
        )
        eventually(lambda: Worker.objects.get().state == "running", "its heart beats")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
        assert process.returncode == 0
    assert Worker.objects.get().state == "stopped"


@pytest.mark.parametrize(("task", "processes"), [("tests.send", 2), ("tests.send_async", 1)])
def test_producing_from_a_file_keeps_each_line_and_sends_it_once(task: str, processes: int, tmp_path: Path) -> None:
    make_pipeline("out", task=task, direction="outbound", policy=make_policy("brief", {}, "producer"))
    lines = [{"payload": {"n": 1}, "id": "one"}, {"payload": {"fail": "broken"}, "id": "two"}, {"payload": {"n": 3}}]
    source = tmp_path / "lines.jsonl"
    source.write_text("\n".join(json.dumps(line) for line in lines))
    for count in (1, processes):
        run = consume("out", "--input", str(source), "--processes", str(count), command="produce")
        assert run.code == 0, run.errors
    assert states("one", "two") == ["succeeded", "failed"]
    assert TransactionRecord.objects.count() == 4  # the line without an id is new each time
    assert set(TransactionRecord.objects.values_list("attempts", flat=True)) == {1}


def test_producing_goes_on_with_what_is_submitted_until_stopped_and_tells_what_waits() -> None:
    pipeline = make_pipeline("out", task="tests.send", direction="outbound")
    address = f"http://127.0.0.1:{(port := free_port())}/metrics"
    with consumer("out", "--metrics-port", str(port), command="produce") as process:
        wait_until_started(process)
        ids = submit(pipeline, 5)
        eventually(lambda: set(states(*ids)) == {"succeeded"}, "all are sent")
        told = r'^ergon_queue_(depth|oldest_age)\w*{.*ergon_pipeline="out",ergon_task="Send".*} 0.0$'
        eventually(
            lambda: len(re.findall(told, httpx.get(address, timeout=LIMIT).text, re.MULTILINE)) == 2,
            "nothing waits, it says",
        )
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT)
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("command", "task"),
    [
        ("consume", "tests.act"),
        ("consume", "tests.act_async"),
        ("produce", "tests.send"),
        ("produce", "tests.send_async"),
    ],
)
def test_a_handler_that_raises_what_ends_or_breaks_others_fails_its_transaction_alone(command: str, task: str) -> None:
    direction, kind = DIRECTIONS[command]
    pipeline = make_pipeline("orders", task, direction=direction, policy=make_policy(body={}, kind=kind))
    leaving = [*submit(pipeline, leave="exit"), *submit(pipeline, leave="interrupt")]
    leaving += [*submit(pipeline, broken="mute"), *submit(pipeline, broken="unsure")]
    good = submit(pipeline, 3)
    run = consume("orders", "--drain", command=command)
    assert run.code == 0, run.errors
    assert states(*leaving, *good) == ["failed"] * 4 + ["succeeded"] * 3
    errors = TransactionRecord.objects.filter(uid__in=leaving).values_list("error", flat=True)
    assert {error and error["category"] for error in errors} == {"SYSTEM"}


DIRECTIONS = {"consume": ("inbound", "consumer"), "produce": ("outbound", "producer")}
LIMITS = [{"timeout": 5.0}, {"limit": 1}]


@pytest.mark.parametrize("limit", LIMITS)
def test_a_pipeline_that_ends_by_the_limit_of_its_policy_says_so_and_the_others_go_on(limit: dict[str, Any]) -> None:
    short = make_pipeline("short", policy=make_policy("bounded", {"loop": limit}))
    other = make_pipeline("other", policy=make_policy(body={}))
    (first,) = submit(short)
    with consumer("short", "other") as process:
        eventually(lambda: states(first) == ["succeeded"], "the first one has run")
        hear(process, f"the pipeline 'short' has ended by its policy's loop.{next(iter(limit))}")
        late, good = submit(short), submit(other)
        eventually(lambda: states(*good) == ["succeeded"], "the other pipeline goes on")
        assert states(*late) == ["pending"]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT)
    assert process.returncode == 0


@pytest.mark.parametrize("limit", LIMITS)
def test_a_producer_ends_by_the_limit_of_its_policy(limit: dict[str, Any]) -> None:
    policy = make_policy(body={"loop": limit}, kind="producer")
    pipeline = make_pipeline("out", "tests.send", direction="outbound", policy=policy)
    (first,) = submit(pipeline)
    run = consume("out", command="produce")
    assert (run.code, states(first)) == (0, ["succeeded"])
    assert f"the pipeline 'out' has ended by its policy's loop.{next(iter(limit))}" in run.errors
