"""Waits between two attempts that keep no slot: parked in the database, and taken up where they were left."""

import signal
import sys
import threading
import time
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from engines import policies, transactions
from engines.core.errors import ExceptionType, TransactionException
from engines.core.lifecycle import ANEW
from engines.core.outcome import Failure, Later
from engines.models import DeadLetter, Pipeline, TransactionRecord
from engines.reads import explain
from engines.reads.status import read_status
from engines.transactions import Settlement
from engines.worker.completer import Completer
from engines.worker.pipeline import Options
from tests.durable_transactions import claim, consume, consumer, make_policy, settle, states, submit, wait_until_started
from tests.engines.test_database_connector import CONSUMERS, ENGINES, drain, running, wait_for
from tests.factories import make_pipeline
from tests.processes import LIMIT, eventually

pytestmark = pytest.mark.django_db(transaction=True)

FAR = 3600.0


@pytest.fixture(autouse=True)
def _tasks() -> None:
    import_module("tests.tasks")


def parking(
    task: str = "tests.act",
    direction: str = "inbound",
    *,
    backoff: float = 0.2,
    max_attempts: int = 3,
    park_after: float | None = 0,
    **loop: Any,
) -> Pipeline:
    """A pipeline with one slot, which no wait may keep."""
    step, kind = ("process", "consumer") if direction == "inbound" else ("produce", "producer")
    body = {
        "loop": {"concurrency": {"value": 1}, "batch": {"size": 10}, **loop},
        "steps": {step: {"retry": {"max_attempts": max_attempts, "backoff": backoff, "backoff_multiplier": 1}}},
        "park_after": park_after,
    }
    return make_pipeline(task=task, direction=direction, policy=make_policy("parking", body, kind))


def record(uid: str) -> TransactionRecord:
    return transactions.find(uid)


def is_parked(uid: str, spent: int = 1) -> bool:
    found = record(uid)
    return found.word == "pending" and (found.error or {}).get("spent") == spent


def make_due(uid: str) -> None:
    TransactionRecord.objects.filter(uid=uid).update(available_at=timezone.now() - timedelta(seconds=1))


def history(uid: str) -> list[tuple[int, str, int, int, str]]:
    """The attempts of the work as people see them."""
    made = explain.explain(uid)["attempts"]
    return [(one["delivery"], one["step"], one["number"], one["of"], one["outcome"]) for one in made]


@pytest.mark.parametrize("backoff", [1e12, sys.float_info.max])
def test_a_wait_beyond_the_calendar_ends_within_it(browse: Client, backoff: float) -> None:
    pipeline = parking(backoff=backoff)
    (uid,) = submit(pipeline, fail="no answer")
    with running(pipeline):
        wait_for(lambda: is_parked(uid))
    assert record(uid).available_at.year < timezone.now().year + 11
    assert "no answer" in explain.explain(uid)["sentence"]
    assert read_status()["pipelines"][0]["pending"] == 1
    assert uid in browse.get(reverse("admin:engines_transactionrecord_changelist")).content.decode()
    assert transactions.cancel(uid, by="ada", reason="too long").word == "cancelled"


def test_a_wait_that_no_database_can_count_to_is_the_fault_of_its_transaction() -> None:
    pipeline = make_pipeline()
    (uid,) = submit(pipeline)
    (leased,) = claim(pipeline)
    settled = threading.Event()
    completer = Completer(leased.lease.owner, lambda _: settled.set(), lambda: None)
    try:
        completer.take(Settlement(leased, Later(1e300, 1, Failure(TransactionException("later")))))
        assert settled.wait(LIMIT)
    finally:
        completer.close()
    assert states(uid) == ["failed"]
    assert DeadLetter.objects.get().error_type == "OutcomeNotWrittenError"


@pytest.mark.parametrize(("task", "direction"), ENGINES)
def test_a_drain_ends_what_it_has_parked_and_all_of_it_is_one_delivery(task: str, direction: str) -> None:
    pipeline = parking(task, direction)
    step = "process" if direction == "inbound" else "produce"
    (bad,) = submit(pipeline, fail="no answer")
    then: dict[str, Any] = {"at": 3, "return": "at last"}
    (good,) = submit(pipeline, **then)
    drain(pipeline)
    assert states(bad, good) == ["failed", "succeeded"]
    assert history(bad) == [(1, step, number, 3, "failure") for number in (1, 2, 3)]
    assert [one[-1] for one in history(good)] == ["failure", "failure", "success"]
    assert [(one.attempts, one.rescues) for one in (record(bad), record(good))] == [(1, 0), (1, 0)]
    assert record(good).result == "at last"
    assert record(good).error is None
    letter = DeadLetter.objects.get()
    assert (letter.message, letter.step) == ("no answer", step)
    assert (letter.details["attempts"], letter.details["delivery"]) == (3, 1)
    assert explain.explain(good)["sentence"].endswith("on its first delivery")


