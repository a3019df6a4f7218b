"""Transactions in the console: found by what is known of them, explained, cancelled, run again."""

import csv
import io
import json
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from engines import conf, transactions, workers
from engines.core.errors import ExceptionType
from engines.models import Pipeline, TransactionRecord
from ergon_site.access.console.pages import ROWS_PER_FETCH
from ergon_site.access.models import AuditEntry
from tests.console import records
from tests.console.records import exported, read
from tests.durable_transactions import claim
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

LIST = "/admin/engines/transactionrecord/"
DIALOG = {"_form_submitted": "on", "reason": "the bank is back"}
SECRET = {"customer": {"name": "Ada", "card": "4111-1111"}, "total": 12}


@pytest.fixture
def orders() -> Pipeline:
    return make_pipeline("orders", redacted=["customer.card"])


def page_of(record: TransactionRecord) -> str:
    return f"{LIST}{record.pk}/change/"


def ids(client: Client, query: str) -> set[str]:
    return {row["id"] for row in exported(client, f"{LIST}export.json{query}")}


def test_transactions_are_listed_by_state_pipeline_category_and_correlation(browse: Client, orders: Pipeline) -> None:
    other = make_pipeline("invoices")
    records.succeed(orders, {}, id="ok")
    records.fail(orders, {}, records.failure(category=ExceptionType.TIMEOUT), id="late", correlation_id="batch 7")
    records.fail(other, {}, records.failure(category=ExceptionType.BUSINESS), id="refused")
    transactions.submit("invoices", {}, id="waits")
    found = {
        "?state=succeeded": {"ok"},
        "?state=failed": {"late", "refused"},
        "?state=failed&pipeline=orders": {"late"},
        "?pipeline=invoices": {"refused", "waits"},
        "?category=BUSINESS": {"refused"},
        "?correlation=batch+7": {"late"},
        "?q=batch 7": {"late"},
        "?q=re": {"refused"},
        "?state=pending&pipeline=invoices": {"waits"},
        "?state=running": set(),
    }
    assert {query: ids(browse, query) for query in found} == found


def test_transactions_are_listed_by_age(browse: Client, orders: Pipeline) -> None:
    assert ids(browse, "?age=under-1h") == set()
    for number in range(3):
        records.succeed(orders, {}, id=f"old {number}")
    TransactionRecord.objects.update(created_at=timezone.now() - timedelta(days=2))
    records.succeed(orders, {}, id="new")
    old = {"old 0", "old 1", "old 2"}
    assert (ids(browse, "?age=under-1h"), ids(browse, "?age=over-1d")) == ({"new"}, old)
    assert ids(browse, "?age=under-1h&state=succeeded&pipeline=orders") == {"new"}
    assert ids(browse, "?age=over-1d&state=succeeded&pipeline=orders") == old
    assert ids(browse, "?age=under-3d") == old | {"new"}
    assert ids(browse, "?age=over-9d") == set()


def test_what_a_worker_holds_now_is_listed(browse: Client, orders: Pipeline) -> None:
    worker = records.make_worker("orders")
    for number in range(3):
        transactions.submit("orders", {}, id=f"n{number}")
    transactions.claim(orders.pk, 2, worker.pk)
    assert ids(browse, f"?worker={worker.pk}") == {"n0", "n1"}
    assert ids(browse, "?worker=99") == set()
    assert f'<option value="{worker.pk}">{worker}</option>' in read(browse, LIST)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("payload.order.id:42", {"number", "text"}),
        ('payload.order.id:"42"', {"text"}),
        ("payload.lines.0.sku:b-7", {"number"}),
        ("payload.rush:true", {"number", "text"}),
        ("payload.order:42", set()),
    ],
)
def test_a_search_finds_what_a_payload_holds_at_a_path(
    browse: Client, orders: Pipeline, search: str, found: set[str]
) -> None:
    transactions.submit("orders", {"order": {"id": 42}, "lines": [{"sku": "b-7"}], "rush": True}, id="number")
    transactions.submit("orders", {"order": {"id": "42"}, "lines": [], "rush": "true"}, id="text")
    transactions.submit("orders", {"order": {"id": 43}}, id="neither")
    assert ids(browse, f"?q={search}") == found
    assert "covers 10,000 transactions at a time" in read(browse, f"{LIST}?q={search}")


