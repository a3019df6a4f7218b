"""Executor pipelines in `consume`: jobs in real processes, their outcomes in rows."""

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from engines import transactions
from engines.core.states import State
from engines.models import Attempt, DeadLetter, TransactionRecord
from engines.reads import explain
from tests.durable_transactions import Run, consume, consumer, make_policy, states, wait_until_started
from tests.executors.executor_pools import lives
from tests.factories import make_pipeline
from tests.processes import LIMIT, eventually, is_alive, words_of

pytestmark = pytest.mark.django_db(transaction=True)

PYTHON = [sys.executable, "-m", "engines.executors", "--handlers", "tests.executors.handlers"]
EXECUTORS = {"python": {"command": PYTHON, "pool_size": 2}, "broken": {"command": ["/bin/false"]}}
COMMANDS = {"inbound": "consume", "outbound": "produce"}
VARIABLES = {"ERGON_EXECUTORS": json.dumps(EXECUTORS)}


def policy(**retry: Any) -> str:
    body = {
        "loop": {"concurrency": {"value": 4}, "empty_queue": {"backoff": 0.05, "backoff_cap": 0.2}},
        "steps": {"process": {"retry": retry}},
        "retry_after_ceiling": 600,
    }
    return make_policy("for-jobs", body)


def jobs_pipeline(executor: str = "python", **retry: Any) -> None:
    make_pipeline("jobs", task=None, executor=executor, policy=policy(**retry))  # type: ignore[arg-type]


def submit_job(function: Any, *args: Any, **kwargs: Any) -> str:
    payload = {"function": function, "args": list(args), "kwargs": kwargs}
    return transactions.submit("jobs", payload).id


def drain() -> Run:
    return consume("jobs", "--drain", **VARIABLES)


def attempts(uid: str) -> list[tuple[Any, ...]]:
    record = TransactionRecord.objects.get(uid=uid)
    rows = Attempt.objects.filter(transaction_id=record.pk).order_by("delivery", "step", "number")
    return [(row.number, row.of_total, row.error_type) for row in rows]


def letter_of(uid: str) -> DeadLetter:
    return DeadLetter.objects.get(uid=uid)


def test_every_word_of_an_executor_becomes_its_outcome() -> None:
    jobs_pipeline(max_attempts=2)
    done = submit_job("python#echo", 1, two=2)
    plain, prefixed = submit_job("context", "x"), submit_job("#pid")
    failed, slow = submit_job("fail", "no such order"), submit_job("time_out")
    missing, nobody, nameless = submit_job("bad#b#c"), submit_job("python#b#c"), submit_job("python#")
    shapeless = transactions.submit("jobs", ["not", "a", "job"]).id
    run = drain()
    assert run.code == 0, run.errors
    assert states(done, plain, prefixed) == ["succeeded"] * 3
    results: dict[str, Any] = dict(TransactionRecord.objects.values_list("uid", "result"))
    assert results[done] == {"args": [1], "kwargs": {"two": 2}}
    told = results[plain]
    assert (told["job_id"], told["attempt"], told["queue_name"], told["args"]) == (plain, 1, "jobs", ["x"])
    assert told["worker_id"].rpartition(":")[2].isdigit()
    assert told["has_deadline"] is False
    assert attempts(failed) == [(1, 2, "ValueError"), (2, 2, "ValueError")]
    assert (letter_of(failed).error_type, letter_of(failed).message) == ("ValueError", "no such order")
    assert letter_of(slow).category == "TIMEOUT"
    for fatal, words in {
        missing: "no executor named 'bad'",
        nobody: "no handler named 'b#c'",
        nameless: "names no handler",
        shapeless: "must be an object",
    }.items():
        assert len(attempts(fatal)) == 1
        assert words in letter_of(fatal).message


def test_an_executor_gets_only_variables_that_are_allowed() -> None:
    jobs_pipeline()
    executors = {"python": {"command": PYTHON, "env": {"SHOP_MODE": "test"}}}
    secrets = {"AWS_SECRET_ACCESS_KEY": "x", "SMTP_PASSWORD": "x", "BANK_URL": "x", "BANK_USER": "x"}
    uid = submit_job("variables")
    settings = {"ERGON_EXECUTORS": json.dumps(executors), "ERGON_EXECUTOR_VARIABLES": "BANK_URL"}
    assert consume("jobs", "--drain", **settings, **secrets).code == 0
    names = set(TransactionRecord.objects.get(uid=uid).result or ())
    assert {"PATH", "SHOP_MODE", "BANK_URL"} <= names
    assert not names & {"AWS_SECRET_ACCESS_KEY", "SMTP_PASSWORD", "BANK_USER", "DATABASE_URL", "ERGON_EXECUTORS"}


