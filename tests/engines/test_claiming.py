"""Claiming and settling: leases, fences, batches, and what is written down."""

import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engines import dead_letters, pipelines, policies, transactions, workers
from engines.core.outcome import Failure, Outcome, Success
from engines.core.states import State
from engines.dead_letters import DeadLetterDraft
from engines.models import Attempt, DeadLetter, DeadLetterGroup, Throughput, TransactionRecord
from engines.reads import explain
from engines.transactions import NotFinishedError, Settlement, pruning
from tests.durable_transactions import claim, failed, settle, states, submit
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db


def lapse() -> None:
    """As if the lease time had gone by."""
    TransactionRecord.objects.filter(state=1).update(lease_expires_at=timezone.now() - timedelta(minutes=1))


def test_a_claim_takes_the_most_urgent_and_then_the_oldest() -> None:
    pipeline = make_pipeline()
    for name, priority in (("a", 0), ("b", 1), ("c", 0), ("d", 1)):
        transactions.submit("orders", 1, id=name, priority=priority)
    assert [one.id for one in claim(pipeline, 3)] == ["b", "d", "a"]
    assert states("a", "b", "c", "d") == ["running", "running", "pending", "running"]


def test_what_is_leased_is_not_claimed_again() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 3)
    assert len(claim(pipeline, 2)) == 2
    assert len(claim(pipeline, 2)) == 1
    assert claim(pipeline) == []


def test_a_paused_pipeline_gives_nothing_until_it_goes_on() -> None:
    pipeline = make_pipeline()
    submit(pipeline)
    pipelines.pause("orders", by="ada", reason="flood")
    assert claim(pipeline) == []
    pipelines.resume("orders", by="ada", reason="dry")
    assert len(claim(pipeline)) == 1


def test_settling_writes_outcome_attempts_and_counts() -> None:
    pipeline = make_pipeline()
    (uid,) = submit(pipeline)
    batch = claim(pipeline)
    assert settle(batch, Success({"total": 3})) == []
    record, attempt, minute = TransactionRecord.objects.get(), Attempt.objects.get(), Throughput.objects.get()
    assert (record.word, record.result, record.attempts) == ("succeeded", {"total": 3}, 1)
    assert (record.lease_owner, record.lease_expires_at) == (None, None)
    assert (attempt.number, attempt.outcome, attempt.policy_version) == (1, 0, pipeline.policy.active_id)
    assert abs((timezone.now() - attempt.started_at).total_seconds()) < 60
    assert (minute.succeeded, minute.failed) == (1, 0)
    assert explain.explain(uid)["sentence"].startswith("succeeded")


def test_a_settled_one_is_not_settled_again() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 2)
    first, second = claim(pipeline)
    settle([first])
    assert settle([first, second], failed()) == [first]
    assert states(first.id, second.id) == ["succeeded", "failed"]


def test_a_settle_after_the_lease_was_lost_changes_nothing_and_is_reported() -> None:
    pipeline = make_pipeline()
    submit(pipeline)
    (late,) = claim(pipeline)
    lapse()
    assert transactions.rescue() == (1, 0)
    assert settle([late], Success("late")) == [late]
    (again,) = claim(pipeline)
    assert settle([late], Success("later")) == [late]
    assert settle([again], Success("in time")) == []
    assert TransactionRecord.objects.get().result == "in time"
    assert [attempt.delivery for attempt in Attempt.objects.all()] == [2]


def test_a_claim_that_a_crash_took_back_settles_nothing_for_whoever_claims_anew() -> None:
    pipeline = make_pipeline()
    submit(pipeline)
    (lost,) = claim(pipeline)
    TransactionRecord.objects.update(state=0, lease_owner=None, lease_expires_at=None, fencing_token=0)
    (anew,) = transactions.claim(pipeline.pk, 1, lost.lease.owner + 1)
    assert anew.lease.token == lost.lease.token
    assert settle([lost], Success("lost")) == [lost]
    assert transactions.heartbeat([lost.lease]) == set()
    assert transactions.release([lost.lease]) == 0
    assert settle([anew], Success("anew")) == []


def test_a_heartbeat_keeps_leases_and_tells_which_are_lost() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 2)
    kept, lost = claim(pipeline)
    TransactionRecord.objects.filter(uid=lost.id).update(fencing_token=9)
    lapse()
    assert transactions.heartbeat([kept.lease, lost.lease]) == {kept.lease.id}
    assert transactions.rescue() == (1, 0)