@pytest.mark.parametrize("search", ["customer.card:4111-1111", "customer.name.card:4", "customer.0.card:4111-1111"])
def test_a_search_never_looks_at_fields_that_a_pipeline_hides(browse: Client, orders: Pipeline, search: str) -> None:
    transactions.submit("orders", SECRET, id="hidden")
    assert ids(browse, f"?q=payload.{search}") == set()
    assert ids(browse, "?q=payload.total:12") == {"hidden"}


@pytest.mark.parametrize(
    "query",
    [
        "state=lost",
        "pipeline=none",
        "category=X",
        "age=yesterday",
        "worker=me",
        "payload__total=12",
    ],
)
def test_a_filter_that_means_nothing_leads_back_to_the_list(browse: Client, orders: Pipeline, query: str) -> None:
    answer = browse.get(f"{LIST}?{query}")
    assert answer.status_code == 302
    assert answer.headers["Location"].endswith("?e=1")


@pytest.mark.parametrize("cursor", ["x", "e30", "a" * 5000, "WyIiLCJuIiwiYSJd"])
def test_a_cursor_that_is_none_shows_the_first_page(browse: Client, orders: Pipeline, cursor: str) -> None:
    transactions.submit("orders", {}, id="first")
    assert "first" in read(browse, f"{LIST}?at={cursor}")


def test_a_cursor_of_another_list_shows_the_first_page(browse: Client, orders: Pipeline) -> None:
    transactions.submit_many("orders", [{"payload": {}, "id": f"n{number}"} for number in range(60)])
    page = read(browse, f"{LIST}?pipeline=orders")
    cursor = page.split('rel="next"')[0].rsplit("at=", 1)[1].split("&")[0].split('"')[0]
    assert "n59" not in read(browse, f"{LIST}?at={cursor}&pipeline=orders")
    assert ">n0<" in read(browse, f"{LIST}?at={cursor}&state=pending")


def test_the_export_names_states_and_holds_no_payload(browse: Client, orders: Pipeline) -> None:
    records.fail(orders, SECRET, records.failure("no\nway", ExceptionType.BUSINESS), id="bad")
    body = b"".join(browse.get(f"{LIST}export.csv?state=failed")).decode()
    (row,) = csv.DictReader(io.StringIO(body))
    assert (row["id"], row["pipeline"], row["state"], row["category"]) == ("bad", "orders", "failed", "BUSINESS")
    assert "4111-1111" not in body
    assert "payload" not in row


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_an_export_says_so_if_the_database_fails_before_its_end(browse: Client, orders: Pipeline, form: str) -> None:
    """Whoever takes it cannot know otherwise: the web server ends a broken answer like a whole one."""
    transactions.submit_many("orders", [transactions.Draft({})] * 2 * ROWS_PER_FETCH)
    parts = iter(browse.get(f"{LIST}export.{form}").streaming_content)  # type: ignore[attr-defined]
    taken = [next(parts)]
    with closing(connection.copy()) as other, other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.connection.info.backend_pid])
    taken += parts
    connection.close()
    body = b"".join(taken).decode()
    assert ROWS_PER_FETCH < body.count("\n") < 2 * ROWS_PER_FETCH
    assert body.endswith("\nRows are missing: the database failed during this export.\n")


def test_a_page_begins_with_why_the_transaction_is_where_it_is(browse: Client, orders: Pipeline) -> None:
    transactions.submit("orders", {}, id="waits")
    assert "Waiting: no worker serves this pipeline." in read(browse, page_of(transactions.find("waits")))
    letter = records.fail(make_pipeline("invoices"), {})
    page = read(browse, f"{LIST}{letter.transaction_id}/change/")
    assert "in process (SYSTEM) with ConnectionError: the bank said no" in page
    assert f"/admin/engines/deadletter/{letter.pk}/change/" in page


def test_attempts_are_shown_with_their_times_errors_and_tracebacks(browse: Client, orders: Pipeline) -> None:
    letter = records.fail(
        orders,
        {},
        records.failure("first"),
        records.failure("slow", ExceptionType.TIMEOUT),
        records.failure("third"),
    )
    page = read(browse, f"{LIST}{letter.transaction_id}/change/")
    assert page.count("<summary>Traceback</summary>") == 3
    for words in ("attempt 1 of 3", "attempt 3 of 3", "failed · TIMEOUT", "400 ms", "default v1", "left:0.00%"):
        assert words in page


