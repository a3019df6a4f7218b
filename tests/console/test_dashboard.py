"""The first page: what needs a person, how the engines do, and what a page costs."""

from collections.abc import Callable
from datetime import timedelta
from re import search

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engines import dead_letters, pipelines, transactions, workers
from engines.core.states import GroupState
from engines.dead_letters import bulk
from engines.dead_letters.bulk import Terms
from engines.models import BulkOperation, DeadLetterGroup, Pipeline, TransactionRecord
from tests.console import records
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

QUERY_BUDGET = 12
ENGINES = "/admin/engines/"


@pytest.fixture
def orders() -> Pipeline:
    return make_pipeline("orders")


def read(client: Client, address: str = "/admin/") -> str:
    return client.get(address).content.decode()


def figure(page: str, title: str) -> str:
    found = search(rf"<dt>{title}</dt>\s*<dd[^>]*>(?:<a [^>]*>)?([^<]*)", page)
    assert found, title
    return found[1]


def test_a_healthy_deployment_is_calm_and_shows_its_numbers(browse: Client, orders: Pipeline) -> None:
    worker = records.make_worker("orders")
    transactions.submit("orders", {})
    for _ in range(3):
        records.succeed(orders, {})
    page = read(browse)
    assert "Nothing needs attention." in page
    assert figure(page, "Waiting") == "1"
    assert figure(page, "Running") == "0"
    assert figure(page, "Finished in the last hour") == "3"
    assert figure(page, "Failure rate") == "0.0 %"
    assert figure(page, "Running workers") == "1"
    assert f'{ENGINES}transactionrecord/?state=pending"' in page
    assert f'{ENGINES}worker/{worker.pk}/change/">{worker}</a>' in page
    assert f'{ENGINES}transactionrecord/?worker={worker.pk}">0</a>' in page


def test_what_ended_lately_is_what_the_list_behind_it_shows(browse: Client, orders: Pipeline) -> None:
    old, new = records.succeed(orders, {}), records.succeed(orders, {})
    long_ago = timezone.now() - timedelta(hours=2)
    TransactionRecord.objects.filter(uid=old.uid).update(finished_at=long_ago)
    records.fail(orders, {}, records.failure("a"))
    ended = read(browse, f"{ENGINES}transactionrecord/?ended=under-1h")
    assert new.uid in ended
    assert old.uid not in ended
    assert new.uid not in read(browse, f"{ENGINES}transactionrecord/?state=failed&ended=under-1h")


def test_every_thing_counts_that_needs_a_person(browse: Client, orders: Pipeline) -> None:
    for number in range(7):
        records.fail(orders, {}, records.failure("abcdefg"[number]))
    assert "7 items need attention" in read(browse)


def test_kinds_of_failure_need_a_person_until_they_are_muted(browse: Client, orders: Pipeline) -> None:
    for number in range(7):
        records.fail(orders, {}, records.failure("abcdefg"[number]))
    page = read(browse)
    assert "1 failed with ConnectionError: g" in page
    assert "and 2 more kinds of failure" in page
    assert figure(page, "Unresolved dead letters") == "7"
    for group in DeadLetterGroup.objects.exclude(message="a"):
        dead_letters.decide(group.pk, GroupState.MUTED, by="ada", reason="known")
    page = read(browse)
    assert "1 item needs attention" in page
    assert figure(page, "Unresolved dead letters") == "7"


def test_a_kind_of_failure_that_came_back_says_so(browse: Client, orders: Pipeline) -> None:
    letter = records.fail(orders, {})
    dead_letters.discard(letter.pk, by="ada", reason="fixed")
    records.fail(orders, {})
    assert "Reopened: 1 failed with ConnectionError" in read(browse)


def test_work_that_nobody_serves_needs_a_person(browse: Client, orders: Pipeline) -> None:
    transactions.submit("orders", {}, available_at=timezone.now() + timedelta(hours=1))
    assert "Nothing needs attention." in read(browse)
    transactions.submit("orders", {})
    page = read(browse)
    assert "No worker serves orders" in page
    assert "?state=pending&amp;pipeline=orders" in page
    records.make_worker("orders")
    assert "Nothing needs attention." in read(browse)


def test_a_paused_pipeline_needs_a_person(browse: Client, orders: Pipeline) -> None:
    pipelines.pause("orders", by="ada", reason="the bank moves")
    transactions.submit("orders", {})
    page = read(browse)
    assert "orders is paused" in page
    assert "the bank moves" in page
    assert ">1 waiting in orders<" in page
    assert "No worker serves" not in page