def test_what_is_given_back_has_lost_no_attempt() -> None:
    pipeline = make_pipeline()
    submit(pipeline)
    batch = claim(pipeline)
    assert transactions.release([one.lease for one in batch]) == 1
    record = TransactionRecord.objects.get()
    assert (record.word, record.attempts, record.rescues) == ("pending", 0, 0)
    assert transactions.release([one.lease for one in batch]) == 0


def test_the_third_rescue_without_an_end_makes_a_dead_letter() -> None:
    pipeline = make_pipeline()
    (uid,) = submit(pipeline)
    for expected in ((1, 0), (1, 0), (0, 1)):
        (one,) = claim(pipeline)
        assert transactions.begin(one.lease)
        lapse()
        assert transactions.rescue() == expected
    letter = DeadLetter.objects.get()
    assert states(uid) == ["failed"]
    assert (letter.error_type, letter.uid, letter.state) == ("PoisonTransaction", uid, "open")
    assert "PoisonTransaction" in explain.explain(uid)["sentence"]


def test_what_its_workers_never_began_is_not_taken_for_poison() -> None:
    pipeline = make_pipeline()
    (uid,) = submit(pipeline)
    for _ in range(5):
        claim(pipeline)
        lapse()
        assert transactions.rescue() == (1, 0)
    record = TransactionRecord.objects.get()
    assert (states(uid), record.rescues, record.attempts) == (["pending"], 1, 1)


def test_one_whose_lease_is_lost_is_not_begun() -> None:
    pipeline = make_pipeline()
    submit(pipeline)
    claim(pipeline)
    lapse()
    transactions.rescue()
    (late,) = claim(pipeline)
    lapse()
    transactions.rescue()
    assert not transactions.begin(late.lease)


def test_the_work_of_a_worker_known_to_be_gone_is_rescued_at_once() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 2)
    worker = workers.enrol(["orders"])
    transactions.claim(pipeline.pk, 1, worker.pk)
    claim(pipeline)
    assert transactions.rescue(worker=worker.pk) == (1, 0)


def test_a_failure_has_exactly_one_dead_letter_with_all_that_is_known() -> None:
    pipeline = make_pipeline()
    (uid,) = submit(pipeline)
    settle(claim(pipeline), failed("customer 17 is unknown", KeyError("customer")))
    record, letter = TransactionRecord.objects.get(), DeadLetter.objects.select_related("group").get()
    assert record.error == {
        "type": "KeyError",
        "message": "customer 17 is unknown",
        "category": "SYSTEM",
        "step": "process",
    }
    assert (letter.uid, letter.transaction_id, letter.category, letter.step) == (uid, record.pk, "SYSTEM", "process")
    assert "KeyError" in letter.traceback
    assert letter.details["attempts"] == 1
    assert letter.group.message == "customer # is unknown"
    assert dead_letters.payload_of(letter) == {"n": 0}


def test_the_same_failure_of_many_is_one_group() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 3)
    for number, one in enumerate(claim(pipeline)):
        settle([one], failed(f"order {number} of customer 'c{number}' was lost"))
    group = DeadLetterGroup.objects.get()
    assert (group.total, group.open_count, group.state) == (3, 3, "open")
    assert group.message == "order # of customer '…' was lost"


def test_failures_of_many_kinds_are_counted_by_as_few_statements_as_those_of_two() -> None:
    pipeline, statements = make_pipeline(), []
    for words in ("ab", "cdefghijklmnopqrstuvwxyz"):
        submit(pipeline, 2 * len(words))
        batch = claim(pipeline, 2 * len(words))
        failures = [Settlement(one, failed(f"no {words[n // 2]}")) for n, one in enumerate(batch)]
        with CaptureQueriesContext(connection) as queries:
            assert transactions.settle(failures) == []
        statements.append(sum("engines_deadletter" in one["sql"] for one in queries.captured_queries))
    assert statements[0] == statements[1]
    groups = DeadLetterGroup.objects.annotate(in_hours=Sum("hours__count"))
    assert {(one.total, one.open_count, one.in_hours, one.letters.count()) for one in groups} == {(2, 2, 2, 2)}
    assert len(groups) == 26


