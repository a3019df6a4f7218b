"""Long commands show on a terminal how far they are, and nothing elsewhere; what destroys something asks first."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from engines import transactions
from engines.dead_letters import bulk
from engines.models import DeadLetter, DeadLetterGroup, TransactionRecord
from ergon_site.access.cli import progress
from facts import ledger
from facts.models import Fact
from tests.commands import on_terminal, run, running
from tests.durable_transactions import claim, failed, make_policy, settle, submit
from tests.factories import make_pipeline
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.facts.test_truncating import age, fill
from tests.processes import LIMIT, eventually, manage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]
TASKS = "tests.tasks"
BAR = "[####################] 100 %"


@pytest.mark.parametrize(
    ("count", "elapsed", "known", "line"),
    [
        (500, 2.0, {}, "500 submitted, 250/s"),
        (500, 2.0, {"fraction": 0.25}, "[#####---------------]  25 %  500 submitted, 250/s, 0:06 left"),
        (5, 1.0, {"fraction": 0.001}, "[--------------------]   0 %  5 submitted, 5/s"),
        (3, 3600.0, {"fraction": 0.5, "total": 6}, "[##########----------]  50 %  3 of 6 submitted, 0/s, 1:00:00 left"),
        (7, 1.0, {"fraction": 7 / 6, "total": 6}, f"{BAR}  7 of 6 submitted, 7/s"),
        (0, 0.0, {"fraction": 0.0}, "[--------------------]   0 %  0 submitted, 0/s"),
    ],
)
def test_the_line_tells_how_far_it_is_the_rate_and_the_time_left(
    count: int, elapsed: float, known: Any, line: str
) -> None:
    assert progress.text(count, "submitted", elapsed, **known) == line


def test_a_submission_shows_a_bar_on_a_terminal_and_nothing_in_a_pipe(tmp_path: Path) -> None:
    make_pipeline()
    file = tmp_path / "lines"
    file.write_text('{"payload": 1}\n' * 1500)
    arguments = ("submit", "orders", "--input", str(file))
    with (tmp_path / "ids").open("wb") as ids:
        shown = on_terminal(*arguments, stdout=ids, ERGON_TASKS=TASKS)
    assert "%  1,000 submitted, " in shown
    assert " left" in shown
    assert "1,500 submitted in " in shown
    assert len((tmp_path / "ids").read_text().split()) == 1500
    assert manage(*arguments, ERGON_TASKS=TASKS).stderr == ""
    assert TransactionRecord.objects.count() == 3000


def test_a_drain_shows_a_bar(tmp_path: Path) -> None:
    submit(make_pipeline(policy=make_policy()), 30, sleep=0.05)
    with (tmp_path / "counts").open("wb") as counts:
        shown = on_terminal("consume", "--drain", stdout=counts, ERGON_TASKS=TASKS)
    # Not always the full one: a drain may end after the last look.
    assert re.search(r"\[[#-]{20}\] +\d+ %  \d+ succeeded, 0 failed", shown)
    assert (tmp_path / "counts").read_text() == "orders: 30 succeeded, 0 failed\n"


def test_pruning_shows_a_bar_and_asks_whatever_the_age(tmp_path: Path) -> None:
    pipeline = make_pipeline(keep_succeeded_days=0)
    submit(pipeline, 3)
    settle(claim(pipeline))
    refused = manage("prune")
    assert (refused.returncode, refused.stderr) == (
        os.EX_USAGE,
        "CommandError: this deletes 3 transactions, older than their pipelines keep them: repeat it with --yes\n",
    )
    with (tmp_path / "document").open("wb") as document:
        shown = on_terminal("prune", "--json", typed="yes\n", stdout=document)
    assert "Type 'yes' to go on: " in shown
    assert f"{BAR}  3 of 3 deleted, " in shown
    assert json.loads((tmp_path / "document").read_text())["total"] == 3


def test_facts_are_exported_imported_and_truncated_with_a_bar(tmp_path: Path) -> None:
    make_boundary()
    ledger.append_many([draft(number) for number in range(5)])
    exported = tmp_path / "facts.jsonl"
    with exported.open("wb") as output:
        shown = on_terminal("facts", "export", PLANT, OFFICE, stdout=output)
    assert f"{BAR}  5 of 5 exported, " in shown
    lines = [json.loads(line) for line in exported.read_text().splitlines()]
    assert [line["envelope"]["message_id"] for line in lines] == [draft(n)["envelope"]["message_id"] for n in range(5)]
    with (tmp_path / "appended").open("wb") as output:
        shown = on_terminal("facts", "append", "--input", str(exported), stdout=output)
    assert f"{BAR}  5 lines read, " in shown
    assert [line.split()[1] for line in (tmp_path / "appended").read_text().splitlines()] == ["repeated"] * 5
    assert run("facts", "export", PLANT, OFFICE, "--start", "4").splitlines() == exported.read_text().splitlines()[4:]


def test_truncation_asks_before_it_removes_facts_and_shows_a_bar() -> None:
    fill(5)
    age(3)
    ledger.confirm("erp", 4)
    with pytest.raises(CommandError, match="this removes 3 facts that every consumer has confirmed: repeat it"):
        run("facts", "truncate", "--reason", "the disk")
    assert Fact.objects.count() == 5
    shown = on_terminal("facts", "truncate", "--reason", "the disk", typed="yes\n")
    assert f"{BAR}  3 of 3 removed, " in shown
    assert Fact.objects.count() == 2
    assert "removed 0" in run("facts", "truncate", "--reason", "nothing to remove: nobody is asked")


def group_of(count: int) -> DeadLetterGroup:
    pipeline = make_pipeline()
    transactions.submit_many("orders", [{"payload": number} for number in range(count)])
    settle(claim(pipeline), failed())
    return DeadLetterGroup.objects.get()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["dead_letters", "discard-all", "GROUP"], "this discards 2 dead letters"),
        (["consumer", "retire", "erp"], "this ends the consumer erp"),
        (["boundary", "retire", PLANT, OFFICE], f"this ends the boundary {PLANT} → {OFFICE}"),
        (["zone", "retire", PLANT], f"this ends the zone {PLANT}"),
    ],
)
def test_what_ends_or_deletes_something_is_refused_without_yes_where_nobody_can_be_asked(
    arguments: list[str], what: str
) -> None:
    fill(1)
    number = str(group_of(2).pk)
    typed = [number if one == "GROUP" else one for one in arguments]
    with pytest.raises(CommandError, match="repeat it with --yes") as refused:
        run(*typed, "--reason", "x")
    assert str(refused.value).startswith(what)
    assert refused.value.returncode == os.EX_USAGE


def test_a_replay_of_a_group_is_waited_for() -> None:
    group = group_of(2)
    arguments = ("dead_letters", "replay-all", str(group.pk), "--canary", "0", "--wait", "--reason", "mended")
    with running(*arguments) as process:

        def has_ended() -> bool:
            bulk.advance()
            return process.poll() is not None

        eventually(has_ended, "the operation is over", 2 * LIMIT)
        output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert output.endswith(
        "is done: 2 replays started: 0 succeeded, 0 failed again, 2 still running; 0 skipped, 0 refused\n"
    )
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"replayed"}


def test_waiting_for_an_operation_that_was_cancelled_is_an_error() -> None:
    begun = bulk.begin("replay", group_of(2).pk, bulk.Terms(), by="ada", reason="x")
    bulk.turn(begun.pk, "cancelled", by="ada", reason="x")
    with pytest.raises(CommandError, match="is cancelled"):
        run("dead_letters", "operation", str(begun.pk), "--wait")