@pytest.mark.parametrize(("task", "direction"), ENGINES)
def test_what_is_parked_keeps_no_slot(task: str, direction: str) -> None:
    pipeline = parking(task, direction, backoff=FAR)
    failing = submit(pipeline, 5, fail="no answer")
    with running(pipeline):
        wait_for(lambda: all(is_parked(uid) for uid in failing))
        (good,) = submit(pipeline)
        wait_for(lambda: states(good) == ["succeeded"])
        told = explain.explain(failing[0])
    assert told["state"] == "pending"
    assert told["sentence"].endswith("; attempt 2 of 3 is next, after ValueError: no answer")
    assert told["facts"]["due_in"] == pytest.approx(FAR, abs=300)
    assert record(failing[0]).attempts == 0
    # The delivery that goes on later is one that people see.
    assert (record(failing[0]).deliveries, told["facts"]["deliveries"], history(failing[0])[0][0]) == (1, 1, 1)


def test_no_attempt_has_a_higher_delivery_than_were_counted() -> None:
    pipeline = make_pipeline()
    (uid,) = submit(pipeline)
    for _ in range(2):  # given back before anything was done
        transactions.release([one.lease for one in claim(pipeline)])
    settle(claim(pipeline))
    assert ([one[0] for one in history(uid)], explain.explain(uid)["facts"]["deliveries"]) == ([1], 1)


@pytest.mark.parametrize("task", CONSUMERS)
def test_what_is_due_is_taken_up_however_seldom_the_policy_looks(task: str) -> None:
    pipeline = parking(task, empty_queue={"backoff": FAR, "backoff_cap": FAR})
    with running(pipeline):
        (uid,) = submit(pipeline, at=3)
        wait_for(lambda: states(uid) == ["succeeded"])


@pytest.mark.parametrize("task", CONSUMERS)
def test_a_shorter_wait_keeps_its_slot(task: str, tmp_path: Path) -> None:
    pipeline = parking(task, park_after=0.2, max_attempts=2)
    (uid,) = submit(pipeline, at=2, mark=str(tmp_path / "mark"))
    drain(pipeline)
    assert record(uid).fencing_token == 1


@pytest.mark.parametrize("task", CONSUMERS)
def test_a_loop_with_a_limit_ends_what_it_starts(task: str) -> None:
    pipeline = parking(task)
    first, second = submit(pipeline, 2, fail="no answer")
    drain(pipeline, options=Options(is_draining=True, limit=1))
    assert states(first, second) == ["failed", "pending"]
    assert record(first).fencing_token == 1


@pytest.mark.parametrize("task", ["tests.handled", "tests.handled_async"])
def test_the_time_of_a_transaction_goes_on_while_it_is_parked(task: str, tmp_path: Path) -> None:
    pipeline = parking(task, backoff=FAR, transaction_timeout=1.0)
    (uid,) = submit(pipeline, fail="no answer", catch={"mark": str(tmp_path / "handled")})
    drain(pipeline)
    letter = DeadLetter.objects.get()
    assert (letter.category, letter.message) == ("TIMEOUT", "the transaction timed out after 1 s")
    assert "no answer" in letter.traceback, "the failure that went before"
    assert [one[1:3] for one in history(uid)] == [("process", 1), ("exception", 1)]
    assert len((tmp_path / "handled").read_text().splitlines()) == 1


def test_a_policy_that_allows_fewer_attempts_by_now_ends_it() -> None:
    pipeline = parking(backoff=FAR)
    (uid,) = submit(pipeline, fail="no answer")
    with running(pipeline):
        wait_for(lambda: is_parked(uid))
        policies.write("parking", {"park_after": 0}, by="tests", reason="one attempt is enough")
        make_due(uid)
        wait_for(lambda: states(uid) == ["failed"])
    letter = DeadLetter.objects.get()
    assert letter.message == "no attempts left: 1 of 1 were made"
    assert "no answer" in letter.traceback


def test_one_that_is_cancelled_while_it_is_parked_does_not_go_on() -> None:
    pipeline = parking(backoff=FAR)
    (uid,) = submit(pipeline, fail="no answer")
    with running(pipeline):
        wait_for(lambda: is_parked(uid))
        transactions.cancel(uid, by="ada", reason="not wanted any more")
    assert explain.explain(uid)["sentence"].endswith("ago after 1 attempt")


