"""Dead letters in the console: one line for each kind of failure, all there is to know of one, and what to decide."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from engines import dead_letters
from engines.core.errors import ExceptionType
from engines.core.states import GroupState
from engines.dead_letters import DeadLetterDraft, bulk
from engines.models import BulkOperation, DeadLetter, DeadLetterGroup, Pipeline, TransactionRecord
from ergon_site.access.models import AuditEntry
from tests.console import records
from tests.console.records import exported, read
from tests.factories import DeadLetterHourFactory, make_pipeline

pytestmark = pytest.mark.django_db

GROUPS, LETTERS = "/admin/engines/deadlettergroup/", "/admin/engines/deadletter/"
DIALOG = {"_form_submitted": "on", "reason": "the bank is back"}


@pytest.fixture
def orders() -> Pipeline:
    return make_pipeline("orders", redacted=["card"])


def stray(uid: str = "call-1") -> DeadLetter:
    """A dead letter of something that is no pipeline."""
    known: dict[str, Any] = {
        "step": "call",
        "category": "SYSTEM",
        "error_type": "Gone",
        "message": "410",
        "details": {},
    }
    return dead_letters.record([DeadLetterDraft(source="rank/snapshot", uid=uid, payload={"n": 1}, **known)])[0]


def test_failures_of_one_kind_are_one_line(browse: Client, orders: Pipeline) -> None:
    for number in range(3):
        records.fail(orders, {}, records.failure(f"customer {number} is unknown"))
    records.fail(orders, {}, records.failure("no route", ExceptionType.TIMEOUT))
    page = read(browse, GROUPS)
    assert "customer # is unknown" in page
    assert "3 of 3" in page
    assert "2 dead-letter groups" in page


def test_groups_are_filtered_by_state_source_and_category_and_searched(browse: Client, orders: Pipeline) -> None:
    muted = records.fail(orders, {}, records.failure("known trouble"))
    records.fail(orders, {}, records.failure("no route", ExceptionType.TIMEOUT))
    stray()
    dead_letters.decide(muted.group_id, GroupState.MUTED, by="ada", reason="known")
    expected = {
        "?state=muted": {"known trouble"},
        "?state=open": {"no route", "#"},
        "?source=rank/snapshot": {"#"},
        "?source=orders&state=open": {"no route"},
        "?category=TIMEOUT": {"no route"},
        "?q=trouble": {"known trouble"},
        "?state=regressed": set(),
    }
    found = {query: {row["message"] for row in exported(browse, f"{GROUPS}export.json{query}")} for query in expected}
    assert found == expected


@pytest.mark.parametrize("query", ["?state=lost", "?category=X"])
@pytest.mark.parametrize("address", [GROUPS, LETTERS])
def test_a_filter_that_means_nothing_leads_back(browse: Client, address: str, query: str) -> None:
    assert browse.get(address + query).status_code == 302


def test_a_groups_last_day_is_drawn(browse: Client, orders: Pipeline) -> None:
    group = records.fail(orders, {}).group
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    DeadLetterHourFactory.create(group=group, hour=hour - timedelta(hours=5), count=9)
    DeadLetterHourFactory.create(group=group, hour=hour - timedelta(hours=30), count=500)
    for address in (GROUPS, f"{GROUPS}{group.pk}/change/"):
        assert 'aria-label="10 in the last 24 hours, at most 9 in one"' in read(browse, address)


@pytest.mark.parametrize(("action", "state"), [("mute", "muted"), ("resolve", "resolved"), ("reopen", "open")])
def test_a_group_is_decided_on_with_a_reason(browse: Client, orders: Pipeline, action: str, state: str) -> None:
    group = records.fail(orders, {}).group
    dead_letters.decide(group.pk, GroupState.REGRESSED, by="tests", reason="")
    browse.post(f"{GROUPS}{group.pk}/{action}/", DIALOG)
    group.refresh_from_db()
    assert (group.state, group.decided_by, group.decision_reason) == (state, "ada", "the bank is back")
    assert AuditEntry.objects.filter(action=f"dead_letter_group.{state}", actor="ada").count() == 1


def test_a_groups_letters_are_listed_newest_first_in_pages(browse: Client, orders: Pipeline) -> None:
    dead_letters.record(
        [
            DeadLetterDraft(
                source="s", uid=f"uid-{number:02}", step="p", category="SYSTEM", error_type="E", message="m", details={}
            )
            for number in range(60)
        ]
    )
    group = DeadLetterGroup.objects.get()
    first = read(browse, f"{GROUPS}{group.pk}/change/")
    assert "uid-59" in first
    assert "uid-09" not in first
    cursor = first.split("?at=")[1].split('"')[0]
    assert "uid-09" in read(browse, f"{GROUPS}{group.pk}/change/?at={cursor}")


def test_a_group_is_replayed_after_a_word_on_how_many_it_concerns(browse: Client, orders: Pipeline) -> None:
    for number in range(3):
        records.fail(orders, {"n": number})
    group = DeadLetterGroup.objects.get()
    address = f"{GROUPS}{group.pk}/replay-all/"
    assert "This applies to <strong>3</strong> unresolved dead letters" in read(browse, address)
    form = {**DIALOG, "canary": "2", "rate": "5"}
    for wrong in ({"rate": "0"}, {"rate": "1000"}, {"canary": "-1"}, {"reason": ""}):
        browse.post(address, {**form, **wrong})
    assert not BulkOperation.objects.exists()
    answer = browse.post(address, form)
    operation = BulkOperation.objects.get()
    assert answer.headers["HX-Redirect"] == f"/admin/engines/bulkoperation/{operation.pk}/change/"
    assert (operation.verb, operation.canary, operation.rate, operation.by) == ("replay", 2, 5.0, "ada")
    assert "A bulk operation on this group is running" in read(browse, f"{GROUPS}{group.pk}/change/")
    answer = browse.post(f"{GROUPS}{group.pk}/discard-all/", DIALOG)
    assert "has not finished" in read(browse, answer.headers["HX-Redirect"])


def test_a_group_is_discarded_by_a_bulk_operation(browse: Client, orders: Pipeline) -> None:
    group = records.fail(orders, {}).group
    browse.post(f"{GROUPS}{group.pk}/discard-all/", DIALOG)
    BulkOperation.objects.update(moved_at=timezone.now() - timedelta(seconds=5))
    bulk.advance()
    assert DeadLetter.objects.get().state == "discarded"


def test_letters_are_listed_by_state_source_category_group_and_id(browse: Client, orders: Pipeline) -> None:
    first = records.fail(orders, {}, id="first")
    records.fail(orders, {}, records.failure("no route", ExceptionType.TIMEOUT), id="second")
    stray(uid="third")
    dead_letters.discard(first.pk, by="ada", reason="test data")
    expected = {
        "?state=discarded": {"first"},
        "?state=open&source=orders": {"second"},
        "?category=TIMEOUT": {"second"},
        f"?group={first.group_id}": {"first"},
        "?group=x": set(),
        "?q=thi": {"third"},
    }
    found = {
        query: {row["transaction"] for row in exported(browse, f"{LETTERS}export.json{query}")} for query in expected
    }
    assert found == expected


def test_a_letters_page_has_all_that_is_needed_to_understand_it(browse: Client, orders: Pipeline) -> None:
    letter = records.fail(orders, {"card": "4111-1111", "n": 1}, records.failure("first"), records.failure("second"))
    page = read(browse, f"{LETTERS}{letter.pk}/change/")
    for words in (
        "a SYSTEM failure in process needs a decision",
        "ConnectionError</strong>: second",
        "Traceback (most recent call last)",
        "attempt 2 of 2",
        "default v1",
        f"/admin/engines/transactionrecord/{letter.transaction_id}/change/",
        f"/admin/engines/deadlettergroup/{letter.group_id}/change/",
    ):
        assert words in page
    assert "4111-1111" not in page
    assert "4111-1111" in browse.post(f"{LETTERS}{letter.pk}/reveal/").content.decode()
    assert AuditEntry.objects.get(action="dead_letter.reveal").after == {"fields": ["card"]}


def test_a_letter_is_replayed_once(browse: Client, orders: Pipeline) -> None:
    letter = records.fail(orders, {"n": 1})
    address = browse.post(f"{LETTERS}{letter.pk}/replay/", DIALOG).headers["HX-Redirect"]
    new = TransactionRecord.objects.get(replay_of=letter.transaction_id)
    assert address == f"/admin/engines/transactionrecord/{new.pk}/change/"
    page = read(browse, f"{LETTERS}{letter.pk}/change/")
    assert "Replayed by ada" in page
    assert new.uid in page
    again = browse.post(f"{LETTERS}{letter.pk}/replay/", DIALOG).headers["HX-Redirect"]
    assert "was replayed by ada." in read(browse, again)


def test_a_letter_is_edited_and_replayed(browse: Client, orders: Pipeline) -> None:
    letter = records.fail(orders, {"card": "4111", "n": 1})
    form = {"payload": '{"card": "•••", "n": 2}', "reason": "n was wrong"}
    shown = browse.post(f"{LETTERS}{letter.pk}/edit/", form).content.decode()
    seen = shown.split('name="seen" value="')[1].split('"')[0]
    browse.post(f"{LETTERS}{letter.pk}/edit/", {**form, "seen": seen, "send": "1"})
    assert TransactionRecord.objects.get(replay_of=letter.transaction_id).payload == {"card": "4111", "n": 2}
    letter.refresh_from_db()
    assert (letter.state, letter.reason) == ("replayed", "n was wrong")


def test_a_letter_is_discarded_with_a_reason(browse: Client, orders: Pipeline) -> None:
    letter = records.fail(orders, {})
    browse.post(f"{LETTERS}{letter.pk}/discard/", DIALOG)
    letter.refresh_from_db()
    assert (letter.state, letter.settled_by, letter.reason) == ("discarded", "ada", "the bank is back")


def test_a_letter_of_no_pipeline_can_be_read_and_discarded_but_not_replayed(browse: Client) -> None:
    letter = stray()
    page = read(browse, f"{LETTERS}{letter.pk}/change/")
    assert "cannot be replayed" in page
    assert "No attempts are kept of it." in page
    assert f"{LETTERS}{letter.pk}/discard/" in page
    answer = browse.post(f"{LETTERS}{letter.pk}/replay/", DIALOG)
    assert "which is not a pipeline." in read(browse, answer.headers["HX-Redirect"])


def test_leads_act_on_groups_and_operators_on_letters(
    client: Client, hire: Callable[[str], User], orders: Pipeline
) -> None:
    letter = records.fail(orders, {})
    client.force_login(hire("operator"))
    for address in (f"{GROUPS}{letter.group_id}/replay-all/", f"{GROUPS}{letter.group_id}/discard-all/"):
        assert client.post(address, DIALOG).status_code == 403
    assert client.get(f"{LETTERS}{letter.pk}/edit/").status_code == 403
    assert "Needs the role lead or administrator." in read(client, f"{GROUPS}{letter.group_id}/change/")
    client.force_login(hire("viewer"))
    for action in ("replay", "discard", "reveal"):
        assert client.post(f"{LETTERS}{letter.pk}/{action}/", DIALOG).status_code == 403
    assert client.post(f"{GROUPS}{letter.group_id}/mute/", DIALOG).status_code == 403
    assert client.get(f"{LETTERS}{letter.pk}/change/").status_code == 200