@pytest.mark.parametrize("direction", ["inbound", "outbound"])
def test_draining_does_not_end_before_what_asks_for_another_attempt_at_once_has_had_it(direction: str) -> None:
    kind, step = ("consumer", "process") if direction == "inbound" else ("producer", "produce")
    rules = make_policy(kind, {"steps": {step: {"retry": {"max_attempts": 5}}}}, kind)
    make_pipeline("jobs", task=None, executor="python", direction=direction, policy=rules)  # type: ignore[arg-type]
    again = submit_job("retry", 3, after=0)
    assert consume("jobs", "--drain", command=COMMANDS[direction], **VARIABLES).code == 0
    assert states(again) == ["succeeded"]
    assert len(attempts(again)) == 4


def test_one_that_asks_for_a_later_attempt_goes_back_and_its_attempts_count() -> None:
    jobs_pipeline(max_attempts=3, backoff=0.2)
    twice, never = submit_job("retry", 2, after=0.3), submit_job("retry", 5)
    far = submit_job("retry", 1, after=10_000)
    with consumer("jobs", **VARIABLES) as running:
        wait_until_started(running)
        eventually(lambda: states(far) == ["pending"] and len(attempts(far)) == 1, "it has gone back")
        waiting = TransactionRecord.objects.get(uid=far)
        # The policy's ceiling, not what the handler asked for.
        assert 0 < (waiting.available_at - waiting.created_at).total_seconds() < 2000
        assert "asked" in explain.explain(far)["sentence"] or explain.explain(far)["facts"]["due_in"] > 0
        TransactionRecord.objects.filter(uid=far).update(available_at=waiting.created_at)
        eventually(lambda: states(twice, never, far) == ["succeeded", "failed", "succeeded"], "all have ended")
    assert [one[:2] for one in attempts(twice)] == [(1, 3), (2, 3), (3, 3)]
    assert TransactionRecord.objects.get(uid=twice).result == "done at attempt 3"
    assert len(attempts(never)) == 3
    assert letter_of(never).message == "not yet, it is attempt 3"
    assert TransactionRecord.objects.get(uid=twice).attempts == 3


@pytest.mark.once
def test_a_job_that_never_ends_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    jobs_pipeline()
    for timeout in (4, 60):  # the second for a machine that starts processes slowly
        policy(max_attempts=1, timeout=timeout)
        written = tmp_path / f"grandchild-{timeout}"
        stuck, fine = submit_job("spawn", str(written)), submit_job("stubborn", 3600)
        run = drain()
        assert run.code == 0, run.errors
        assert states(stuck, fine) == ["failed", "failed"]
        assert letter_of(stuck).category == "TIMEOUT"
        if written.exists() and written.read_text():
            break
    assert not lives(int(written.read_text()))


@pytest.mark.once
def test_a_crash_is_a_system_failure_that_is_tried_again_in_another_process() -> None:
    jobs_pipeline(max_attempts=2)
    crash, fine = submit_job("die", 7), submit_job("echo")
    run = drain()
    assert (run.code, states(crash, fine)) == (0, ["failed", "succeeded"])
    assert "executor exited with code 7" in letter_of(crash).message
    assert len(attempts(crash)) == 2


@pytest.mark.once
def test_an_executor_that_cannot_run_makes_dead_letters_that_say_why() -> None:
    jobs_pipeline("broken", max_attempts=2)
    uid = submit_job("echo")
    assert drain().code == 0
    assert "executor exited with code 1" in letter_of(uid).message


@pytest.mark.parametrize("direction", ["inbound", "outbound"])
def test_jobs_of_an_executor_that_backs_off_hold_up_no_others_and_spend_no_attempts(direction: str) -> None:
    kind, step = ("consumer", "process") if direction == "inbound" else ("producer", "produce")
    body = {"loop": {"concurrency": {"value": 4}}, "steps": {step: {"retry": {"max_attempts": 1000}}}}
    make_pipeline(
        "jobs",
        task=None,  # type: ignore[arg-type]
        executor="python",
        direction=direction,
        policy=make_policy(kind, body, kind),
    )
    stuck = [submit_job("broken#echo") for _ in range(8)]
    good = [submit_job("echo", number) for number in range(20)]
    with consumer("jobs", command=COMMANDS[direction], **VARIABLES) as running:
        wait_until_started(running)
        eventually(lambda: states(*good) == ["succeeded"] * 20, "others run")
        eventually(lambda: bool(parked()), "those of the broken one wait")
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=LIMIT)
    assert states(*stuck) == ["pending"] * 8
    assert parked()
    for record in parked():
        error: Any = record.error
        # More were made where the end came between an attempt and the next: then none counts as spent.
        assert error["spent"] <= len(attempts(record.uid)), "to wait is no attempt"
        assert record.attempts <= error["spent"], "nor a delivery"
        assert "waiting for the executor 'broken'" in explain.explain(record.uid)["sentence"]


