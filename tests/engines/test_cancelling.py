"""Cancelling: what waits ends at once; of what runs it is requested, and whoever lets go of it ends it."""

import json
import os
import re
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Sum

from engines import transactions
from engines.core.attempt import AttemptRecord
from engines.core.outcome import Cancelled, Later, Outcome, Success
from engines.core.steps import Stage
from engines.models import Attempt, DeadLetter, Throughput, TransactionRecord
from engines.reads import explain
from engines.transactions import LeasedTransaction, NotPendingError, Settlement
from ergon_site.access.models import AuditEntry
from tests.durable_transactions import claim, consumer, failed, make_policy, settle, states, submit, wait_until_started
from tests.engines.test_claiming import lapse
from tests.engines.test_executor_pipelines import PYTHON, attempts, jobs_pipeline, submit_job
from tests.factories import make_pipeline
from tests.processes import eventually

WHY = {"by": "ada", "reason": "ordered twice"}
# A third of it is the time between two renewals.
LEASE = "6"


def running() -> LeasedTransaction:
    """A transaction that runs, and whose cancellation was requested."""
    pipeline = make_pipeline()
    submit(pipeline)
    (leased,) = claim(pipeline)
    transactions.cancel(leased.id, **WHY)
    return leased


def counted() -> dict[str, int]:
    names = ("succeeded", "failed", "cancelled")
    return dict(Throughput.objects.aggregate(**{name: Sum(name, default=0) for name in names}))


def tried(leased: LeasedTransaction, outcome: Outcome) -> None:
    leased.lease.attempts.append((AttemptRecord(Stage.PROCESS, 1, 3, time.monotonic(), 0.01, outcome), None))


@pytest.mark.django_db
def test_a_pending_one_is_cancelled_at_once_and_one_that_has_ended_never() -> None:
    pipeline = make_pipeline()
    waiting, other = submit(pipeline, 2)
    assert transactions.cancel(waiting, **WHY).word == "cancelled"
    settle(claim(pipeline))
    for uid, state in ((waiting, "is cancelled"), (other, "has succeeded")):
        with pytest.raises(NotPendingError, match=f"{state}; only a pending or running transaction can be cancelled"):
            transactions.cancel(uid, **WHY)
    assert counted() == {"succeeded": 1, "failed": 0, "cancelled": 1}


@pytest.mark.django_db
def test_of_a_running_one_it_is_requested_and_written_down_once() -> None:
    leased = running()
    first = transactions.find(leased.id)
    again = transactions.cancel(leased.id, by="bob", reason="me too")
    assert (again.word, again.cancel_requested_at) == ("running", first.cancel_requested_at)
    (entry,) = AuditEntry.objects.filter(action="transaction.cancel")
    assert (entry.actor, entry.before, entry.after) == (
        "ada",
        {"state": "running"},
        {"state": "running", "requested": "cancelled"},
    )
    assert "; its cancellation was requested " in explain.explain(leased.id)["sentence"]
    assert counted()["cancelled"] == 0


@pytest.mark.django_db
def test_the_next_renewal_brings_the_request_of_those_that_are_held() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 2)
    wanted, unwanted = claim(pipeline)
    transactions.cancel(unwanted.id, **WHY)
    assert transactions.heartbeat([wanted.lease, unwanted.lease]) == {wanted.lease.id, unwanted.lease.id}
    assert (wanted.lease.is_cancelled, unwanted.lease.is_cancelled) == (False, True)


@pytest.mark.django_db
def test_a_success_counts_although_its_end_was_requested() -> None:
    leased = running()
    assert settle([leased], Success("done")) == []
    record = transactions.find(leased.id)
    assert (record.word, record.result, counted()) == (
        "succeeded",
        "done",
        {"succeeded": 1, "failed": 0, "cancelled": 0},
    )


@pytest.mark.django_db
@pytest.mark.parametrize("outcome", [failed(), Cancelled(failed())])
def test_a_failure_is_the_end_without_a_dead_letter_though_its_attempt_is_kept(outcome: Outcome) -> None:
    leased = running()
    leased.lease.is_cancelled = isinstance(outcome, Cancelled)
    tried(leased, failed())
    assert transactions.settle([Settlement(leased, outcome)]) == []
    record = transactions.find(leased.id)
    assert (record.word, record.category, record.lease_owner) == ("cancelled", None, None)
    assert (record.failure or {})["message"] == "no such customer"
    assert (Attempt.objects.count(), DeadLetter.objects.count()) == (1, 0)
    assert counted() == {"succeeded": 0, "failed": 0, "cancelled": 1}
    assert re.fullmatch("cancelled .* ago while it ran", explain.explain(leased.id)["sentence"])
    assert leased.lease.is_cancelled


@pytest.mark.django_db
def test_only_the_one_that_was_cancelled_goes_without_a_dead_letter() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 2)
    wanted, unwanted = claim(pipeline)
    transactions.cancel(unwanted.id, **WHY)
    settle([unwanted, wanted], failed())
    assert states(wanted.id, unwanted.id) == ["failed", "cancelled"]
    assert DeadLetter.objects.get().uid == wanted.id
    assert counted() == {"succeeded": 0, "failed": 1, "cancelled": 1}


