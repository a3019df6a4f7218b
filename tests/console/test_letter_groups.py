"""The page of a dead-letter group: what its members have in common, in what they differ, and what was tried before."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engines import dead_letters, transactions
from engines.core.outcome import Success
from engines.dead_letters import DeadLetterDraft, bulk
from engines.models import DeadLetter, DeadLetterGroup, Pipeline
from engines.reads import letter_groups
from tests.console import records
from tests.console.records import read
from tests.console.test_pages import QUERY_BUDGET
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

ENGINE = '  File "/usr/lib/python3.12/threading.py", line 10, in run\n    step()\n'
AUTHOR = '  File "/srv/shop/tasks.py", line 3, in charge\n    call()\n'
MANY = 10_000


@pytest.fixture
def orders() -> Pipeline:
    return make_pipeline("orders", redacted=["card"])


def cost(client: Client, group_id: int) -> tuple[str, int]:
    with CaptureQueriesContext(connection) as queries:
        page = read(client, f"/admin/engines/deadlettergroup/{group_id}/change/")
    return " ".join(page.split()), len(queries)


def test_a_group_shows_its_newest_traceback_the_fields_that_differ_and_what_it_affects(
    browse: Client, orders: Pipeline
) -> None:
    for number in range(3):
        payload = {"order": number, "card": f"4111-{number}", "shop": "tea", "rush": number == 2}
        letter = records.fail(orders, payload, id=f"order-{number}")
    traceback = f"Traceback (most recent call last):\n{ENGINE}{AUTHOR}{ENGINE}ConnectionError: <b>"
    DeadLetter.objects.filter(pk=letter.pk).update(traceback=traceback, details={"policy_version": 1, "worker": 7})
    page, queries = cost(browse, letter.group_id)
    assert page.count("<details><summary>1 frame of Ergon and libraries</summary>") == 2
    assert "<pre> File &quot;/srv/shop/tasks.py&quot;, line 3, in charge call()</pre>" in page
    assert "ConnectionError: &lt;b&gt;" in page
    assert "The newest 3 differ in these fields; 2 others are the same in all." in page
    assert '<th scope="row">order</th> <td data-label="Values">2, 1, 0</td>' in page
    assert '<th scope="row">rush</th> <td data-label="Values">false × 2, true</td>' in page
    assert "4111-" not in page
    assert f"{orders.policy} v1 (3)" in page
    assert "Nothing yet." in page
    assert queries <= QUERY_BUDGET


def test_a_group_says_what_was_tried_before_and_how_it_went(browse: Client, orders: Pipeline) -> None:
    letters = [records.fail(orders, {}, id=f"order-{number}") for number in range(5)]
    group_id = letters[0].group_id
    again, well = (transactions.replay_letter(one.pk, by="ada", reason="try") for one in letters[:2])
    for outcome in (records.failure(), Success(None)):
        records.run(orders, outcome)
    dead_letters.discard(letters[2].pk, by="ada", reason="a test order")
    operation = bulk.begin("replay", group_id, bulk.Terms(rate=500), by="bob", reason="the bank is back")
    type(operation).objects.update(moved_at=timezone.now() - timedelta(minutes=1))
    bulk.advance()
    records.run(orders, Success(None))
    page, queries = cost(browse, group_id)
    assert "2 replayed one by one: 1 succeeded, 1 failed again; 1 discarded." in page
    assert "3 replays started: 1 succeeded, 0 failed again, 2 still running" in page
    assert "Replay by bob</a>" in page
    assert "the bank is back" in page
    assert operation.group is not None
    assert {again, well} <= {letter.replayed_as for letter, _ in letter_groups.tried_before(operation.group).replays}
    assert queries <= QUERY_BUDGET


def bury(count: int, **fields: Any) -> DeadLetterGroup:
    """Dead letters of one kind, from a source that is no pipeline."""
    known = {"step": "call", "category": "SYSTEM", "error_type": "Gone", "message": "410", "details": {}}
    drafts = [
        DeadLetterDraft(source="rank/snapshot", uid=f"call-{number}", payload={"n": number}, **known | fields)
        for number in range(count)
    ]
    return dead_letters.record(drafts)[0].group


def test_of_very_many_members_only_few_are_looked_at(browse: Client) -> None:
    group = bury(1, details={"policy_version": "none", "worker": {}})
    few = cost(browse, group.pk)[1]
    letter = DeadLetter.objects.get()
    fields = {field.attname: getattr(letter, field.attname) for field in DeadLetter._meta.local_fields}
    settled = {"state": "replayed", "settled_at": timezone.now(), "settled_by": "ada", "replayed_as": "elsewhere"}
    many = (
        DeadLetter(**fields | {"id": None, "uid": f"many-{number}"} | (settled if number % 2 else {}))
        for number in range(MANY)
    )
    DeadLetter.objects.bulk_create(many, batch_size=2000)
    page, queries = cost(browse, group.pk)
    assert "The newest 20" in page
    assert "200 replayed one by one: 200 no longer kept, of the last 200 decisions." in page
    assert queries <= min(QUERY_BUDGET, few + 1)
    assert len(page) < 120_000


def test_payloads_too_large_to_compare_and_long_tracebacks_do_not_make_a_page_slow(browse: Client) -> None:
    group = bury(3, traceback=f"Traceback (most recent call last):\n{AUTHOR * 600}Gone: 410")
    DeadLetter.objects.filter(uid="call-0").update(payload={"n": "x" * 500_000})
    page, _ = cost(browse, group.pk)
    assert "1 is too large to be compared, or no longer kept." in page
    assert "xxxx" not in page
    DeadLetter.objects.update(payload=None)
    assert "3 are too large to be compared, or no longer kept." in cost(browse, group.pk)[0]
    DeadLetter.objects.all().delete()
    page, _ = cost(browse, group.pk)
    assert "No dead letters are kept any more" in page
