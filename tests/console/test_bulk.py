"""Bulk operations in the console: how far they are, what came of each, and how to stop them."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from engines import dead_letters
from engines.dead_letters import bulk
from engines.dead_letters.bulk import Terms
from engines.models import BulkOperation, DeadLetter, DeadLetterGroup, Pipeline
from ergon_site.access.models import AuditEntry
from tests.console import records
from tests.console.records import exported, read
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

LIST = "/admin/engines/bulkoperation/"
DIALOG = {"_form_submitted": "on", "reason": "wait for the bank"}


@pytest.fixture
def orders() -> Pipeline:
    return make_pipeline("orders")


def begin(orders: Pipeline, verb: str = "replay", count: int = 3, canary: int = 1) -> BulkOperation:
    letters = [records.fail(orders, {"n": number}) for number in range(count)]
    return bulk.begin(verb, letters[0].group_id, Terms(canary=canary, rate=100), by="lea", reason="bank is back")


def test_the_list_says_who_why_and_how_far(browse: Client, orders: Pipeline) -> None:
    begin(orders)
    bulk.advance()
    page = read(browse, LIST)
    for words in ("replay of ConnectionError: the bank said no", "lea", "bank is back", "1 of 3"):
        assert words in page
    assert [row["done"] for row in exported(browse, f"{LIST}export.json?state=running")] == [1]
    assert exported(browse, f"{LIST}export.json?state=done") == []
    assert browse.get(f"{LIST}?state=lost").status_code == 302


def test_a_page_follows_its_operation_item_by_item(browse: Client, orders: Pipeline) -> None:
    operation = begin(orders, "discard", canary=0)
    dead_letters.discard(DeadLetter.objects.earliest("pk").pk, by="ada", reason="test data")
    page = read(browse, f"{LIST}{operation.pk}/change/")
    assert f'data-live="{LIST}{operation.pk}/live/"' in page
    assert "Running: 0 of 3 dead letters." in page
    assert "No results yet." in page
    BulkOperation.objects.update(moved_at=timezone.now() - timedelta(seconds=5))
    bulk.advance()
    part = read(browse, f"{LIST}{operation.pk}/live/")
    assert "<html" not in part
    assert "Done: 2 of 3 dead letters." in part
    assert DeadLetter.objects.latest("pk").uid in part


@pytest.mark.parametrize(("action", "state"), [("pause", "paused"), ("cancel", "cancelled")])
def test_an_operation_is_stopped_with_a_reason(browse: Client, orders: Pipeline, action: str, state: str) -> None:
    operation = begin(orders)
    browse.post(f"{LIST}{operation.pk}/{action}/", DIALOG)
    operation.refresh_from_db()
    assert operation.state == state
    assert AuditEntry.objects.get(action=f"bulk.{state}").reason == "wait for the bank"


def test_a_paused_operation_goes_on(browse: Client, orders: Pipeline) -> None:
    operation = begin(orders)
    bulk.turn(operation.pk, "paused", by="lea", reason="")
    browse.post(f"{LIST}{operation.pk}/resume/", DIALOG)
    operation.refresh_from_db()
    assert operation.state == "running"


def test_what_has_ended_cannot_be_turned_and_says_so(browse: Client, orders: Pipeline) -> None:
    operation = begin(orders)
    bulk.turn(operation.pk, "cancelled", by="lea", reason="")
    assert read(browse, f"{LIST}{operation.pk}/change/").count('disabled title="It is cancelled."') == 3
    answer = browse.post(f"{LIST}{operation.pk}/pause/", DIALOG)
    assert "that is cancelled cannot become paused." in read(browse, answer.headers["HX-Redirect"])


def test_why_an_operation_stopped_by_itself_is_said(browse: Client, orders: Pipeline) -> None:
    operation = begin(orders)
    bulk.advance()
    records.run(orders, records.failure("again"))
    bulk.advance()
    assert "Stopped automatically: 1 of its replays failed again." in read(browse, f"{LIST}{operation.pk}/change/")


def test_the_counts_of_an_operation_agree_with_why_it_stopped(browse: Client, orders: Pipeline) -> None:
    operation = begin(orders, canary=2)
    bulk.advance()
    page = read(browse, f"{LIST}{operation.pk}/change/")
    assert "2 replays started: 0 succeeded, 0 failed again, 2 still running; 0 skipped, 0 refused" in page
    records.run(orders, records.failure("again"))
    records.run(orders, records.failure("again"))
    bulk.advance()
    page = read(browse, f"{LIST}{operation.pk}/change/")
    assert "Stopped automatically: 2 of its replays failed again." in page
    assert "2 replays started: 0 succeeded, 2 failed again, 0 still running; 0 skipped, 0 refused" in page
    assert page.count('<td data-label="Result"><span class="ergon-tag ergon-tag-bad">failed again</span></td>') == 2
    assert "<dt>Failed again</dt><dd>2</dd>" in page


def test_what_was_discarded_is_counted_so(browse: Client, orders: Pipeline) -> None:
    operation = begin(orders, "discard", canary=0)
    BulkOperation.objects.update(moved_at=timezone.now() - timedelta(seconds=5))
    bulk.advance()
    assert "3 discarded, 0 skipped, 0 refused" in read(browse, f"{LIST}{operation.pk}/change/")


def test_an_operation_that_stopped_by_itself_goes_on_when_resumed(browse: Client, orders: Pipeline) -> None:
    operation = begin(orders)
    bulk.advance()
    records.run(orders, records.failure("again"))
    bulk.advance()
    browse.post(f"{LIST}{operation.pk}/resume/", DIALOG)
    BulkOperation.objects.update(moved_at=timezone.now() - timedelta(seconds=5))
    bulk.advance()
    operation.refresh_from_db()
    assert (operation.state, operation.done) == ("done", 3)


def test_an_operation_that_stopped_by_itself_is_not_resumed_beside_another(browse: Client, orders: Pipeline) -> None:
    operation = begin(orders)
    BulkOperation.objects.update(state="stopped")
    bulk.begin("discard", DeadLetterGroup.objects.get().pk, Terms(), by="lea", reason="")
    answer = browse.post(f"{LIST}{operation.pk}/resume/", DIALOG)
    assert "Another bulk operation on this group has not finished" in read(browse, answer.headers["HX-Redirect"])


def test_only_leads_turn_operations(client: Client, hire: Callable[[str], User], orders: Pipeline) -> None:
    operation = begin(orders)
    client.force_login(hire("operator"))
    assert client.get(LIST).status_code == 200
    for action in ("pause", "resume", "cancel"):
        assert client.post(f"{LIST}{operation.pk}/{action}/", DIALOG).status_code == 403