@pytest.mark.django_db
def test_a_retry_that_would_wait_is_the_end() -> None:
    leased = running()
    tried(leased, failed())
    assert transactions.postpone([Settlement(leased, Later(60.0, 1, failed(), of=3, is_parked=True))]) == []
    record = transactions.find(leased.id)
    assert (record.word, record.finished_at is not None, record.started_at is not None) == ("cancelled", True, True)
    assert (Attempt.objects.count(), counted()["cancelled"]) == (1, 1)
    assert claim(record.pipeline) == []


@pytest.mark.django_db
def test_what_is_given_back_is_the_end_and_does_not_count_as_given_back() -> None:
    leased = running()
    assert transactions.release([leased.lease]) == 0
    assert (states(leased.id), counted()["cancelled"]) == (["cancelled"], 1)


@pytest.mark.django_db
def test_what_a_dead_worker_held_is_the_end_even_if_it_would_be_poison() -> None:
    leased = running()
    for rescues in (0, 2):
        TransactionRecord.objects.filter(uid=leased.id).update(rescues=rescues)
        lapse()
        if rescues == 0:
            assert transactions.rescue() == (1, 0)
    assert (states(leased.id), DeadLetter.objects.count(), counted()["cancelled"]) == (["cancelled"], 0, 1)


@pytest.mark.django_db
def test_an_outcome_whose_answer_was_lost_is_known_to_be_written() -> None:
    leased = running()
    settlement = Settlement(leased, failed())
    transactions.settle([settlement])
    leased.lease.is_cancelled = False
    assert transactions.find_written([settlement]) == {leased.lease.id}
    assert leased.lease.is_cancelled


@pytest.mark.django_db
def test_one_that_an_older_release_has_put_back_is_known_at_its_next_claim() -> None:
    leased = running()
    TransactionRecord.objects.filter(uid=leased.id).update(
        state=0, lease_owner=None, lease_expires_at=None, started_at=None
    )
    (again,) = claim(transactions.find(leased.id).pipeline)
    assert again.lease.is_cancelled


@pytest.mark.django_db
def test_its_key_stays_taken_and_it_can_be_replayed() -> None:
    pipeline = make_pipeline()
    first = transactions.submit("orders", {}, dedupe_key="order-1")
    (leased,) = claim(pipeline)
    transactions.cancel(first.id, **WHY)
    settle([leased], failed())
    again = transactions.submit("orders", {}, dedupe_key="order-1")
    assert (again.id, again.is_new, again.state) == (first.id, False, "cancelled")
    assert states(transactions.replay(first.id, **WHY).id) == ["pending"]


def many_attempts() -> Any:
    """Attempts enough, each soon after the other: none of them is parked."""
    retry = {"max_attempts": 100, "backoff": 0.05, "backoff_multiplier": 1.0}
    return {"loop": {"concurrency": {"value": 1}}, "steps": {"process": {"retry": retry}}}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("task", "payload"),
    [
        ("tests.handled", {"end": True, "return": "half of it"}),
        ("tests.heed_async", {"then": {"return": "half of it"}}),
    ],
)
def test_a_handler_sees_the_request_and_what_it_returns_counts(task: str, payload: dict[str, Any]) -> None:
    make_pipeline(task=task, policy=make_policy())
    uid = transactions.submit("orders", payload).id
    with consumer("orders", ERGON_LEASE_SECONDS=LEASE) as process:
        wait_until_started(process)
        eventually(lambda: states(uid) == ["running"], "it runs")
        assert transactions.cancel(uid, **WHY).word == "running"
        eventually(lambda: states(uid) == ["succeeded"], "its handler returns")
    assert transactions.find(uid).result == "half of it"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("task", "payload"),
    [
        ("tests.handled", {"end": True, "fail": "half of it"}),
        ("tests.handled", {"end": True, "reject": "half of it"}),
        ("tests.heed_async", {"then": {"fail": "half of it"}}),
    ],
)
def test_a_handler_that_fails_is_not_tried_again(task: str, payload: dict[str, Any], tmp_path: Path) -> None:
    make_pipeline(task=task, policy=make_policy(body=many_attempts()))
    caught = tmp_path / "caught"
    uid = transactions.submit("orders", {**payload, "catch": {"mark": str(caught)}}).id
    with consumer("orders", ERGON_LEASE_SECONDS=LEASE) as process:
        wait_until_started(process)
        eventually(lambda: states(uid) == ["running"], "it runs")
        transactions.cancel(uid, **WHY)
        eventually(lambda: states(uid) == ["cancelled"], "its attempt fails")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert '"cancelled": 1' in output.splitlines()[-1]
    assert (process.returncode, DeadLetter.objects.count()) == (0, 0)
    assert Attempt.objects.filter(step=1, outcome=1).count() == 1
    assert caught.exists() is (task == "tests.handled")