def test_a_trace_is_linked_where_the_deployment_says_how(browse: Client, orders: Pipeline, settings: Settings) -> None:
    record = records.succeed(orders, {})
    assert "https://traces" not in read(browse, page_of(record))
    settings.ERGON_TRACE_URL = "https://traces.example/{trace_id}?x=1"
    conf.settings.cache_clear()
    try:
        assert f'href="https://traces.example/{records.TRACE}?x=1"' in read(browse, page_of(record))
    finally:
        conf.settings.cache_clear()


def test_payload_and_result_are_shown_escaped(browse: Client, orders: Pipeline) -> None:
    record = records.succeed(orders, {"<b>": "<script>alert(1)</script>"}, {"done": ["<i>"]})
    page = read(browse, page_of(record))
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;i&gt;" in page


@pytest.mark.parametrize("payload", [[[[[[]]]]] * 5000, "x" * 500_000, json.loads("[" * 200 + "]" * 200), None])
def test_a_payload_of_any_shape_can_be_looked_at(browse: Client, orders: Pipeline, payload: Any) -> None:
    transactions.submit("orders", payload, id="odd")
    answer = browse.get(page_of(transactions.find("odd")))
    assert answer.status_code == 200
    assert len(answer.content) < 2_000_000
    assert browse.get(f"{LIST}{transactions.find('odd').pk}/edit/", follow=True).status_code == 200


def test_hidden_fields_are_shown_only_when_revealed_and_that_is_written_down(browse: Client, orders: Pipeline) -> None:
    record = records.succeed(orders, SECRET)
    page = read(browse, page_of(record))
    assert "4111-1111" not in page
    assert "•••" in page
    assert not AuditEntry.objects.filter(action="transaction.reveal").exists()
    assert browse.get(f"{LIST}{record.pk}/reveal/").status_code == 405
    assert "4111-1111" in browse.post(f"{LIST}{record.pk}/reveal/").content.decode()
    entry = AuditEntry.objects.get(action="transaction.reveal")
    assert (entry.actor, entry.target, entry.after) == (
        "ada",
        f"transaction {record.uid}",
        {"fields": ["customer.card"]},
    )


def test_a_pending_one_is_cancelled_with_a_reason(browse: Client, orders: Pipeline) -> None:
    transactions.submit("orders", {}, id="waits")
    address = f"{LIST}{transactions.find('waits').pk}/cancel/"
    browse.post(address, {**DIALOG, "reason": ""})
    assert transactions.find("waits").word == "pending"
    browse.post(address, DIALOG)
    assert transactions.find("waits").word == "cancelled"
    assert AuditEntry.objects.get(action="transaction.cancel").reason == "the bank is back"


def test_the_page_of_a_running_one_says_that_its_cancellation_was_requested(browse: Client, orders: Pipeline) -> None:
    transactions.submit("orders", {}, id="runs")
    claim(orders)
    record = transactions.find("runs")
    address = browse.post(f"{LIST}{record.pk}/cancel/", DIALOG).headers["HX-Redirect"]
    page = read(browse, address)
    assert "Cancellation requested: it is not tried again." in page
    assert "; its cancellation was requested " in page
    assert 'disabled title="Its cancellation was requested."' in page
    assert "Cancellation requested</" in page  # in its timeline
    assert "cancellation requested" in read(browse, f"{LIST}?state=running")


def test_what_a_verb_refuses_is_told(browse: Client, orders: Pipeline) -> None:
    record = records.succeed(orders, {}, id="done")
    address = browse.post(f"{LIST}{record.pk}/cancel/", DIALOG).headers["HX-Redirect"]
    page = read(browse, address)
    assert "&#x27;done&#x27; has succeeded; only a pending or running transaction can be cancelled." in page


def test_a_replay_leads_to_the_new_transaction_and_both_know_each_other(browse: Client, orders: Pipeline) -> None:
    record = records.succeed(orders, {"n": 1}, id="first")
    address = browse.post(f"{LIST}{record.pk}/replay/", DIALOG).headers["HX-Redirect"]
    new = TransactionRecord.objects.get(replay_of=record.pk)
    assert address == page_of(new)
    assert "Replay of" in read(browse, address)
    assert new.uid in read(browse, page_of(record))