@pytest.mark.parametrize("message", ["a\x00b", "\ud800", "x" * 100_000])
def test_a_message_that_no_column_takes_is_kept_as_well_as_it_can_be(message: str) -> None:
    pipeline = make_pipeline()
    (uid,) = submit(pipeline)
    assert settle(claim(pipeline), failed(message)) == []
    assert states(uid) == ["failed"]


@pytest.mark.parametrize("result", [object(), {1: {2, 3}}, float("nan"), "a\x00b", "\ud800", b"\xff", 2**300])
def test_a_result_that_is_not_json_is_kept_as_well_as_it_can_be(result: Any) -> None:
    pipeline = make_pipeline()
    (uid,) = submit(pipeline)
    assert settle(claim(pipeline), Success(result)) == []
    assert states(uid) == ["succeeded"]


def test_a_result_over_the_limit_is_left_out_and_says_so() -> None:
    pipeline = make_pipeline()
    submit(pipeline)
    settle(claim(pipeline), Success("x" * 2**20))
    record = TransactionRecord.objects.get()
    assert (record.word, record.result) == ("succeeded", None)
    assert record.result_note == "not kept: it has 1,048,578 bytes; the limit is 1,048,576"


def test_a_replay_is_a_new_transaction_that_knows_its_origin() -> None:
    pipeline = make_pipeline()
    (uid,) = submit(pipeline)
    settle(claim(pipeline), failed())
    new = transactions.replay(uid, by="ada", reason="repaired")
    origin, replayed = transactions.find(uid), transactions.find(new.id)
    assert (replayed.replay_of, replayed.parent_id, replayed.payload) == (origin.pk, uid, origin.payload)
    assert (origin.word, replayed.word) == ("failed", "pending")
    letter = DeadLetter.objects.get()
    assert (letter.state, letter.replayed_as, letter.settled_by) == ("replayed", new.id, "ada")
    with pytest.raises(dead_letters.LetterSettledError, match="was replayed by ada"):
        transactions.replay(uid, by="bob", reason="again")


def test_an_edited_replay_keeps_what_was_changed_and_the_original_as_it_was() -> None:
    pipeline = make_pipeline()
    (uid,) = submit(pipeline, customer="17")
    settle(claim(pipeline), failed())
    new = transactions.replay(uid, by="ada", reason="typo", payload={"n": 0, "customer": "71"})
    assert transactions.find(new.id).payload_changes == [{"path": "customer", "before": "17", "after": "71"}]
    assert transactions.find(uid).payload == {"n": 0, "customer": "17"}


def test_what_has_not_ended_cannot_be_replayed() -> None:
    pipeline = make_pipeline()
    (uid,) = submit(pipeline)
    with pytest.raises(NotFinishedError, match="is still pending"):
        transactions.replay(uid, by="ada", reason="impatient")


def test_a_new_policy_version_counts_from_the_next_claim_on() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 2)
    (before,) = claim(pipeline, 1)
    version = policies.write("default", {"loop": {"limit": 3}}, by="ada", reason="less")
    (after,) = claim(pipeline, 1)
    assert before.lease.policy_version == pipeline.policy.active_id
    assert after.lease.policy_version == version.pk


def test_a_batch_with_failures_settles_all_or_nothing() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 3)
    batch = claim(pipeline)
    for one in batch:
        one.lease.attempts.clear()
    outcomes: list[Outcome] = [Success(1), failed(), Failure(failed("handler too").error, origin=failed())]
    transactions.settle([Settlement(one, outcome) for one, outcome in zip(batch, outcomes, strict=True)])
    assert sorted(states(*[one.id for one in batch])) == ["failed", "failed", "succeeded"]
    assert DeadLetter.objects.count() == TransactionRecord.objects.filter(state=State.FAILED).count() == 2
    assert DeadLetter.objects.filter(details__exception_handler__message="handler too").exists()
    (told,) = TransactionRecord.objects.filter(error__has_key="exception_handler").values_list("error", flat=True)
    assert told is not None
    assert (told["message"], told["exception_handler"]["message"]) == ("no such customer", "handler too")


def test_pruning_takes_what_is_old_enough_with_all_that_belongs_to_it() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 3)
    batch = claim(pipeline)
    settle(batch[:1])
    settle(batch[1:2], failed())
    long_ago = timezone.now() - timedelta(days=30)
    TransactionRecord.objects.update(created_at=long_ago)
    TransactionRecord.objects.filter(finished_at__isnull=False).update(finished_at=long_ago)
    assert transactions.prune() == (1, 0, 0)
    assert transactions.prune(older_than=timedelta(days=20)) == (0, 1, 0)
    assert not Attempt.objects.exists()
    assert not DeadLetter.objects.exists()
    group = DeadLetterGroup.objects.get()
    assert (group.open_count, group.state) == (0, "resolved")
    assert TransactionRecord.objects.get().word == "running"