@pytest.mark.django_db(transaction=True)
def test_one_that_fails_again_and_again_is_not_tried_again(tmp_path: Path) -> None:
    body = many_attempts()
    body["steps"]["process"]["retry"]["max_attempts"] = 1_000_000
    make_pipeline(policy=make_policy(body=body))
    uid = transactions.submit("orders", {"mark": str(tmp_path / "mark"), "fail_without": str(tmp_path / "never")}).id
    with consumer("orders", ERGON_LEASE_SECONDS=LEASE) as process:
        wait_until_started(process)
        eventually((tmp_path / "mark").exists, "it is tried")
        transactions.cancel(uid, **WHY)
        eventually(lambda: states(uid) == ["cancelled"], "it is tried no more")
        done = transactions.submit("orders", {"return": 1}).id
        eventually(lambda: states(done) == ["succeeded"], "the worker goes on")
    tries = len((tmp_path / "mark").read_text().splitlines())
    assert Attempt.objects.filter(transaction_id=transactions.find(uid).pk).count() == tries
    assert DeadLetter.objects.count() == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", ["tests.handled", "tests.handled_async"])
def test_one_that_a_worker_has_claimed_and_not_begun_does_not_begin(task: str, tmp_path: Path) -> None:
    make_pipeline(task=task, policy=make_policy(body={"loop": {"concurrency": {"value": 1}, "batch": {"size": 10}}}))
    gate, mark = tmp_path / "gate", tmp_path / "mark"
    first, second = [
        transactions.submit("orders", payload).id
        for payload in ({"mark": str(mark), "end": True, "until": str(gate)}, {"mark": str(mark)})
    ]
    with consumer("orders", ERGON_LEASE_SECONDS=LEASE) as process:
        wait_until_started(process)
        eventually(lambda: states(first, second) == ["running", "running"], "both are claimed")
        transactions.cancel(second, **WHY)
        transactions.cancel(first, **WHY)
        # By then the worker knows of both.
        eventually(lambda: mark.exists() and _has_renewed(second), "leases are renewed")
        gate.touch()
        eventually(lambda: states(first, second) == ["succeeded", "cancelled"], "the second one does not begin")
    assert len(mark.read_text().splitlines()) == 1


def _has_renewed(uid: str) -> bool:
    record = transactions.find(uid)
    ends_at, asked_at = record.lease_expires_at, record.cancel_requested_at
    return ends_at is not None and asked_at is not None and ends_at - asked_at > timedelta(seconds=float(LEASE))


@pytest.mark.django_db(transaction=True)
def test_one_whose_worker_is_killed_is_cancelled_and_does_not_run_again(tmp_path: Path) -> None:
    make_pipeline(policy=make_policy())
    uid = transactions.submit("orders", {"mark": str(tmp_path / "mark"), "until": str(tmp_path / "never")}).id
    with consumer("orders", ERGON_LEASE_SECONDS=LEASE) as process:
        wait_until_started(process)
        eventually((tmp_path / "mark").exists, "it runs")
        transactions.cancel(uid, **WHY)
        os.kill(process.pid, signal.SIGKILL)
    lapse()
    with consumer("orders", ERGON_LEASE_SECONDS=LEASE) as process:
        wait_until_started(process)
        eventually(lambda: states(uid) == ["cancelled"], "it is rescued")
        done = transactions.submit("orders", {"return": 1}).id
        eventually(lambda: states(done) == ["succeeded"], "the worker goes on")
    assert len((tmp_path / "mark").read_text().splitlines()) == 1


@pytest.mark.django_db(transaction=True)
def test_one_that_is_cut_at_a_stop_is_cancelled(tmp_path: Path) -> None:
    make_pipeline(policy=make_policy())
    uid = transactions.submit("orders", {"mark": str(tmp_path / "mark"), "until": str(tmp_path / "never")}).id
    with consumer("orders", "--grace", "0.1") as process:
        wait_until_started(process)
        eventually((tmp_path / "mark").exists, "it runs")
        transactions.cancel(uid, **WHY)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert (states(uid), process.returncode) == (["cancelled"], 0)


@pytest.mark.django_db(transaction=True)
def test_a_job_that_waits_for_a_process_is_cancelled_without_one() -> None:
    jobs_pipeline()
    executors = json.dumps({"python": {"command": PYTHON, "pool_size": 1}})
    running = submit_job("sleep", 3600)
    with consumer("jobs", ERGON_LEASE_SECONDS=LEASE, ERGON_EXECUTORS=executors) as process:
        wait_until_started(process)
        eventually(lambda: states(running) == ["running"], "it has the only process")
        waiting = submit_job("echo", 1)
        eventually(lambda: states(waiting) == ["running"], "it waits beside it")
        transactions.cancel(waiting, **WHY)
        eventually(lambda: states(waiting) == ["cancelled"], "it waits no more")
    assert (states(running), attempts(waiting)) == (["running"], [])
