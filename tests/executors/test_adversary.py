"""Executors that do everything wrong: every attempt ends, says why, and leaves nothing behind."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from engines import ExceptionType, RetryPolicy, Transaction
from engines.executors.pool import Pools
from engines.executors.settings import executors_in
from tests.executors.executor_pools import ENVIRONMENT, HANDLERS, Crew, adversary, job, lives, pool_of
from tests.processes import LIMIT, ROOT, eventually

pytestmark = pytest.mark.once

THRICE = RetryPolicy(max_attempts=3, timeout=20)
# How long a busy machine may take for what is done at once: less than a grandchild lives that nobody ends.
BUSY = 20.0
# Those whose death nobody waits for.
LIVE_ON = {"closes_stdout", "closed_stdin"}


@pytest.fixture(scope="module")
def handlers() -> Iterator[Crew]:
    """One process of Ergon's own runtime, for what does it no harm."""
    with pool_of(HANDLERS) as crew:
        yield crew


def grandchild(details: str) -> int:
    found = re.search(r"grandchild (\d+)", details)
    assert found, details
    return int(found[1])


@pytest.mark.parametrize("behaviour", ["noisy", "twice", "of_another", "once_only", "whole_without_end"])
def test_every_job_has_its_own_answer_whatever_stands_between(behaviour: str) -> None:
    with adversary(behaviour) as crew:
        # That one has just ended may be seen only after it was asked: that costs no attempt.
        ran = crew.run(*(job(f"t{number}", number) for number in range(5)), retry=RetryPolicy(timeout=20))
        assert ran.values == {f"t{n}": [n] for n in range(5)}


def test_what_is_no_answer_is_counted() -> None:
    with adversary("noisy") as crew:
        crew.run(job("t0", 1), job("t1", 2))
        (about,) = crew.pools.snapshot()
        assert about["skipped"] >= 8 + 8
        assert (about["answered"], about["died"], about["started"]) == (2, 0, 1)


def test_a_late_answer_is_nobodys() -> None:
    with adversary("slow") as crew:
        ran = crew.run(job("t0", 0), job("t1", 1), retry=RetryPolicy(timeout=0.2))
        assert [name for name, _ in ran.connector.outcomes] == ["t0", "t1"]
        assert ran.report.failed == 2
        assert crew.run(job("t2", 2)).value == [2]


def test_a_late_line_of_one_attempt_is_not_the_answer_to_the_next() -> None:
    with adversary("own_timeout") as crew:
        ran = crew.run(job(), retry=THRICE)
        assert ran.value == "second"


@pytest.mark.parametrize("status", ["error", "retry", "timeout"])
def test_what_an_attempt_still_says_while_the_next_one_runs_is_not_its_answer(status: str) -> None:
    with adversary("twice_at_the_second") as crew:
        assert crew.run(job("t0", status), retry=THRICE).value == "attempt 2"


def test_a_process_never_tries_a_job_again_that_it_has_tried_in_vain() -> None:
    with adversary("retries", pool_size=2) as crew:
        ran = crew.run(job("t0"), retry=THRICE)
        assert ran.value == [crew.pools.snapshot()[0]["processes"][-1]["pid"]]
        assert crew.pools.snapshot()[0]["started"] == 3
        assert crew.pools.snapshot()[0]["died"] == 0, "it is no fault of theirs"


