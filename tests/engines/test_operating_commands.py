"""What an operator does from a shell: look, explain, cancel, replay, decide about dead letters, prune."""

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from engines import pipelines, transactions, workers
from engines.models import Attempt, DeadLetter, TransactionRecord
from ergon_site.access.cli.commands import actor
from ergon_site.access.models import AuditEntry
from tests.commands import ask, on_terminal, run
from tests.durable_transactions import claim, failed, settle, states, submit
from tests.factories import make_pipeline
from tests.processes import manage

# The verbs behind them are tested on both databases; what they print is the same on either.
pytestmark = [pytest.mark.django_db, pytest.mark.once]


def fail(uid: str = "one", message: str = "no such customer", pipeline: str = "orders") -> DeadLetter:
    """A transaction that has failed; its dead letter."""
    found = make_pipeline(pipeline)
    transactions.submit(pipeline, {"customer": 5}, id=uid)
    settle(claim(found), failed(message))
    return DeadLetter.objects.get(uid=uid)


def file(folder: Path, value: object) -> str:
    (folder / "payload.json").write_text(json.dumps(value))
    return str(folder / "payload.json")


def test_the_status_counts_what_waits_runs_and_has_ended() -> None:
    pipeline = make_pipeline()
    make_pipeline("idle")
    submit(pipeline, 4)
    settle(claim(pipeline, 1))
    settle(claim(pipeline, 1), failed())
    claim(pipeline, 1)
    pipelines.pause("idle", by="ada", reason="quiet")
    status = ask("status")
    orders = next(row for row in status["pipelines"] if row["name"] == "orders")
    assert [orders[name] for name in ("pending", "running", "succeeded", "failed", "paused")] == [1, 1, 1, 1, False]
    assert orders["oldest_pending_age"] >= 0
    assert status["dead_letters"] == {"open": 1}
    assert str(connection.settings_dict["NAME"]) in status["database"]
    assert run("status").splitlines()[0] == f"database: {status['database']}"
    assert len(status["workers"]) == 3


def test_the_status_says_when_work_is_due_that_is_not_due_yet() -> None:
    later = submit(make_pipeline())[0]
    assert ask("status")["pipelines"][0]["due_in"] is None
    TransactionRecord.objects.filter(uid=later).update(available_at=timezone.now() + timedelta(hours=6, minutes=1))
    (orders,) = ask("status")["pipelines"]
    assert (orders["pending"], orders["oldest_pending_age"]) == (1, 0.0)
    assert orders["due_in"] > timedelta(hours=5).total_seconds()
    assert "due in 6 h" in run("status")


def test_the_status_for_people_names_workers_and_dead_letters() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 2)
    settle(claim(pipeline, 1), failed())
    text = run("status")
    assert "PIPELINE  RUNS       PENDING  RUNNING  SUCCEEDED  FAILED  OLDEST PENDING  STATE" in text
    assert str(workers.alive().get()) in text
    assert text.endswith("1 open dead letters: manage.py dead_letters\n")


def test_the_status_of_nothing_is_calm() -> None:
    assert run("status").partition("\n\n")[2] == "none\n\nno worker is alive\n\n0 open dead letters\n"


def test_a_failed_transaction_is_explained_with_its_attempts() -> None:
    fail()
    explained = ask("explain", "one")
    assert explained["state"] == "failed"
    assert "no such customer" in explained["sentence"]
    assert explained["error"] == {"type": "ValueError", "message": "no such customer", "category": "SYSTEM"}
    assert [attempt["outcome"] for attempt in explained["attempts"]] == ["failure"]
    assert {"facts", "result"} <= explained.keys()
    text = run("explain", "one")
    assert text.startswith("one: failed ")
    assert "1 of 1" in text


def test_a_waiting_and_a_succeeded_transaction_are_explained_for_people() -> None:
    pipeline = make_pipeline()
    transactions.submit("orders", 1, id="one")
    assert run("explain", "one").startswith("one: waiting: no worker serves this pipeline\n")
    settle(claim(pipeline))
    assert run("explain", "one").endswith('result:\n"done"\n')


def test_a_pending_transaction_is_cancelled_and_the_actor_written_down() -> None:
    make_pipeline()
    transactions.submit("orders", 1, id="one")
    assert ask("cancel", "one", "--reason", "mistake") == {"id": "one", "state": "cancelled"}
    entry = AuditEntry.objects.get(action="transaction.cancel")
    assert (entry.actor, entry.reason) == (actor(), "mistake")
    assert entry.actor.startswith("command:")
    with pytest.raises(CommandError, match="'one' is cancelled; only a pending or running transaction can be"):
        call_command("cancel", "one", "--reason", "again")


def test_of_a_running_transaction_the_cancellation_is_requested() -> None:
    pipeline = make_pipeline()
    transactions.submit("orders", 1, id="one")
    claim(pipeline)
    assert ask("cancel", "one", "--reason", "mistake") == {"id": "one", "state": "running"}
    assert run("cancel", "one", "--reason", "mistake") == "cancellation requested: one\n"


def test_a_replay_prints_the_new_id_and_leaves_the_original_alone(tmp_path: Path) -> None:
    fail()
    new = run("replay", "one", "--payload", file(tmp_path, {"customer": 6}), "--reason", "corrected").strip()
    record = transactions.find(new)
    assert (record.payload, record.parent_id) == ({"customer": 6}, "one")
    assert (record.payload_changes, states("one")) == ([{"path": "customer", "before": 5, "after": 6}], ["failed"])
    assert "6" not in json.dumps(AuditEntry.objects.get(action="transaction.replay_edited").after).replace(new, "")