def parked() -> list[TransactionRecord]:
    return list(TransactionRecord.objects.filter(state=State.PENDING, error__type="NoPlace"))


def test_more_jobs_of_a_busy_executor_than_slots_hold_up_no_others(tmp_path: Path) -> None:
    make_pipeline(
        "jobs",
        task=None,  # type: ignore[arg-type]
        executor="python",
        policy=make_policy("two-slots", {"loop": {"concurrency": {"value": 2}}}),
    )
    one = {"command": PYTHON, "pool_size": 1}
    variables = {"ERGON_EXECUTORS": json.dumps({"python": one, "other": one})}
    waiting = [submit_job("wait_for", str(tmp_path / "mark")) for _ in range(7)]
    other = submit_job("other#mark", str(tmp_path / "mark"), "")
    with consumer("jobs", **variables) as running:
        wait_until_started(running)
        eventually(lambda: states(*waiting, other) == ["succeeded"] * 8, "it has passed the others, which ended then")
    assert {len(attempts(uid)) for uid in waiting} == {1}
    assert set(TransactionRecord.objects.values_list("attempts", flat=True)) == {1}


@pytest.mark.once
def test_an_order_to_end_gives_back_what_waits_for_an_executor(tmp_path: Path) -> None:
    make_pipeline(
        "jobs",
        task=None,  # type: ignore[arg-type]
        executor="python",
        policy=make_policy("three-slots", {"loop": {"concurrency": {"value": 3}, "batch": {"size": 1}}}),
    )
    variables = {"ERGON_EXECUTORS": json.dumps({"python": {"command": PYTHON}})}
    waiting = [submit_job("wait_for", str(tmp_path / "never")) for _ in range(5)]
    with consumer("jobs", "--grace", "0.5", **variables) as running:
        wait_until_started(running)
        # One runs and three wait aside, of which the last had its slot from another.
        eventually(lambda: states(*waiting).count("running") >= 4, "more have begun than there are slots")
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=LIMIT)
        assert running.returncode == 3
    assert states(*waiting) == ["pending"] * 5
    assert set(TransactionRecord.objects.values_list("attempts", flat=True)) == {0}
    assert not Attempt.objects.exists()


@pytest.mark.once
def test_a_pipeline_whose_executor_is_not_configured_is_named() -> None:
    jobs_pipeline("elsewhere")
    run = consume("jobs", "--drain", **VARIABLES)
    assert run.code == 78
    assert "'elsewhere'" in run.errors
    assert "broken, python" in run.errors or "python, broken" in run.errors


def test_an_order_to_end_kills_what_outlives_the_grace_and_burns_nothing(tmp_path: Path) -> None:
    jobs_pipeline(max_attempts=1)
    uid = submit_job("spawn", str(tmp_path / "grandchild"))
    with consumer("jobs", "--grace", "0.5", **VARIABLES) as running:
        wait_until_started(running)
        eventually((tmp_path / "grandchild").exists, "the job has begun")
        children = psutil.Process(running.pid).children(recursive=True)
        assert any("tests.executors.handlers" in words_of(one) for one in children)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=LIMIT)
        assert running.returncode == 3
    gone(children)
    record = TransactionRecord.objects.get(uid=uid)
    assert (record.word, record.attempts, attempts(uid)) == ("pending", 0, [])


@pytest.mark.once
def test_executors_die_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    jobs_pipeline(max_attempts=1)
    submit_job("spawn", str(tmp_path / "grandchild"))
    with consumer("jobs", **VARIABLES) as running:
        wait_until_started(running)
        eventually((tmp_path / "grandchild").exists, "the job has begun")
        children = psutil.Process(running.pid).children(recursive=True)
        running.kill()
        gone(children)


@pytest.mark.once
def test_waiting_for_a_process_does_not_eat_a_jobs_time() -> None:
    make_pipeline("jobs", task=None, executor="python", policy=make_policy("short"))  # type: ignore[arg-type]
    for limit in (2.5, 25.0):  # the second for a machine that starts processes slowly
        make_policy("short", {"loop": {"concurrency": {"value": 8}, "transaction_timeout": limit}, "steps": {}})
        uids = [submit_job("sleep", 0.32 * limit) for _ in range(8)]
        started = time.monotonic()
        assert drain().code == 0
        if set(states(*uids)) == {"succeeded"}:
            break
    assert set(states(*uids)) == {"succeeded"}
    assert time.monotonic() - started > 1.2 * limit  # four in a row in each of two processes


def gone(processes: list[psutil.Process]) -> None:
    assert processes
    eventually(lambda: not any(is_alive(one) for one in processes), "no process is left")