@pytest.mark.parametrize(
    ("behaviour", "message", "details"),
    [
        ("half", "executor exited with code 3 in the middle of a line: 'one'", "I am not well"),
        ("kills_itself", "executor exited with code 137 (SIGKILL): 'one'", "about to go"),
        ("signals_itself", "executor exited with code 165 (signal 37): 'one'", ""),
        ("exits", "executor exited with code 7: 'one'", "cannot load the model\nno such file"),
        ("closes_stdout", "executor 'one' closed its output without an answer", ""),
        ("closed_stdin", "executor 'one' closed its input before it had read the job", ""),
        ("endless_line", "executor 'one' was ended: a line is longer than 16,777,216 bytes", ""),
        (
            "broken_and_gone",
            (
                "executor exited with code 4: 'one'; a line that looked like its answer is not JSON: "
                "Expecting value: line 1 column 52 (char 51)"
            ),
            "",
        ),
        (
            "unreadable_and_gone",
            (
                "executor exited with code 4 in the middle of a line: 'one'; "
                "its answer cannot be read: NaN is not a JSON number"
            ),
            "",
        ),
    ],
)
def test_a_broken_executor_is_a_failure_of_the_system_that_says_what_happened(
    behaviour: str, message: str, details: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.executors.stdio.LAST_WORDS", LIMIT)  # each closes its standard error as it ends
    if behaviour not in LIVE_ON:
        monkeypatch.setattr("engines.executors.stdio.OBITUARY", LIMIT)
    with adversary(behaviour) as crew:
        if behaviour == "closed_stdin":
            assert str(crew.run(job("t0", "x" * 1_000_000)).error) == message
        error = crew.run(job()).error
        assert (error.category, str(error)) == (ExceptionType.SYSTEM, message)
        assert error.details == details


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('"finished"', "its answer breaks the protocol: the status 'finished' is none of success, retry"),
        ("7", "its answer breaks the protocol: status is a number"),
        ('"success", "result": NaN', "its answer cannot be read: NaN is not a JSON number"),
        ('"success", "result": undefined', "its answer is not JSON: Expecting value"),
        ('"success", "result": 1e400', "its answer cannot be read: the number 1e400 is too large"),
        (f'"success", "result": {"9" * 5000}', "its answer cannot be read: a number has 5,000 digits"),
        (f'"success", "result": {"[" * 9999}{"]" * 9999}', "its answer cannot be read: it is nested too deeply"),
    ],
    ids=lambda text: text[:40],
)
def test_an_answer_that_cannot_be_taken_ends_the_attempt_and_the_process_at_once(said: str, reason: str) -> None:
    with adversary("says") as crew:
        error = crew.run(job("t0", said), retry=RetryPolicy(timeout=3600)).error
        assert error.category is ExceptionType.SYSTEM
        assert reason in str(error)
        eventually(lambda: crew.pools.snapshot()[0]["processes"] == [], "the process is ended")


def test_half_an_answer_costs_no_attempt_and_explains_one_that_nothing_better_followed() -> None:
    with adversary("half_at_first") as crew:
        assert crew.run(job("t0", 5), retry=RetryPolicy(timeout=20)).value == [5]
        for killed, timeout in enumerate((1.5, 15), start=1):  # the second for a machine that stood still
            error = crew.run(job(f"t{killed}"), retry=RetryPolicy(timeout=timeout)).error
            assert error.category is ExceptionType.TIMEOUT
            if error.details:
                break
        assert error.details.startswith("a line that looked like its answer is not JSON: Expecting value")
        (about,) = crew.pools.snapshot()
        assert (about["died"], about["killed"]) == (0, killed)


def test_an_answer_that_is_not_utf8_ends_the_attempt_at_once() -> None:
    with adversary("not_utf8") as crew:
        assert "its answer cannot be read: it is not UTF-8" in str(crew.run(job(), retry=RetryPolicy()).error)


@pytest.mark.parametrize("said", ['"success", "result": 1e308', f'"success", "result": {9**999}'])
def test_large_numbers_are_numbers(said: str) -> None:
    with adversary("says") as crew:
        assert crew.run(job("t0", said)).value in (1e308, 9**999)


@pytest.mark.parametrize(
    ("behaviour", "payload"),
    [
        ("stubborn", 1),
        ("endless_lines", 1),
        ("never_reads", "x" * 1_000_000),
        ("closes_stdin", "x"),
        ("with_grandchild", 1),
        ("with_runaway", 1),
    ],
)
def test_one_that_does_not_answer_is_ended_in_time_with_all_that_it_started(behaviour: str, payload: Any) -> None:
    with adversary(behaviour) as crew:
        if behaviour == "closes_stdin":
            assert crew.run(job("t0", payload)).value == ["x"]
        ran = crew.run(job("t1", payload), retry=RetryPolicy(timeout=0.5))
        if behaviour != "closes_stdin":
            assert ran.error.category is ExceptionType.TIMEOUT
            assert "0.5 s" in str(ran.error)
        assert ran.elapsed < 0.5 + BUSY
        eventually(lambda: crew.pools.snapshot()[0]["processes"] == [] or behaviour == "closes_stdin", "it is gone")


def test_an_attempt_never_begins_before_the_last_one_is_gone(tmp_path: Path) -> None:
    with adversary("stubborn_in_turn") as crew:
        for timeout in (0.3, 3, 30):  # the longer ones for a machine that gives the processes too little time to write
            written = tmp_path / str(timeout)
            ran = crew.run(job("t0", str(written)), retry=RetryPolicy(max_attempts=2, timeout=timeout))
            assert ran.error.category is ExceptionType.TIMEOUT
            lines = written.read_text().splitlines() if written.exists() else []
            if len(lines) == 2:
                break
        assert [len(line.split()) for line in lines] == [1, 1], "each writes its own number and none of a living one"


