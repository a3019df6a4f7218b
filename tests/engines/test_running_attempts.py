"""What has been tried of a transaction that still runs: seen while it is tried again, and kept once."""

import gc
import re
import signal
import threading
import time
import weakref
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Count
from django.test import Client

from engines import transactions
from engines.core.attempt import AttemptRecord
from engines.core.outcome import Outcome, Success
from engines.core.steps import Stage
from engines.models import Attempt, DeadLetter, Pipeline
from engines.reads import explain
from engines.transactions import LeasedTransaction, Settlement, attempt_rows
from engines.worker.completer import Completer
from tests.durable_transactions import claim, consumer, failed, make_policy, submit
from tests.engines.test_database_connector import ENGINES, running, wait_for
from tests.factories import make_pipeline
from tests.processes import LIMIT

pytestmark = pytest.mark.django_db(transaction=True)

STUBBORN = {"max_attempts": 10_000, "backoff": 0.2}
OFTEN = {"steps": {"process": {"retry": {"max_attempts": 10_000}}}}


@pytest.fixture(autouse=True)
def _tasks() -> None:
    import_module("tests.tasks")


def stubborn(task: str, direction: str = "inbound") -> Pipeline:
    """A pipeline that tries again for as long as the test needs."""
    step, kind = ("process", "consumer") if direction == "inbound" else ("produce", "producer")
    body = {"loop": {"concurrency": {"value": 4}}, "steps": {step: {"retry": STUBBORN}}, "park_after": None}
    return make_pipeline(task=task, direction=direction, policy=make_policy("stubborn", body, kind))


def attempts(uid: str) -> list[dict[str, Any]]:
    return explain.attempts_of(transactions.find(uid))


def is_retried(uid: str, count: int = 2) -> bool:
    return transactions.find(uid).word == "running" and len(attempts(uid)) >= count


@pytest.mark.parametrize(("task", "direction"), ENGINES)
def test_attempts_are_seen_while_the_next_one_is_made(task: str, direction: str, tmp_path: Path) -> None:
    pipeline = stubborn(task, direction)
    (uid,) = submit(pipeline, fail_without=str(tmp_path / "there"))
    with running(pipeline):
        try:
            wait_for(lambda: is_retried(uid))
            seen = attempts(uid)
        finally:
            (tmp_path / "there").touch()
        wait_for(lambda: transactions.find(uid).word == "succeeded")
    assert {(one["outcome"], one["error_type"]) for one in seen} == {("failure", "ConnectionError")}
    kept = [one for one in attempts(uid) if one["step"] in {"process", "produce"}]
    assert [one["number"] for one in kept] == list(range(1, len(kept) + 1))
    assert [one["outcome"] for one in kept] == [*["failure"] * (len(kept) - 1), "success"]
    assert kept[: len(seen)] == seen


@pytest.mark.parametrize(
    ("task", "payload", "step"),
    [("tests.act", {"fail": "no answer"}, "process"), ("tests.handled", {"then": {"fail": "no answer"}}, "success")],
)
def test_a_transaction_that_waits_in_its_slot_tells_which_attempt_is_next_and_when(
    browse: Client, task: str, payload: dict[str, Any], step: str
) -> None:
    retry = {"retry": {"max_attempts": 6, "backoff": 3600}}
    body = {"steps": {"process": retry, "success": retry}, "park_after": None}
    pipeline = make_pipeline(task=task, policy=make_policy("patient", body))
    (uid,) = submit(pipeline, **payload)
    with running(pipeline) as worker:
        wait_for(lambda: step in {one["step"] for one in attempts(uid)})
        sentence = explain.explain(uid)["sentence"]
        page = browse.get(f"/admin/engines/transactionrecord/{transactions.find(uid).pk}/change/").content.decode()
        worker.cut()
    assert re.search(rf": {step} attempt 2 of 6, next in (1 h|\d+ min)$", sentence)
    assert f"{step} attempt 2 of 6, next in" in page


def test_attempts_are_in_the_order_of_their_numbers_however_late_one_was_written() -> None:
    (uid,) = submit(make_pipeline())
    [leased] = claim(Pipeline.objects.get())
    outcomes: list[Outcome] = [failed(), Success("done")]
    for number, outcome in enumerate(outcomes, 1):
        record = AttemptRecord(Stage.PROCESS, number, 2, time.monotonic(), 0.01, outcome)
        leased.lease.attempts.append((record, None))
        if number == 1:
            transactions.note([leased.lease])
    transactions.settle([Settlement(leased, Success("done"))])
    # Each is dated by the clock of the database when it is written: one whose statement had to wait is dated later.
    Attempt.objects.filter(number=1).update(started_at=transactions.find(uid).created_at + timedelta(minutes=1))
    assert [one["number"] for one in attempts(uid)] == [1, 2]


