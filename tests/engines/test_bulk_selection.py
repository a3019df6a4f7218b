"""Bulk operations on selected rows of every kind, and the truth about how their replays ended."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from engines import dead_letters, pipelines, schedules, transactions
from engines.core.outcome import Success
from engines.core.states import State
from engines.dead_letters import bulk, bulk_kinds, bulk_replays
from engines.dead_letters.bulk import BulkError, GroupBusyError, Selection, Terms
from engines.models import BulkItem, BulkOperation, DeadLetter, DeadLetterGroup, Pipeline, Schedule, TransactionRecord
from ergon_site.access.database.clock import database_time
from ergon_site.access.models import AuditEntry
from facts.models import Artifact
from tests.durable_transactions import claim, failed, settle, submit
from tests.factories import make_pipeline
from tests.processes import eventually

pytestmark = pytest.mark.django_db

GONE = "It is not there any more."


def fail(pipeline: Pipeline, count: int, message: str = "no such customer") -> list[DeadLetter]:
    ids = submit(pipeline, count)
    settle(claim(pipeline, count), failed(message))
    return list(DeadLetter.objects.filter(uid__in=ids).order_by("pk"))


def begin(verb: str, kind: str, rows: Iterable[Any] | dict[str, str], **terms: Any) -> BulkOperation:
    is_filter = isinstance(rows, dict)
    keys: Any = () if is_filter else tuple(getattr(row, "pk", row) for row in rows)
    selection = Selection(kind=kind, keys=keys, where=rows if isinstance(rows, dict) else None)
    terms = {"rate": 500.0, **terms}
    return bulk.begin_selected(verb, selection, Terms(**terms), by="ada", reason="repaired")


def advance(times: int = 3) -> BulkOperation:
    """A few turns of maintenance, each of them long after the one before."""
    for _ in range(times):
        BulkOperation.objects.update(moved_at=timezone.now() - timedelta(seconds=9))
        bulk.advance()
    return BulkOperation.objects.latest("pk")


def results(operation: BulkOperation) -> dict[str, str]:
    return {item.label: item.note if item.result == "skipped" else item.result for item in operation.items.all()}


def figures(operation: BulkOperation) -> tuple[int, int, int, int]:
    told = bulk.replays_of(operation)
    return told.started, told.succeeded, told.failed, told.running


def test_selected_letters_are_replayed_and_their_ends_counted_as_they_end() -> None:
    orders = make_pipeline("orders")
    letters = fail(orders, 6)
    operation = begin("replay", "dead_letter", letters[:5])
    assert (operation.expected, operation.dry_run["would"], operation.filter) == (
        *(5, 5),
        {"ids": [letter.pk for letter in letters[:5]]},
    )
    operation = advance()
    assert (operation.state, figures(operation)) == ("done", (5, 0, 0, 5))
    (first, second, third, fourth, _) = claim(orders)
    settle([first, second])
    settle([third], failed("again"))
    # Counted where somebody looks, also while no maintenance runs, and once by maintenance.
    assert figures(operation) == (5, 2, 1, 2)
    operation = advance()
    assert (operation.replays_succeeded, operation.replays_failed, figures(operation)) == (2, 1, (5, 2, 1, 2))
    transactions.release([fourth.lease])
    transactions.cancel(fourth.id, by="ada", reason="not wanted")
    operation = advance()
    assert bulk.replays_of(operation).as_dict() == {
        "started": 5,
        "succeeded": 2,
        "failed": 1,
        "cancelled": 1,
        "lost": 0,
        "running": 1,
    }
    tally = bulk_replays.tally(operation, bulk.replays_of(operation))
    assert tally == (
        "5 replays started: 2 succeeded, 1 failed again, 1 cancelled, 1 still running; 0 skipped, 0 refused"
    )
    outcomes = [one.outcome for one in bulk_replays.with_outcomes(operation, list(operation.items.order_by("pk")))]
    assert sorted(outcomes) == ["cancelled", "failed", "running", "succeeded", "succeeded"]
    assert DeadLetter.objects.get(pk=letters[5].pk).state == "open"
    assert AuditEntry.objects.get(action="bulk.replay").after == {
        "kind": "dead_letter",
        "selected": 5,
        "expected": 5,
        "canary": 0,
        "rate": 500.0,
        "cap": 100_000,
    }


def test_ends_stay_counted_when_what_was_replayed_is_replayed_again_or_pruned() -> None:
    orders = make_pipeline("orders")
    operation = begin("replay", "dead_letter", fail(orders, 3))
    advance()
    (first, second, _) = claim(orders)
    settle([first])
    settle([second], failed("again"))
    operation = advance()
    assert figures(operation) == (3, 1, 1, 1)
    # Replayed again, and with success: what this operation has started failed all the same.
    transactions.replay(second.id, by="bob", reason="by hand")
    settle(claim(orders))
    assert figures(advance()) == (3, 1, 1, 1)
    transactions.prune(older_than=timedelta(0))
    assert figures(advance()) == (3, 1, 1, 1)
    assert [item.letter for item in BulkItem.objects.all()] == [None]
    # One that was deleted before anybody has seen its end is said to be so.
    TransactionRecord.objects.exclude(replay_of=None).delete()
    operation = advance()
    assert (operation.replays_lost, bulk.replays_of(operation).running) == (1, 0)
    # The record stays when its results are deleted, and so does what an older release has deleted with a dead letter.
    transactions.prune(older_than=timedelta(0))
    assert not BulkItem.objects.exists()
    BulkOperation.objects.update(replays_lost=0)
    assert advance().replays_lost == 1


def test_a_failure_is_seen_by_the_operation_that_replays_others_meanwhile() -> None:
    orders = make_pipeline("orders")
    letters = fail(orders, 5)
    for letter in letters[:2]:  # what is skipped is no canary
        dead_letters.discard(letter.pk, by="bob", reason="mine")
    begin("replay", "dead_letter", letters, canary=1)
    assert figures(advance(5)) == (1, 0, 0, 1)
    settle(claim(orders), failed("again"))
    operation = advance()
    assert (operation.state, operation.note) == ("stopped", "1 of its replays failed again")
    bulk.turn(operation.pk, "running", by="ada", reason="known")
    settle(claim(orders))
    operation = advance()
    settle(claim(orders))
    assert (operation.state, figures(operation)) == ("done", (3, 2, 1, 0))


def test_all_that_match_are_found_as_it_runs_but_not_what_comes_later() -> None:
    orders, other = make_pipeline("orders"), make_pipeline("other")
    submit(orders, 3)
    submit(other, 1)
    operation = begin("cancel", "transaction", {"state": "pending", "pipeline": "orders"}, rate=2)
    assert (operation.expected, operation.dry_run["would"]) == (3, 3)
    # SQLite counts in whole milliseconds.
    younger = operation.created_at + timedelta(milliseconds=1)
    eventually(lambda: database_time() >= younger, "what comes next is younger")
    submit(orders, 2)
    BulkOperation.objects.update(moved_at=timezone.now() - timedelta(seconds=1))
    assert bulk.advance() == 2
    operation = advance(5)
    assert (operation.state, operation.done, operation.skipped) == ("done", 3, 0)
    left = TransactionRecord.objects.filter(state=State.PENDING).values_list("pipeline__name", flat=True)
    assert sorted(left) == ["orders", "orders", "other"]
    assert AuditEntry.objects.filter(action="transaction.cancel", actor="ada").count() == 3


def test_groups_that_fail_again_meanwhile_are_acted_on_like_all_that_match() -> None:
    orders = make_pipeline("orders")
    kinds = ["no such customer", "no such account", "no such article", "no such country"]
    for kind in kinds:
        fail(orders, 1, kind)
    begin("mute", "dead_letter_group", {"state": "open"}, rate=1)
    BulkOperation.objects.update(moved_at=timezone.now() - timedelta(seconds=1))
    assert bulk.advance() == 1
    fail(orders, 1, next(iter(DeadLetterGroup.objects.filter(state="open").order_by("last_seen_at"))).message)
    operation = advance(5)
    assert (operation.state, operation.done) == ("done", 4)
    assert {group.state for group in DeadLetterGroup.objects.all()} == {"muted"}


def test_of_running_transactions_the_cancellation_is_requested_once() -> None:
    orders = make_pipeline("orders")
    submit(orders, 2)
    first, second = claim(orders)
    transactions.cancel(first.id, by="ada", reason="not wanted")
    operation = begin("cancel", "transaction", {"state": "running", "pipeline": "orders"})
    assert (operation.dry_run["would"], operation.dry_run["skipped"]) == (1, {"Its cancellation was requested.": 1})
    assert (advance().state, transactions.find(second.id).cancel_requested_at is not None) == ("done", True)


def test_failed_transactions_are_replayed_by_a_filter_without_end() -> None:
    """Each fails again: the failed ones that the operation makes itself are not replayed by it."""
    orders = make_pipeline("orders")
    fail(orders, 3)
    begin("replay", "transaction", {"state": "failed"}, rate=1)
    for _ in range(6):
        BulkOperation.objects.update(moved_at=timezone.now() - timedelta(seconds=1), state="running", note="")
        BulkOperation.objects.update(filter={"where": {"state": "failed"}, "known_failures": 99})
        bulk.advance()
        settle(claim(orders), failed("again"))
    operation = advance()
    assert (operation.state, figures(operation)) == ("done", (3, 0, 3, 0))


def test_what_changes_between_selection_and_act_is_skipped_with_the_reason() -> None:
    orders = make_pipeline("orders")
    letters = fail(orders, 4)
    waiting = [TransactionRecord.objects.get(uid=uid) for uid in submit(orders, 3)]
    first = begin("discard", "dead_letter", [*letters, 10**15])
    second = begin("discard", "dead_letter", letters)
    dead_letters.discard(letters[0].pk, by="bob", reason="mine")
    advance()
    assert results(first) == {
        letters[0].uid: "It was discarded.",
        str(10**15): GONE,
        **dict.fromkeys([letter.uid for letter in letters[1:]], "done"),
    }
    assert set(results(second).values()) == {"It was discarded."}
    assert DeadLetterGroup.objects.get().open_count == 0
    (leased,) = claim(orders, 1)
    third = begin("cancel", "transaction", waiting)
    assert (third.dry_run["would"], third.dry_run["skipped"]) == (3, {})
    settle([leased])
    advance()
    assert list(results(third).values()).count("done") == 2
    assert "It has succeeded; only a pending or running transaction can be cancelled." in results(third).values()


def test_groups_pipelines_schedules_and_artifacts_are_acted_on_by_their_own_verbs() -> None:
    orders, parcels = make_pipeline("orders"), make_pipeline("parcels")
    plan = schedules.Plan(pipeline="orders", cron="* * * * *")
    nightly = schedules.create("nightly", plan, by="ada")
    pipelines.pause("parcels", by="bob", reason="first")
    one = begin("pause", "pipeline", [orders, parcels])
    assert (one.dry_run["would"], one.dry_run["skipped"]) == (1, {"It is already paused.": 1})
    advance()
    assert results(one) == {"orders": "done", "parcels": "It is already paused."}
    assert Pipeline.objects.get(name="parcels").paused_by == "bob"
    begin("resume", "pipeline", {"state": "paused"})
    begin("pause", "schedule", [nightly])
    advance()
    assert not Pipeline.objects.exclude(paused_at=None).exists()
    assert Schedule.objects.get().paused_by == "ada"
    groups = {letter.group_id for message in ("a", "b") for letter in fail(orders, 2, message)}
    begin("mute", "dead_letter_group", {"source": "orders"})
    advance()
    assert set(DeadLetterGroup.objects.values_list("state", flat=True)) == {"muted"}
    two = begin("discard", "dead_letter_group", list(groups))
    assert (two.kind, two.group, two.expected) == ("dead_letter", None, 4)
    with pytest.raises(BulkError, match="has not finished"):
        bulk.begin("replay", min(groups), Terms(), by="bob", reason="mine")
    assert (advance().state, DeadLetter.objects.filter(state="discarded").count()) == ("done", 4)
    old = timezone.now() - timedelta(days=30)
    names = {"young": timezone.now(), "old": old, "used": old}
    for name, put_at in names.items():
        fields = {"digest": "", "size": 1, "media_type": "", "stored_as": name, "is_referenced": name == "used"}
        Artifact.objects.create(bucket="press", key=name, put_at=put_at, **fields)
    three = begin("sweep", "artifact", {})
    advance()
    assert results(three)["press/old"] == "done"
    assert results(three)["press/used"] == "A fact refers to it."
    assert sorted(Artifact.objects.values_list("key", flat=True)) == ["used", "young"]


def test_several_groups_are_replayed_one_after_the_other() -> None:
    orders = make_pipeline("orders")
    groups = [fail(orders, 3, message)[0].group for message in ("a", "b", "c")]
    begin("replay", "dead_letter_group", groups[:2], rate=2)
    for _ in range(8):
        BulkOperation.objects.update(moved_at=timezone.now() - timedelta(seconds=1))
        bulk.advance()
    settle(claim(orders))
    operation = advance()
    assert (operation.state, figures(operation)) == ("done", (6, 6, 0, 0))
    assert DeadLetter.objects.filter(state="open").count() == 3


def test_an_operation_that_stopped_is_not_resumed_beside_another_on_its_group() -> None:
    orders = make_pipeline("orders")
    letters = fail(orders, 3)
    stopped = begin("replay", "dead_letter_group", [letters[0].group_id], canary=1)
    bulk.advance()
    settle(claim(orders), failed())
    assert advance(1).state == "stopped"
    other = begin("discard", "dead_letter_group", [letters[0].group_id])
    with pytest.raises(GroupBusyError, match="another bulk operation on this group has not finished"):
        bulk.turn(stopped.pk, "running", by="ada", reason="go on")
    bulk.turn(other.pk, "cancelled", by="ada", reason="never mind")
    assert bulk.turn(stopped.pk, "running", by="ada", reason="go on").state == "running"


def test_an_operation_that_was_restarted_and_one_of_an_older_release_are_followed() -> None:
    orders = make_pipeline("orders")
    letters = fail(orders, 2)
    operation = begin("replay", "dead_letter", letters)
    advance()
    settle(claim(orders), Success("fine"))
    # As a release wrote it that did not count.
    BulkItem.objects.update(outcome="", label="", target=None)
    BulkOperation.objects.update(replays_succeeded=0, followed=0)
    assert figures(BulkOperation.objects.get()) == (2, 2, 0, 0)
    bulk.advance()
    operation.refresh_from_db()
    assert (operation.replays_succeeded, bulk.advance()) == (2, 0)


def test_more_replays_than_are_looked_at_in_one_go_are_followed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_replays, "AT_ONCE", 2)
    orders = make_pipeline("orders")
    begin("replay", "dead_letter", fail(orders, 5))
    advance()
    batch = claim(orders)
    settle(batch[3:])
    operation = advance(4)
    assert (operation.replays_succeeded, figures(operation)) == (2, (5, 2, 0, 3))
    settle(batch[:3], failed("again"))
    assert figures(advance(4)) == (5, 2, 3, 0)


def test_an_export_is_a_record_that_gives_its_rows() -> None:
    orders = make_pipeline("orders")
    letters = fail(orders, 3)
    operation = begin("export", "dead_letter", letters[:2])
    assert (operation.state, operation.done, bulk.advance()) == ("done", 2, 0)
    assert {row.pk for row in bulk.exported(operation)} == {letter.pk for letter in letters[:2]}
    assert len(bulk.exported(begin("export", "dead_letter", {"state": "open"}, cap=2))) == 2
    with pytest.raises(BulkError, match="is not an export"):
        bulk.exported(begin("discard", "dead_letter", letters))


def test_an_export_says_how_many_rows_its_files_have() -> None:
    orders = make_pipeline("orders")
    submit(orders, 1001)
    whole = begin("export", "transaction", {"state": "pending"})
    assert (whole.done, whole.expected, len(bulk.exported(whole))) == (1001, 1001, 1001)
    letters = fail(make_pipeline("other"), 3)
    keys = [letter.pk for letter in letters]
    letters[0].delete()
    part, capped = begin("export", "dead_letter", keys), begin("export", "dead_letter", keys, cap=1)
    assert (part.done, len(bulk.exported(part))) == (2, 2)
    assert (capped.done, len(bulk.exported(capped))) == (1, 1)


@pytest.mark.parametrize(
    ("verb", "kind", "rows", "words"),
    [
        ("replay", "dead_letter", [], "select 1 to 1,000 dead letters"),
        ("replay", "dead_letter", list(range(1, 1002)), "select 1 to 1,000 dead letters"),
        ("cancel", "dead_letter", [1], "not by 'cancel'"),
        ("replay", "worker", [1], "not on 'worker'"),
        ("replay", "dead_letter", {"payload": "x"}, "not by 'payload'"),
        ("replay", "dead_letter", {"q": "a\x00"}, "in short texts"),
        ("replay", "dead_letter", {"q": "x" * 2000}, "in short texts"),
        ("replay", "transaction", {"state": "lost"}, "there is no state 'lost'"),
        ("pause", "pipeline", {"state": "lost"}, "the state is one of paused, active"),
        ("replay", "dead_letter_group", [1], "none of these groups has an open dead letter"),
    ],
)
def test_a_selection_that_means_nothing_is_refused(verb: str, kind: str, rows: Any, words: str) -> None:
    with pytest.raises(BulkError, match=words):
        begin(verb, kind, rows)
    assert not BulkOperation.objects.exists()


def test_a_filter_that_means_nothing_any_more_stops_the_operation() -> None:
    orders = make_pipeline("orders")
    submit(orders)
    begin("cancel", "transaction", {"pipeline": "orders"})
    Pipeline.objects.update(name="elsewhere")
    operation = advance()
    assert (operation.state, operation.note) == ("stopped", "there is no pipeline 'orders'; there are elsewhere")


def test_an_operation_that_cannot_go_on_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(_row: Any, **_: Any) -> str:
        msg = "a fault of ours"
        raise RuntimeError(msg)

    # No verb of ours is known to break: a fault is put in.
    monkeypatch.setitem(bulk_kinds.PIPELINES.verbs, "pause", break_down)
    orders = make_pipeline("orders")
    broken, whole = begin("pause", "pipeline", [orders]), begin("discard", "dead_letter", fail(orders, 2))
    with pytest.raises(RuntimeError, match="a fault of ours"):
        advance(1)
    assert set(results(whole).values()) == {"done"}
    broken.refresh_from_db()
    assert (broken.state, broken.processed) == ("running", 0)