@pytest.mark.parametrize("behaviour", ["leaves_grandchild", "leaves_runaway"])
def test_a_grandchild_that_holds_the_pipes_holds_nobody_up(behaviour: str) -> None:
    with adversary(behaviour) as crew:
        ran = crew.run(job())
        assert str(ran.error) == "executor exited with code 5: 'one'"
        assert ran.elapsed < BUSY, "and not when the grandchild ends"
        pid = grandchild(ran.error.details)
        eventually(lambda: not lives(pid), "the grandchild is gone as well")


@pytest.mark.parametrize("behaviour", ["with_runaway", "with_daemon"])
def test_what_left_the_group_is_ended_with_the_process_whose_time_is_up(behaviour: str) -> None:
    with adversary(behaviour) as crew:
        said, words = crew.pools.find("one").snapshot, ""
        for timeout in (3, 30):  # the second for a machine that starts no grandchild in so short a time
            if "grandchild" not in words:
                crew.run(job(), retry=RetryPolicy(timeout=timeout))
                words = " ".join(said()["said"])
        pid = grandchild(words)
        eventually(lambda: not lives(pid), "the grandchild is gone as well")


def test_what_left_the_group_is_ended_with_the_worker() -> None:
    with adversary("with_daemon") as crew:
        assert crew.run(job("t0", 1)).value == [1]
        said = crew.pools.find("one").snapshot
        eventually(lambda: any("grandchild" in line for line in said()["said"]), "what it said is read as well")
        pid = grandchild(" ".join(said()["said"]))
        assert lives(pid), "its executor lives on"
    assert not lives(pid)


def test_one_that_answers_before_it_has_read_everything_is_not_used_again() -> None:
    with adversary("answers_unread") as crew:
        assert crew.run(job("t0", "x" * 1_000_000)).value == "quick"
        assert crew.run(job("t1", "x" * 1_000_000)).value == "quick"
        assert crew.pools.snapshot()[0]["started"] == 2


@pytest.mark.parametrize("behaviour", ["unended_noise", "chats"])
def test_what_is_printed_without_an_end_of_line_costs_nothing(behaviour: str) -> None:
    with adversary(behaviour) as crew:
        for number in range(3):
            assert crew.run(job(f"t{number}", number), retry=RetryPolicy(timeout=20)).value == [number]
        (about,) = crew.pools.snapshot()
        assert (about["started"], about["died"], about["last_fault"]) == (1, 0, "")


def test_what_follows_an_answer_without_end_loses_no_job() -> None:
    with adversary("endless_after") as crew:
        ran = crew.run(*(job(f"t{number}", number) for number in range(3)), retry=THRICE)
        assert ran.values == {f"t{n}": [n] for n in range(3)}


def test_a_flood_on_stderr_harms_nobody() -> None:
    with adversary("floods_stderr") as crew:
        assert crew.run(job("t0", 1)).value == [1]


def test_what_looks_like_a_secret_on_stderr_is_told_to_nobody(handlers: Crew) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEsecretlines\n-----END PRIVATE KEY-----"
    with capture_logs() as logged:
        for message in (f"{'x' * 270} https://ada:hunter2@bank.example/ password=geheim123", key):
            handlers.run(job("t0", message, function="fail"))
        handlers.run(job("t0", "that was all", function="print"))
        eventually(lambda: "that was all" in str(handlers.pools.snapshot()), "the last line has been heard")
    told = json.dumps([handlers.pools.snapshot(), logged], default=str)
    assert "ValueError" in told
    for secret in ("ada", "hunter2", "geheim123", "secretlines"):
        assert secret not in told


def test_a_command_that_exits_at_once_is_started_ever_more_slowly() -> None:
    with adversary("exits", pool_size=2) as crew:
        ran = crew.run(job(), retry=RetryPolicy(max_attempts=4, timeout=20))
        assert ran.elapsed > 0.1 + 0.2 + 0.4
        assert "code 7" in str(ran.error)
        (about,) = crew.pools.snapshot()
        assert (about["deaths_in_a_row"], about["started"]) == (4, 4)
        assert about["starts_again_in"] <= 0.8
        assert "executor exited with code 7" in about["last_fault"]


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"command": ["/no/such/program"]}, "executor 'one' cannot be started: /no/such/program: No such file"),
        ({"command": ["/"]}, "executor 'one' cannot be started: /: Permission denied"),
        ({"command": HANDLERS, "cwd": "/no/such/folder"}, "cannot be started: /no/such/folder: No such file"),
        ({"command": HANDLERS, "env": {"A": "b\0c"}}, "cannot be started: "),
    ],
)
def test_a_command_that_cannot_be_started_says_why_and_is_not_tried_without_end(
    about: dict[str, Any], message: str
) -> None:
    with pool_of(**about) as crew:
        ran = crew.run(job(), retry=THRICE)
        assert message in str(ran.error)
        assert ran.error.category is ExceptionType.SYSTEM
        assert ran.elapsed > 0.1 + 0.2
        assert crew.pools.snapshot()[0]["started"] == 0