def test_attempts_of_a_worker_that_was_killed_are_kept(browse: Client, tmp_path: Path) -> None:
    pipeline = stubborn("tests.act")
    (uid,) = submit(pipeline, fail_without=str(tmp_path / "there"))
    page = f"/admin/engines/transactionrecord/{transactions.find(uid).pk}/change/"
    assert "No attempt has ended yet." in browse.get(page).content.decode()
    with consumer("orders", ERGON_LEASE_SECONDS="2") as process:
        wait_for(lambda: is_retried(uid, 3))
        shown = browse.get(page).content.decode()
        assert "attempt 3 of 10000" in shown
        assert "not there yet" in shown
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = attempts(uid)
    (tmp_path / "there").touch()
    with consumer("orders", ERGON_LEASE_SECONDS="2"):
        wait_for(lambda: transactions.find(uid).word == "succeeded")
    assert attempts(uid)[: len(before)] == before
    assert {one["delivery"] for one in attempts(uid)} == {1, 2}


def tried(leased: LeasedTransaction, *outcomes: Outcome) -> None:
    for outcome in outcomes:
        number = len(leased.lease.attempts) + 1
        attempted = AttemptRecord(Stage.PROCESS, number, 3, time.monotonic(), 0.01, outcome)
        leased.lease.attempts.append((attempted, None))


@pytest.mark.parametrize("outcome", [Success("done"), failed()])
def test_attempts_that_were_noted_are_written_once(outcome: Outcome) -> None:
    pipeline = make_pipeline()
    submit(pipeline)
    (leased,) = claim(pipeline)
    assert transactions.note([leased.lease]) == 0
    tried(leased, failed())
    assert transactions.note([leased.lease]) == 1
    assert transactions.note([leased.lease]) == 0
    tried(leased, failed(), outcome)
    assert transactions.settle([Settlement(leased, outcome)]) == []
    assert list(Attempt.objects.order_by("number").values_list("number", flat=True)) == [1, 2, 3]


def test_an_attempt_that_was_noted_is_sent_no_more_and_its_error_is_let_go() -> None:
    pipeline = make_pipeline()
    submit(pipeline)
    (leased,) = claim(pipeline)
    tried(leased, failed("the first"))
    error = weakref.ref(leased.lease.attempts[0][0].outcome.error)  # type: ignore[union-attr]
    transactions.note([leased.lease])
    gc.collect()
    assert error() is None
    Attempt.objects.all().delete()
    outcome = failed("the second")
    tried(leased, outcome)
    assert transactions.settle([Settlement(leased, outcome)]) == []
    assert list(Attempt.objects.values_list("number", "message")) == [(2, "the second")]
    assert DeadLetter.objects.get().details["attempts"] == 2


def test_of_many_attempts_that_wait_few_keep_their_errors() -> None:
    pipeline = make_pipeline()
    submit(pipeline)
    (leased,) = claim(pipeline)
    for number in range(1, 101):
        attempted = AttemptRecord(Stage.PROCESS, number, 100, time.monotonic(), 0.01, failed(f"number {number}"))
        attempt_rows.add(leased.lease, attempted, None)
    assert sum(one.words is None for one, _ in leased.lease.attempts) <= 20
    transactions.settle([Settlement(leased, Success("done"))])
    kept = Attempt.objects.order_by("number").values_list("message", flat=True)
    assert list(kept) == [f"number {number}" for number in range(1, 101)]


def test_very_many_attempts_are_written_in_parts_and_in_shares() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 2)
    many, few = claim(pipeline)
    tried(many, *[failed()] * 2000)
    tried(few, failed())
    assert transactions.note([many.lease, few.lease]) == 2
    noted = dict(Attempt.objects.values_list("transaction_id").annotate(count=Count("pk")))
    assert noted[few.lease.id] == 1
    assert 0 < noted[many.lease.id] < 1000
    settled = threading.Event()
    completer = Completer(many.lease.owner, lambda _: settled.set(), lambda: None)
    try:
        many.lease.is_settling = True
        completer.take(Settlement(many, Success("done")))
        assert settled.wait(LIMIT)
    finally:
        completer.close()
    assert Attempt.objects.filter(transaction_id=many.lease.id).count() == 2000


def test_an_error_that_tells_of_itself_slowly_takes_none_of_the_databases_time() -> None:
    pipeline = make_pipeline(task="tests.act", policy=make_policy("often", OFTEN))
    (uid,) = submit(pipeline, at=2, slow=3)
    (other,) = submit(make_pipeline("other"))
    with consumer("orders", "other", ERGON_DATABASE_TIMEOUT="1", ERGON_LEASE_SECONDS="60") as process:
        wait_for(lambda: transactions.find(uid).word == "succeeded")
        wait_for(lambda: transactions.find(other).word == "succeeded")
        process.terminate()
        _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert "database_refuses" not in errors


def test_nothing_is_noted_of_what_went_well_is_settling_or_belongs_to_others() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 3)
    well, settling, lost = claim(pipeline)
    tried(well, Success(None))
    tried(settling, failed())
    settling.lease.is_settling = True
    tried(lost, failed())
    transactions.release([lost.lease])
    assert transactions.note([one.lease for one in (well, settling, lost)]) == 0
    assert not Attempt.objects.exists()
    assert settling.lease.is_noted, "else its settlement could meet an attempt that was noted just before"