def test_another_worker_goes_on_where_one_was_killed(tmp_path: Path) -> None:
    pipeline = parking(backoff=FAR)
    (uid,) = submit(pipeline, at=2, id="one", mark=str(tmp_path / "mark"), until=str(tmp_path / "there"))
    with consumer("orders", ERGON_LEASE_SECONDS="2") as first:
        eventually(lambda: is_parked(uid), "it is parked")
        make_due(uid)
        eventually(lambda: states(uid) == ["running"], "its second attempt has begun")
        first.kill()
    (tmp_path / "there").touch()
    with consumer("orders", ERGON_LEASE_SECONDS="2"):
        eventually(lambda: states(uid) == ["succeeded"], "the other has ended it")
    assert [one[1:] for one in history(uid)] == [("process", 1, 3, "failure"), ("process", 2, 3, "success")]
    assert (record(uid).attempts, record(uid).rescues) == (2, 1), "only the rescue counts"


def test_one_that_is_given_back_at_its_second_attempt_is_at_its_second_attempt(tmp_path: Path) -> None:
    pipeline = parking(backoff=FAR)
    (uid,) = submit(pipeline, at=2, until=str(tmp_path / "never"))
    with consumer("orders", "--grace", "0.2") as process:
        wait_until_started(process)
        eventually(lambda: is_parked(uid), "it is parked")
        make_due(uid)
        eventually(lambda: states(uid) == ["running"], "it goes on")
        process.send_signal(signal.SIGTERM)
        process.wait()
    assert is_parked(uid)
    assert record(uid).attempts == 0


def test_processes_that_drain_together_end_what_either_of_them_has_parked() -> None:
    pipeline = parking(max_attempts=4)
    ids = submit(pipeline, 20, at=4)
    assert consume("orders", "--drain", "--processes", "2", ERGON_LEASE_SECONDS="60").code == 0
    assert set(states(*ids)) == {"succeeded"}
    assert {record(uid).attempts for uid in ids} == {1}


def test_a_pause_ends_a_drain_that_waits_for_what_it_has_parked(tmp_path: Path) -> None:
    pipeline = parking(backoff=0.5)
    (uid,) = submit(pipeline, until=str(tmp_path / "gate"), broken="mute")
    with consumer("orders", "--drain") as process:
        eventually(lambda: states(uid) == ["running"], "its first attempt has begun")
        Pipeline.objects.update(paused_at=timezone.now(), paused_by="ada")
        (tmp_path / "gate").touch()
        assert process.wait() == 0
    assert is_parked(uid)


def put_back(pipeline: Pipeline, **later: Any) -> None:
    """Park the next transaction by hand."""
    [leased] = claim(pipeline)
    failure = Failure(TransactionException("no answer", ExceptionType.TIMEOUT))
    assert transactions.postpone([Settlement(leased, Later(0.0, 1, failure, of=3, is_parked=True, **later))]) == []


@pytest.mark.parametrize("jump", [-FAR, 0.0, FAR])
def test_a_clock_that_jumps_gives_no_transaction_more_time_than_it_had(jump: float) -> None:
    pipeline = parking()
    (uid,) = submit(pipeline)
    put_back(pipeline, time_left=40.0, timeout=60.0)
    found = record(uid)
    assert found.error is not None
    TransactionRecord.objects.update(error=found.error | {"ends_at": found.error["ends_at"] - jump})
    [leased] = claim(pipeline)
    left = (leased.lease.resumed.ends_at or 0.0) - time.monotonic()
    assert leased.lease.resumed.timeout == 60.0
    match jump:
        case 0.0:
            assert 0 < left <= 40.0
        case _:
            assert left <= (0 if jump > 0 else 60.0)


def test_what_an_earlier_release_has_put_back_goes_on_too() -> None:
    pipeline = parking()
    (uid,) = submit(pipeline)
    put_back(pipeline)
    told = {"type": "RetryJob", "message": "not yet", "category": "SYSTEM", "step": "process"}
    TransactionRecord.objects.update(error=told | {"spent": 2})
    drain(pipeline)
    assert [one[2:] for one in history(uid)] == [(3, 3, "success")]
    (uid,) = submit(pipeline)
    TransactionRecord.objects.filter(uid=uid).update(error=told | {"spent": 0})
    assert claim(pipeline)[0].lease.resumed is ANEW
