"""What an operator decides from a shell about whole groups of dead letters."""

import pytest
from django.core.management import CommandError, call_command

from engines import transactions
from engines.dead_letters import bulk
from engines.models import BulkOperation, DeadLetter, DeadLetterGroup, TransactionRecord
from ergon_site.access.cli.commands import actor
from ergon_site.access.models import AuditEntry
from tests.commands import ask, run
from tests.durable_transactions import claim, failed, settle
from tests.factories import make_pipeline

# The verbs behind them are tested on both databases; what they print is the same on either.
pytestmark = [pytest.mark.django_db, pytest.mark.once]


@pytest.fixture
def group() -> DeadLetterGroup:
    """Three dead letters of one kind."""
    pipeline = make_pipeline()
    transactions.submit_many("orders", [{"payload": number} for number in range(3)])
    settle(claim(pipeline), failed("no such customer"))
    return DeadLetterGroup.objects.get()


def test_groups_are_listed_and_shown(group: DeadLetterGroup) -> None:
    assert [(row["id"], row["open_count"]) for row in ask("dead_letters", "groups")] == [(group.pk, 3)]
    assert ask("dead_letters", "groups", "--state", "muted") == []
    assert "no such customer" in run("dead_letters", "groups")
    assert ask("dead_letters", "group", str(group.pk))["error_type"] == "ValueError"
    assert "open count" in run("dead_letters", "group", str(group.pk))


@pytest.mark.parametrize(("verb", "state"), [("mute", "muted"), ("resolve", "resolved"), ("reopen", "open")])
def test_a_group_is_decided_about(group: DeadLetterGroup, verb: str, state: str) -> None:
    assert ask("dead_letters", verb, str(group.pk), "--reason", "known")["state"] == state
    entry = AuditEntry.objects.get(action=f"dead_letter_group.{state}")
    assert (entry.actor, entry.reason) == (actor(), "known")


def test_a_group_is_replayed_within_its_terms(group: DeadLetterGroup) -> None:
    terms = ["--canary", "2", "--rate", "5", "--cap", "3", "--reason", "customer made"]
    begun = ask("dead_letters", "replay-all", str(group.pk), *terms)
    assert [begun[name] for name in ("verb", "expected", "canary", "rate", "cap")] == ["replay", 3, 2, 5.0, 3]
    bulk.advance()
    assert ask("dead_letters", "operation", str(begun["id"]))["done"] == 2
    assert TransactionRecord.objects.exclude(replay_of=None).count() == 2
    assert [row["id"] for row in ask("dead_letters", "operations")] == [begun["id"]]
    assert "replay of ValueError" in run("dead_letters", "operations", "--state", "running")
    with pytest.raises(CommandError, match="has not finished"):
        call_command("dead_letters", "discard-all", str(group.pk), "--yes", "--reason", "x")


def test_a_group_is_discarded(group: DeadLetterGroup) -> None:
    assert "discard of 3; manage.py maintain" in run(
        "dead_letters", "discard-all", str(group.pk), "--yes", "--reason", "tests"
    )
    assert AuditEntry.objects.get(action="bulk.discard").actor == actor()


def test_an_operation_is_paused_resumed_and_cancelled(group: DeadLetterGroup) -> None:
    number = str(ask("dead_letters", "discard-all", str(group.pk), "--yes", "--reason", "tests")["id"])
    for verb, state in {"pause": "paused", "resume": "running", "cancel": "cancelled"}.items():
        assert ask("dead_letters", verb, number, "--reason", "wait")["state"] == state
        assert AuditEntry.objects.get(action=f"bulk.{state}").actor == actor()
    with pytest.raises(CommandError, match="cancelled cannot become paused"):
        call_command("dead_letters", "pause", number, "--reason", "x")
    assert DeadLetter.objects.filter(state="open").count() == 3


@pytest.mark.parametrize(
    "verb", ["mute", "resolve", "reopen", "replay-all", "discard-all", "pause", "resume", "cancel"]
)
def test_what_is_not_there_is_told_in_one_line(verb: str) -> None:
    with pytest.raises(CommandError, match=r"there is no (dead-letter group|bulk operation) 7$"):
        call_command("dead_letters", verb, "7", "--reason", "x")


@pytest.mark.parametrize("rate", ["0", "501", "nan"])
def test_a_pace_out_of_bounds_is_refused(group: DeadLetterGroup, rate: str) -> None:
    with pytest.raises(CommandError, match="the pace is 1 to 500 per second"):
        call_command("dead_letters", "replay-all", str(group.pk), "--rate", rate, "--reason", "x")
    assert not BulkOperation.objects.exists()