def edit(client: Client, record: TransactionRecord, payload: str, **fields: str) -> str:
    form = {"payload": payload, "reason": "typo", **fields}
    return client.post(f"{LIST}{record.pk}/edit/", form).content.decode()


def test_an_edited_payload_is_sent_only_after_its_difference_was_shown(browse: Client, orders: Pipeline) -> None:
    record = records.succeed(orders, SECRET)
    assert "4111-1111" not in read(browse, f"{LIST}{record.pk}/edit/")
    edited = '{"customer": {"name": "Eve", "card": "•••"}, "total": 12}'
    shown = edit(browse, record, edited, send="1")
    assert "<del>&quot;Ada&quot;</del>" in shown
    assert "<ins>&quot;Eve&quot;</ins>" in shown
    assert TransactionRecord.objects.count() == 1
    seen = shown.split('name="seen" value="')[1].split('"')[0]
    assert "Changes" in edit(browse, record, edited.replace("12", "13"), send="1", seen=seen)
    assert TransactionRecord.objects.count() == 1
    edit(browse, record, edited, send="1", seen=seen)
    new = TransactionRecord.objects.get(replay_of=record.pk)
    assert new.payload == {"customer": {"name": "Eve", "card": "4111-1111"}, "total": 12}
    assert new.payload_changes == [{"path": "customer.name", "before": "Ada", "after": "Eve"}]
    assert AuditEntry.objects.get(action="transaction.replay_edited").after == {
        "as": new.uid,
        "edited": ["customer.name"],
    }


def test_what_was_edited_in_hidden_fields_stays_hidden(browse: Client, orders: Pipeline) -> None:
    record = records.succeed(orders, SECRET)
    transactions.replay(record.uid, by="ada", reason="", payload={**SECRET, "customer": {"card": "5500-0000"}})
    page = read(browse, page_of(TransactionRecord.objects.get(replay_of=record.pk)))
    assert "4111-1111" not in page
    assert "5500-0000" not in page


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ('{"a": ', "The payload is not JSON"),
        ('{"a": NaN}', "NaN is not a JSON number."),
        ('"' + "x" * 1_048_577 + '"', "The payload has 1,048,579 bytes; the limit is 1,048,576."),
        ('{"other": {"card": "•••"}, "customer": [{"card": "•••"}]}', "stands where no field was hidden"),
        ("", "This field is required."),
    ],
)
def test_a_payload_that_cannot_be_kept_is_refused_in_words(
    browse: Client, orders: Pipeline, payload: str, words: str
) -> None:
    record = records.succeed(orders, SECRET)
    page = edit(browse, record, payload)
    assert words in page
    assert "Replay with this payload" not in page


def test_a_role_sees_what_it_may_not_press_and_why(
    client: Client, hire: Callable[[str], User], orders: Pipeline
) -> None:
    record = records.succeed(orders, SECRET)
    client.force_login(hire("viewer"))
    page = read(client, page_of(record))
    assert page.count("disabled title=") == 4
    assert "Needs the role operator or lead or administrator." in page
    for action in ("cancel", "replay", "edit", "reveal"):
        assert client.post(f"{LIST}{record.pk}/{action}/", DIALOG).status_code == 403
    client.force_login(hire("operator"))
    assert client.get(f"{LIST}{record.pk}/edit/").status_code == 403
    assert client.get(f"{LIST}{record.pk}/replay/").status_code == 200


def test_a_transaction_that_is_gone_is_not_found(browse: Client) -> None:
    for address in ("99/change/", "99/edit/", "x/change/"):
        assert browse.get(f"{LIST}{address}").status_code == 404


def test_transactions_are_never_written_by_hand(browse: Client, orders: Pipeline) -> None:
    record = records.succeed(orders, {})
    assert browse.post(page_of(record), {"uid": "x"}).status_code == 403
    assert browse.post(f"{LIST}{record.pk}/delete/", {"post": "yes"}).status_code == 403
    assert browse.get(f"{LIST}add/").status_code == 403


def test_a_running_one_names_its_worker(browse: Client, orders: Pipeline) -> None:
    worker = records.make_worker("orders")
    transactions.submit("orders", {}, id="runs")
    transactions.claim(orders.pk, 1, worker.pk)
    workers.beat(worker, in_flight=1, abandoned=0, settled=0, is_stopping=False)
    page = read(browse, page_of(transactions.find("runs")))
    assert f"Running on {worker} for" in page
    assert f"?worker={worker.pk}" in page