def test_what_a_dead_worker_held_needs_a_person_while_nobody_rescues_it(browse: Client, orders: Pipeline) -> None:
    worker = records.make_worker("orders")
    transactions.submit("orders", {})
    transactions.claim(orders.pk, 1, worker.pk)
    assert "Nothing needs attention." in read(browse)
    workers.mark_dead(worker.pk, note="gone")
    TransactionRecord.objects.update(lease_expires_at=timezone.now() - timedelta(minutes=1))
    assert f"Expired leases of {worker}: 1" in read(browse)
    transactions.rescue()
    assert "Expired leases" not in read(browse)


def test_abandoned_attempts_need_a_person(browse: Client, orders: Pipeline) -> None:
    worker = records.make_worker("orders")
    workers.beat(worker, in_flight=0, abandoned=2, settled=0, is_stopping=False)
    assert f"{worker} has 2 abandoned attempts" in read(browse)


def test_the_longest_queues_are_drawn(browse: Client, orders: Pipeline) -> None:
    transactions.submit_many("orders", [{"payload": {}} for _ in range(5)])
    assert "No pending transactions." not in read(browse)
    assert "width:100.0%" in read(browse)


def test_a_viewer_sees_the_engines_and_nothing_of_the_administration(
    client: Client, hire: Callable[[str], User], orders: Pipeline
) -> None:
    records.fail(orders, {})
    client.force_login(hire("viewer"))
    page = read(client)
    assert "1 failed with ConnectionError" in page
    assert "Recent activity" not in page


def test_every_page_stays_within_its_query_budget(client: Client, hire: Callable[[str], User]) -> None:
    """Asked by an administrator by role: a superuser's rights cost no query."""
    names = [f"pipeline-{number}" for number in range(20)]
    made = [make_pipeline(name, redacted=["n"]) for name in names]
    for number, pipeline in enumerate(made):
        records.make_worker(pipeline.name)
        transactions.submit(pipeline.name, {}, id=f"waits {number}")
        records.run(pipeline, records.failure("abcdefghijklmnopqrst"[number]))
        transactions.submit(pipeline.name, {})
        transactions.claim(pipeline.pk, 1, number + 1)
        transactions.submit(pipeline.name, {})
    letter = records.fail(made[0], {"n": 1}, *[records.failure("again")] * 3)
    new = transactions.replay(letter.uid, by="ada", reason="", payload={"n": 2})
    transactions.cancel(new.id, by="ada", reason="")
    transactions.replay(new.id, by="ada", reason="")
    left = records.fail(made[1], {})
    operation = bulk.begin("replay", left.group_id, Terms(canary=1), by="ada", reason="")
    bulk.advance()
    client.force_login(hire("administrator"))
    states = {state: TransactionRecord.objects.filter(state=state).latest("pk").pk for state in (0, 1, 3, 4)}
    addresses = [
        *("/admin/", "/admin/live/", "/admin/series/?of=engines&range=week", "/admin/series/table/?of=engines"),
        *(
            f"{ENGINES}transactionrecord/{query}"
            for query in ("", "?state=pending", "?pipeline=pipeline-1&age=under-1h")
        ),
        f"{ENGINES}transactionrecord/?state=failed&pipeline=pipeline-1&q=payload.a:1",
        *(f"{ENGINES}transactionrecord/{pk}/change/" for pk in states.values()),
        f"{ENGINES}transactionrecord/{letter.transaction_id}/change/",
        f"{ENGINES}transactionrecord/{letter.transaction_id}/edit/",
        *(f"{ENGINES}deadlettergroup/", f"{ENGINES}deadlettergroup/{left.group_id}/change/"),
        f"{ENGINES}deadlettergroup/{left.group_id}/replay-all/",
        *(f"{ENGINES}deadletter/", f"{ENGINES}deadletter/{letter.pk}/change/", f"{ENGINES}deadletter/{left.pk}/edit/"),
        *(f"{ENGINES}bulkoperation/", f"{ENGINES}bulkoperation/{operation.pk}/change/"),
    ]
    assert BulkOperation.objects.get().done == 1
    costs = {address: cost(client, address) for address in addresses}
    assert {address: count for address, count in costs.items() if count > QUERY_BUDGET} == {}


def cost(client: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(address).status_code == 200, address
    return len(queries)
