"""Rows of lists are selected and acted on: what is offered to whom, the dry run, and what is begun."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.test import Client
from django.utils import timezone

from engines import dead_letters, schedules, transactions
from engines.core.outcome import Success
from engines.dead_letters import bulk
from engines.models import BulkOperation, DeadLetter, Pipeline
from ergon_site.access.models import AuditEntry
from facts.models import Artifact
from tests.commands import ask, run
from tests.console import records
from tests.console.records import exported, read
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

ADMIN = "/admin/engines"
LETTERS = f"{ADMIN}/deadletter"
SENT = {"_form_submitted": "on", "reason": "bank is back", "rate": "500", "canary": "0"}
ACTS = {
    "engines/transactionrecord": ["replay", "cancel", "export"],
    "engines/deadletter": ["replay", "discard", "export"],
    "engines/deadlettergroup": ["replay", "discard", "mute", "resolve", "reopen", "export"],
    "engines/pipeline": ["pause", "resume", "export"],
    "engines/schedule": ["pause", "resume", "export"],
    "facts/artifact": ["sweep", "export"],
}


@pytest.fixture
def orders() -> Pipeline:
    return make_pipeline("orders")


def fail(orders: Pipeline, count: int = 3) -> list[DeadLetter]:
    return [records.fail(orders, {"n": number}) for number in range(count)]


def post(client: Client, address: str, rows: Any = (), **sent: Any) -> str:
    """The page that an act on these rows answers with, or leads to."""
    keys = [getattr(row, "pk", row) for row in rows]
    return client.post(f"{address}/", {"_selected_action": keys, **sent}, follow=True).content.decode()


def advance() -> BulkOperation:
    BulkOperation.objects.update(moved_at=timezone.now() - timedelta(seconds=9))
    bulk.advance()
    return BulkOperation.objects.latest("pk")


def test_every_list_with_acts_has_boxes_and_offers_them(
    browse: Client, client: Client, hire: Callable[[str], User], orders: Pipeline
) -> None:
    letter = fail(orders, 1)[0]
    nightly = schedules.create("nightly", schedules.Plan(pipeline="orders", cron="* * * * *"), by="ada")
    fields = {"digest": "", "size": 1, "media_type": "", "stored_as": "x"}
    artifact = Artifact.objects.create(bucket="press", key="a&b", **fields)
    keys = [letter.transaction_id, letter.pk, letter.group_id, orders.pk, nightly.pk, artifact.pk]
    for (address, verbs), key in zip(ACTS.items(), keys, strict=True):
        page = read(browse, f"/admin/{address}/")
        assert f'name="_selected_action" value="{key}"' in page
        assert page.count('id="action-toggle"') == 1
        assert [f'formaction="selected/{verb}/"' in page for verb in verbs] == [True] * len(verbs)
    assert 'aria-label="Select press/a&amp;b"' in page
    assert 'id="action-toggle"' not in read(browse, f"{ADMIN}/worker/")
    # Who may not act in bulk is told why, may export, and is refused.
    client.force_login(hire("operator"))
    page = read(client, f"{LETTERS}/")
    assert page.count('disabled title="Needs the role lead or administrator."') == 2
    assert client.post(f"{LETTERS}/selected/discard/", {"_selected_action": letter.pk, **SENT}).status_code == 403
    assert client.post(f"{LETTERS}/selected/nonsense/", {}).status_code == 404
    assert client.get(f"{LETTERS}/selected/export/").headers["Location"] == f"{LETTERS}/"
    assert not BulkOperation.objects.exists()


def test_selected_letters_are_replayed_after_a_dry_run_and_the_record_says_how_it_went(
    browse: Client, orders: Pipeline
) -> None:
    letters = fail(orders, 4)
    dead_letters.discard(letters[3].pk, by="bob", reason="mine")
    page = post(browse, f"{LETTERS}/selected/replay", letters)
    assert "<strong>3</strong> would be replayed, the others skipped:" in page
    assert "<strong>1</strong>: It was discarded." in page
    assert page.count('name="_selected_action"') == 4
    assert "This field is required" in post(browse, f"{LETTERS}/selected/replay", letters, **SENT | {"reason": ""})
    page = post(browse, f"{LETTERS}/selected/replay", letters, **SENT)
    assert "Running: 0 of 4 dead letters." in page
    # Of a group the open dead letters are meant.
    group = post(browse, f"{ADMIN}/deadlettergroup/selected/discard", [letters[0].group_id])
    assert "Discard 3 dead letters" in group
    assert "4 selected dead letters" in page
    assert "3 of 4; to be skipped: 1 (It was discarded.)" in page
    operation = advance()
    address = f"{ADMIN}/bulkoperation/{operation.pk}"
    assert "Finishing: 4 of 4 dead letters; 3 still running." in read(browse, f"{address}/live/")
    for outcome in (records.failure("again"), Success(1), Success(2)):
        records.run(orders, outcome)
    for _ in range(2):  # as it is, and as maintenance has counted it
        page = read(browse, f"{address}/change/")
        assert "Done: 4 of 4 dead letters; 1 failed again." in page
        assert "3 replays started: 2 succeeded, 1 failed again, 0 still running; 1 skipped, 0 refused" in page
        assert page.count("failed again</span></td>") == 1
        assert "1 failed again" in read(browse, f"{ADMIN}/bulkoperation/")
        told = ask("dead_letters", "operation", str(operation.pk))["replays"]
        assert (told["started"], told["succeeded"], told["failed"], told["running"]) == (3, 2, 1, 0)
        bulk.advance()


def test_all_that_match_a_filter_are_meant_and_told_with_their_number(browse: Client, orders: Pipeline) -> None:
    for number in range(60):
        transactions.submit("orders", {"n": number})
    transactions.submit(make_pipeline("other").name, {})
    page = read(browse, f"{ADMIN}/transactionrecord/?pipeline=orders&state=pending")
    assert "All 60 transactions that match this filter" in page
    address = f"{ADMIN}/transactionrecord/selected/cancel/?pipeline=orders&state=pending"
    page = browse.post(address, {"across": "1", "_selected_action": "1"}).content.decode()
    assert "Cancel 60 transactions" in page
    assert 'name="across" value="1"' in page
    operation_page = browse.post(address, {"across": "1", **SENT}, follow=True).content.decode()
    assert "All transactions with state: pending, pipeline: orders" in operation_page
    operation = advance()
    assert (operation.state, operation.done, operation.filter) == (
        *("done", 60),
        {"where": {"state": "pending", "pipeline": "orders"}},
    )
    # Lists that are short name their rows.
    page = post(browse, f"{ADMIN}/pipeline/selected/pause", across="1", **SENT)
    assert "Running: 0 of 2 pipelines." in page
    advance()
    assert Pipeline.objects.filter(paused_by="ada").count() == 2
    assert browse.post(f"{LETTERS}/selected/discard/?state=lost", {"across": "1"}).status_code == 400
    assert browse.post(f"{LETTERS}/selected/discard/?uid=x", {"across": "1"}).status_code == 400


def test_hostile_keys_are_refused_and_nothing_begun(browse: Client) -> None:
    for key in ("x", "-1", "1e3", "9" * 40, "\x00", "٣", "1 OR 1=1"):
        page = post(browse, f"{LETTERS}/selected/discard", [key], **SENT)
        assert "is not the number of a dead letter." in page
    assert "Select 1 to 1,000 dead letters" in post(browse, f"{LETTERS}/selected/discard", **SENT)
    assert not BulkOperation.objects.exists()


def test_what_is_selected_is_exported_by_a_record(browse: Client, orders: Pipeline) -> None:
    letters = fail(orders, 3)
    page = post(browse, f"{LETTERS}/selected/export", letters[:2], **SENT | {"reason": ""})
    operation = BulkOperation.objects.get()
    address = f"{LETTERS}/selected/{operation.pk}/export."
    assert f'href="{address}csv"' in page
    assert {row["transaction"] for row in exported(browse, f"{address}json")} == {one.uid for one in letters[:2]}
    browse.post(f"{ADMIN}/transactionrecord/selected/export/?state=failed", {"across": "1", "_form_submitted": "on"})
    all_failed = f"{ADMIN}/transactionrecord/selected/{BulkOperation.objects.latest('pk').pk}/export.json"
    assert {row["id"] for row in exported(browse, all_failed)} == {one.uid for one in letters}
    assert browse.get(f"{ADMIN}/transactionrecord/selected/{operation.pk}/export.json").status_code == 404
    assert browse.get(f"{LETTERS}/selected/99/export.json").status_code == 404
    assert {entry.actor for entry in AuditEntry.objects.filter(action="bulk.export")} == {"ada"}


def test_the_command_acts_on_ids_and_on_filters(orders: Pipeline) -> None:
    letters = fail(orders, 2)
    ids = [str(letter.pk) for letter in letters]
    assert ask("bulk", "replay", "dead-letters", *ids, "--dry-run")["would"] == 2
    assert "2 match; of the 2 looked at, discard would be done to 2" in run(
        *("bulk", "discard", "dead-letters", "--where", "state=open", "--dry-run")
    )
    told = ask("bulk", "discard", "dead-letters", *ids, "--yes", "--reason", "tests")
    assert (told["kind"], told["verb"], told["expected"], told["replays"]) == ("dead_letter", "discard", 2, None)
    assert ask("bulk", "pause", "pipelines", "orders", "--reason", "x")["filter"] == {"ids": [orders.pk]}
    for wrong, words in (
        (("pause", "pipelines", "none", "--reason", "x"), "there is no pipeline 'none'"),
        (("pause", "pipelines", "orders"), "needs a --reason"),
        (("pause", "pipelines", "--reason", "x"), "select 1 to 1,000 pipelines"),
        (("pause", "pipelines", "orders", "--where", "state=active", "--reason", "x"), "not both"),
    ):
        with pytest.raises(CommandError, match=words):
            run("bulk", *wrong)