def failed_elsewhere(source: str = "queue", uid: str = "m", **known: Any) -> DeadLetterDraft:
    """A terminal failure of which no record is kept here."""
    about: dict[str, Any] = {"step": "process", "category": "SYSTEM", "error_type": "E", "message": "m", "details": {}}
    return DeadLetterDraft(source=source, uid=uid, **about, **known)


def fail_elsewhere(*sources: str, days_ago: int) -> None:
    for source in sources:
        (letter,) = dead_letters.record([failed_elsewhere(source)])
        DeadLetter.objects.filter(pk=letter.pk).update(created_at=timezone.now() - timedelta(days=days_ago))


def test_a_draft_that_is_recorded_twice_is_one_dead_letter_and_counted_once() -> None:
    drafts = [failed_elsewhere(uid=uid, draft_id=uuid4()) for uid in ("m0", "m1")]
    first = dead_letters.record(drafts)
    assert dead_letters.record(drafts) == first
    assert list(DeadLetterGroup.objects.values_list("total", "open_count", "hours__count")) == [(2, 2, 2)]
    # Another failure of the same message is one more.
    dead_letters.record([failed_elsewhere(uid="m0", draft_id=uuid4())])
    assert sorted(DeadLetter.objects.values_list("uid", flat=True)) == ["m0", "m0", "m1"]


@pytest.mark.parametrize("known", [{"draft_id": uuid4()}, {"transaction_id": 7}])
def test_what_cannot_be_recorded_beside_a_dead_letter_that_is_there_is_told_and_nothing_is_counted(known: Any) -> None:
    dead_letters.record([failed_elsewhere(**known)])
    with pytest.raises(IntegrityError):
        dead_letters.record([failed_elsewhere(**known), failed_elsewhere()])
    assert list(DeadLetterGroup.objects.values_list("total", "open_count", "hours__count")) == [(1, 1, 1)]


def test_dead_letters_without_a_record_are_pruned_by_their_own_age() -> None:
    make_pipeline("queue", connector="broker", keep_failed_days=10)
    fail_elsewhere("queue", "provider:mail", days_ago=200)
    fail_elsewhere("queue", "provider:mail", days_ago=30)
    fail_elsewhere("queue", "provider:mail", days_ago=1)
    assert transactions.prune() == (0, 3, 0)
    assert sorted(DeadLetter.objects.values_list("source", flat=True)) == ["provider:mail", "provider:mail", "queue"]
    assert set(DeadLetterGroup.objects.values_list("source", "open_count", "state")) == {
        ("queue", 1, "open"),
        ("provider:mail", 2, "open"),
    }
    assert transactions.prune(older_than=timedelta(0)) == (0, 3, 0)
    assert set(DeadLetterGroup.objects.values_list("open_count", "state")) == {(0, "resolved")}


def test_many_old_dead_letters_without_a_record_go_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "BATCH", 2)
    fail_elsewhere(*["provider:mail"] * 5, days_ago=100)
    fail_elsewhere(*["provider:mail"] * 3, days_ago=1)
    assert transactions.prune() == (0, 5, 0)
    assert DeadLetter.objects.count() == DeadLetterGroup.objects.get().open_count == 3


def test_a_worker_without_a_heartbeat_is_noticed() -> None:
    alive, gone = workers.enrol(["orders"]), workers.enrol(["orders"])
    type(gone).objects.filter(pk=gone.pk).update(heartbeat_at=timezone.now() - timedelta(minutes=2))
    assert workers.notice_the_dead() == 1
    assert [worker.pk for worker in workers.alive()] == [alive.pk]


def test_attempts_are_told_in_the_time_of_the_database() -> None:
    pipeline = make_pipeline()
    (uid,) = submit(pipeline)
    batch = claim(pipeline)
    time.sleep(0.02)
    settle(batch)
    (attempt,) = explain.explain(uid)["attempts"]
    assert attempt["policy_version"] == "default v1"
    assert (attempt["step"], attempt["outcome"], attempt["number"]) == ("process", "success", 1)