def test_a_wait_for_a_process_does_not_eat_the_jobs_time(handlers: Crew) -> None:
    handlers.run(job("warm"))
    for takes in (0.5, 5.0):  # the second for a machine that stood still
        jobs = [job(f"t{number}-{takes}", takes, function="sleep") for number in range(3)]
        limit = 2.8 * takes
        ran = handlers.run(*jobs, concurrency=3, retry=RetryPolicy(timeout=limit), transaction_timeout=limit)
        if ran.report.succeeded == 3:
            break
    assert ran.report.succeeded == 3
    assert ran.elapsed > 3 * takes


@pytest.mark.parametrize("busy", [1, 3])
def test_jobs_that_wait_for_an_executor_keep_no_slot_from_jobs_of_another(tmp_path: Path, busy: int) -> None:
    about = {"command": HANDLERS, "cwd": str(ROOT)}
    crew = Crew(Pools(executors_in({"one": about, "two": about}), ENVIRONMENT))
    mark = str(tmp_path / "mark")
    waiting = [job(f"w{number}", mark, function="wait_for") for number in range(1 + busy)]
    others = [job(f"t{number}", mark, "", function="two#mark") for number in range(5)]
    try:
        # Of one executor only one runs, and it ends when one of the other has run.
        ran = crew.run(*waiting, *others, concurrency=1 + busy, retry=RetryPolicy(timeout=60))
        assert ran.report.succeeded == len(waiting) + len(others)
    finally:
        crew.pools.close()


def test_no_more_jobs_run_at_once_than_slots_however_many_wait(tmp_path: Path) -> None:
    about = {"command": HANDLERS, "cwd": str(ROOT), "pool_size": 4}
    crew = Crew(Pools(executors_in({"one": about, "two": about}), ENVIRONMENT))
    mark = str(tmp_path / "mark")
    try:
        jobs = [job(f"{one}{n}", mark, function=f"{one}#overlap") for n in range(10) for one in ("one", "two")]
        assert crew.run(*jobs, concurrency=3, retry=RetryPolicy(timeout=60)).report.succeeded == 20
    finally:
        crew.pools.close()
    running = most = 0
    for line in Path(mark).read_text().splitlines():
        running += 1 if line == "begin" else -1
        most = max(most, running)
    assert most <= 3


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"function": "nowhere#echo"}, "there is no executor named 'nowhere' in ERGON_EXECUTORS; there are: one"),
        ({"function": "one#"}, "the function 'one#' names no handler"),
        ({"function": ""}, "the function '' names no handler"),
        ({"function": "nobody"}, "there is no handler named 'nobody'; there are: "),
        ({"function": 5}, "the payload names no function"),
        ({}, "the payload names no function"),
        ("echo", "the payload must be an object"),
        ({"function": "echo", "args": "x"}, "the payload's 'args' must be an array"),
        ({"function": "echo", "kwargs": [1]}, "the payload's 'kwargs' must be an object"),
        ({"function": "echo", "args": [object()]}, "the arguments are not serialisable as JSON"),
    ],
)
def test_a_job_that_no_attempt_could_do_is_tried_once(handlers: Crew, payload: Any, message: str) -> None:
    ran = handlers.run(Transaction("t0", payload), retry=THRICE)
    assert message in str(ran.error)
    assert ran.error.is_fatal
    assert handlers.run(job("t1", 1)).value == {"args": [1], "kwargs": {}}, "and its process is free again"


def test_a_transaction_that_is_delivered_twice_at_a_time_costs_no_process() -> None:
    with pool_of(HANDLERS, pool_size=2) as crew:
        ran = crew.run(*[job("t0", 0.3, function="sleep")] * 2, concurrency=2)
        assert ran.report.succeeded == 2
        assert crew.run(*(job(f"t{n}", n) for n in range(4)), concurrency=4).report.succeeded == 4


def test_nothing_is_left_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    children = {one.pid for one in psutil.Process().children()}
    for behaviour in ("honest", "kills_itself", "leaves_runaway", "exits"):
        with adversary(behaviour) as crew:
            crew.run(job())
    # What earlier tests have left may end meanwhile.
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    assert {one.pid for one in psutil.Process().children()} <= children, "neither processes nor keepers"