def test_a_replay_of_what_still_waits_is_refused() -> None:
    make_pipeline()
    transactions.submit("orders", 1, id="one")
    with pytest.raises(CommandError, match="still pending"):
        call_command("replay", "one", "--reason", "hurry")


def test_a_payload_that_is_no_json_is_refused_by_its_file(tmp_path: Path) -> None:
    fail()
    (tmp_path / "bad").write_text("{")
    with pytest.raises(CommandError, match="bad is not JSON"):
        call_command("replay", "one", "--payload", str(tmp_path / "bad"), "--reason", "x")
    (tmp_path / "bad").write_text("1" * 3 * 2**20)
    with pytest.raises(CommandError, match="bad has more than 2,097,152 bytes"):
        call_command("replay", "one", "--payload", str(tmp_path / "bad"), "--reason", "x")
    with pytest.raises(CommandError, match="nowhere: No such file or directory"):
        call_command("replay", "one", "--payload", "nowhere", "--reason", "x")


def test_dead_letters_are_listed_by_default_newest_first_and_filtered() -> None:
    first, second = fail("one"), fail("two", "no such article", pipeline="refunds")
    assert [row["id"] for row in ask("dead_letters")] == [second.pk, first.pk]
    assert [row["id"] for row in ask("dead_letters", "list", "--source", "orders")] == [first.pk]
    assert [row["id"] for row in ask("dead_letters", "--limit", "1")] == [second.pk]
    assert ask("dead_letters", "--category", "BUSINESS") == []
    assert "no such article" in run("dead_letters")
    run("dead_letters", "discard", str(first.pk), "--reason", "tested")
    assert [row["state"] for row in ask("dead_letters", "--state", "all")] == ["open", "discarded"]
    assert run("dead_letters", "--state", "replayed") == "none\n"


def test_a_dead_letter_is_shown_with_its_payload_unless_the_pipeline_hides_fields() -> None:
    letter = fail()
    shown = ask("dead_letters", "show", str(letter.pk))
    assert (shown["payload"], shown["transaction"], shown["step"]) == ({"customer": 5}, "one", "process")
    assert "ValueError" in shown["traceback"]
    assert '"customer": 5' in run("dead_letters", "show", "one")
    pipelines.amend("orders", pipelines.Plan(redacted=["customer"]), by="ada")
    assert ask("dead_letters", "show", "one")["payload"] is None
    assert '"customer": 5' not in run("dead_letters", "show", "one")


def test_a_dead_letter_is_replayed_once(tmp_path: Path) -> None:
    letter = fail()
    answer = ask("dead_letters", "replay", str(letter.pk), "--payload", file(tmp_path, 7), "--reason", "fixed")
    assert (answer["dead_letter"], transactions.find(answer["id"]).payload) == (letter.pk, 7)
    with pytest.raises(CommandError, match=f"was replayed by {actor()}"):
        call_command("dead_letters", "replay", "one", "--reason", "again")


def test_a_dead_letter_is_discarded_with_its_reason() -> None:
    letter = fail()
    assert run("dead_letters", "discard", "one", "--reason", "a test").startswith("discarded the dead letter")
    letter.refresh_from_db()
    assert (letter.state, letter.reason, letter.settled_by) == ("discarded", "a test", actor())


def test_pruning_follows_the_retention_or_the_age_given_and_is_written_down() -> None:
    fail()
    assert ask("prune") == {"succeeded": 0, "failed": 0, "cancelled": 0, "total": 0}
    told = run("prune", "--older-than", "0", "--yes", "--reason", "a fresh start")
    assert told == "deleted 0 succeeded, 1 failed, 0 cancelled\n"
    assert not TransactionRecord.objects.exists()
    assert not Attempt.objects.exists()
    entry = AuditEntry.objects.filter(action="transactions.prune").latest("id")
    assert (entry.actor, entry.reason) == (actor(), "a fresh start")
    assert entry.after == {"older_than_days": 0.0, "succeeded": 0, "failed": 1, "cancelled": 0}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("typed", "left"), [("no\n", 1), ("\n", 1), ("\x04", 1), ("yes\n", 0)])
def test_pruning_by_age_asks_a_person_before_it_deletes(typed: str, left: int) -> None:
    fail()
    said = on_terminal("prune", "--older-than", "0", typed=typed)
    assert "this deletes 1 transaction, whatever the pipelines keep" in said
    assert ("nothing was done" in said) is bool(left)
    assert "Traceback" not in said
    assert TransactionRecord.objects.count() == left


@pytest.mark.django_db(transaction=True)
def test_pruning_by_age_is_refused_where_nobody_can_be_asked() -> None:
    assert manage("prune", "--older-than", "0").stdout == "deleted 0 succeeded, 0 failed, 0 cancelled\n"
    fail()
    refused = manage("prune", "--older-than", "0")
    assert refused.returncode == os.EX_USAGE
    assert refused.stderr.splitlines() == [
        "CommandError: this deletes 1 transaction, whatever the pipelines keep: repeat it with --yes"
    ]
    assert TransactionRecord.objects.count() == 1


@pytest.mark.once
@pytest.mark.parametrize("days", ["-1", "nan", "inf", "soon", "100000"])
def test_an_age_that_is_none_is_wrong_usage(days: str) -> None:
    with pytest.raises(CommandError, match="must be a number of days from 0 to 36,500"):
        call_command("prune", "--older-than", days)
