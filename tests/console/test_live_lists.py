"""Lists and live pages: fragments instead of pages, summaries of payloads, chosen columns, numbered pages."""

import gzip
import html
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engines import pipelines, transactions
from engines.core.outcome import Success
from engines.models import TransactionRecord
from engines.pipelines import PipelineError, Plan
from engines.reads.transactions import list_transactions
from ergon_site.access import keyset
from facts import provisioning
from tests.console import records
from tests.console.test_long_lists import seed
from tests.factories import make_pipeline
from tests.facts.drafts import OFFICE, PLANT, make_boundary

pytestmark = pytest.mark.django_db

LIST = "/admin/engines/transactionrecord/"
REFRESH = {"X-Ergon-Refresh": "1"}
LARGEST = 15 * 1024
QUERY_BUDGET = 12


def fragment(client: Client, address: str, **headers: str) -> Any:
    return client.get(address, headers={**REFRESH, **headers})


def cells(page: str, uid: str) -> dict[str, str]:
    """The texts of a row by their headings."""
    row = next(part for part in page.split("<tr")[1:] if f">{uid}<" in part)
    found = re.findall(r'data-label="([^"]+)">(.*?)</t[dh]>', row, re.DOTALL)
    return {label: " ".join(html.unescape(re.sub(r"<[^>]+>", " ", cell)).split()) for label, cell in found}


def test_a_list_refreshes_by_its_rows_alone_and_only_if_they_have_changed(browse: Client) -> None:
    seed(1000)
    for query in ("", "?state=pending", "?q=nowhere"):
        whole = browse.get(LIST + query).content.decode()
        answer = fragment(browse, LIST + query, **{"Accept-Encoding": "gzip"})
        assert len(answer.content) <= LARGEST, query
        text = gzip.decompress(answer.content).decode()
        assert "<html" not in text
        assert "csrf" not in text
        for part in ('<div id="live">', '<div id="pages"'):
            assert part in text
            assert part in whole
        assert text.count("<tbody") == whole.count("<tbody")
        again = fragment(browse, LIST + query, **{"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b""), query
        assert again.headers["ETag"].removeprefix("W/") == answer.headers["ETag"].removeprefix("W/")
        assert "no-store" in again.headers["Cache-Control"]
    first = fragment(browse, LIST)
    transactions.submit("rare", {}, id="fresh")
    changed = fragment(browse, LIST, **{"If-None-Match": first.headers["ETag"]})
    assert changed.status_code == 200
    assert ">fresh<" in changed.content.decode()


def test_pages_of_what_moves_refresh_by_the_part_that_does(browse: Client, orders: Any) -> None:
    make_boundary()
    consumer = provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    worker = records.make_worker("orders")
    waiting = transactions.find(transactions.submit("orders", {"text": "x" * 5000}).id)
    pages = {
        f"{LIST}{waiting.pk}/change/": True,
        f"/admin/engines/worker/{worker.pk}/change/": True,
        f"/admin/facts/consumer/{consumer.pk}/change/": True,
        "/admin/engines/pipeline/": True,
        "/admin/engines/executor/live/": False,
    }
    for address, is_part in pages.items():
        answer = fragment(browse, address)
        text = answer.content.decode()
        assert len(gzip.compress(answer.content)) <= LARGEST
        assert "<html" not in text
        assert ('id="live"' in text) is is_part, address
        assert "x" * 100 not in text
        assert answer.headers["ETag"]
        assert browse.get(address).headers.get("ETag") is None
    quiet = [f"/admin/facts/consumer/{consumer.pk}/change/", "/admin/engines/executor/live/"]
    for address in quiet:
        tag = fragment(browse, address).headers["ETag"]
        assert fragment(browse, address, **{"If-None-Match": tag}).status_code == 304, address
    assert 'data-refresh="#live"' in fragment(browse, f"{LIST}{waiting.pk}/change/").content.decode()
    records.run(orders, Success(None))
    assert 'data-refresh="#live"' not in fragment(browse, f"{LIST}{waiting.pk}/change/").content.decode()


def test_a_fragment_takes_the_rights_of_its_page(client: Client, hire: Callable[[str], User]) -> None:
    login = fragment(client, LIST)
    assert (login.status_code, "ETag" in login.headers) == (302, False)
    client.force_login(hire("viewer"))
    seen = fragment(client, LIST)
    assert seen.status_code == 200
    assert fragment(client, "/admin/access/auditentry/").status_code == 403
    client.force_login(hire("nobody in particular"))
    for address in (LIST, "/admin/engines/pipeline/"):
        answer = fragment(client, address, **{"If-None-Match": seen.headers["ETag"]})
        assert (answer.status_code, "ETag" in answer.headers) == (403, False)


@pytest.fixture
def orders() -> Any:
    return make_pipeline("orders", redacted=["customer.card", "lines[].price"])


def test_a_list_sums_payloads_up_and_hides_what_the_pipeline_hides(browse: Client, orders: Any) -> None:
    payload = {
        "total": 12,
        "customer": {"name": "<b>Ada</b>", "card": "4111-1111"},
        "lines": [{"sku": "a", "price": 3141592653}],
        "long": "y" * 3000,
    }
    transactions.submit("orders", payload, id="small")
    transactions.submit("orders", {"total": 1, "blob": [[n, "z" * 9] for n in range(20_000)]}, id="large")
    transactions.submit("orders", None, id="null")
    page = records.read(browse, LIST)
    shown = cells(page, "small")["Payload"]
    assert all(part in shown for part in ("total 12", "customer.name <b>Ada</b>", f"long {'y' * 60}…"))
    assert "<b>Ada</b>" not in page
    assert (cells(page, "large")["Payload"], cells(page, "null")["Payload"]) == ("large", "null")
    hostile = ["customer.card", "lines[].price", "lines.0.sku", "a'); DROP TABLE x; --"]
    pipelines.amend("orders", Plan(summary=hostile), by="ada")
    page = records.read(browse, LIST)
    assert cells(page, "small")["Payload"] == "customer.card ••• · lines[].price ••• · lines.0.sku a"
    assert "4111-1111" not in page
    assert "3141592653" not in page
    for refused in (["a"] * 5, ["\x00"]):
        with pytest.raises(PipelineError):
            pipelines.amend("orders", Plan(summary=refused), by="ada")
    form = records.read(browse, f"/admin/engines/pipeline/{orders.pk}/edit/")
    assert "lines[].price\nlines.0.sku" in html.unescape(form)


def test_a_list_says_what_pending_ones_wait_for(browse: Client, orders: Any) -> None:
    later = timezone.now() + timedelta(hours=6)
    transactions.submit("orders", {}, id="due")
    transactions.submit("orders", {}, id="later", available_at=later)
    transactions.submit("orders", {}, id="again")
    failure = {"spent": 1, "of": 3, "is_parked": True, "type": "OSError", "message": "no answer"}
    TransactionRecord.objects.filter(uid="again").update(available_at=later, error=failure)
    page = records.read(browse, f"{LIST}?state=pending")
    exact = f"{later:%Y-%m-%d %H:%M:%S}"
    told = {uid: (cells(page, uid)["State"], cells(page, uid)["Details"]) for uid in ("later", "again")}
    assert told["later"] == ("scheduled", f"due {exact}")
    assert told["again"] == ("parked retry", f"due {exact} attempt 2 of 3, after OSError: no answer")
    assert 'class="ergon-none" data-label="Duration"' in page
    assert f'<time class="ergon-when" datetime="{later:%Y-%m-%dT%H:%M:%S}Z" data-ago>{exact}</time>' in page
    assert cells(page, "due")["Details"] == "no worker"
    records.make_worker("orders")
    assert "no worker" not in records.read(browse, LIST)
    pipelines.pause("orders", by="ada", reason="maintenance")
    assert cells(records.read(browse, LIST), "due") | {"State": "waiting", "Details": "paused by ada"} == cells(
        records.read(browse, LIST), "due"
    )


def test_columns_are_chosen_by_a_cookie_of_the_list(browse: Client, orders: Any) -> None:
    transactions.submit("orders", {}, id="one", correlation_id="c-1")
    usual = cells(records.read(browse, LIST), "one")
    assert "Correlation id" not in usual
    for chosen, missing, there in (
        ("where.took", {"Pipeline", "Duration"}, {"Correlation id", "Priority"}),
        ("", set(), {"Correlation id", "Duration"}),
        ("key.state_word.nonsense", {"State"}, {"Id", "Duration"}),
    ):
        browse.cookies["ergon-columns"] = chosen
        for page in (records.read(browse, LIST), fragment(browse, LIST).content.decode()):
            shown = set(cells(page, "one"))
            assert not shown & missing, chosen
            assert there <= shown, chosen
    browse.cookies["ergon-columns"] = "runs.state"
    assert "field-runs" not in records.read(browse, "/admin/engines/pipeline/")


def test_pages_are_counted_and_exports_stand_above_the_list(browse: Client) -> None:
    seed(160)

    def walk(page: str, way: str) -> str:
        found = re.search(rf'href="([^"]+)" rel="{way}"', page)
        assert found is not None
        return records.read(browse, LIST + html.unescape(found[1]))

    pages = [records.read(browse, LIST)]
    for _ in range(2):
        pages.append(walk(pages[-1], "next"))
    for number, page in enumerate(pages, start=1):
        assert f"<span>Page {number}</span>" in page
        assert page.index('href="export.csv') < page.index('id="result_list"')
    back = walk(pages[-1], "prev")
    assert "<span>Page 2</span>" in back
    assert re.findall(r'id="(row-\d+)"', back) == re.findall(r'id="(row-\d+)"', pages[1])
    transactions.submit_many("rare", [{"payload": {}} for _ in range(60)])
    first = walk(back, "prev")
    assert "<span>Page 1</span>" in first
    assert re.findall(r'id="(row-\d+)"', first) == re.findall(r'id="(row-\d+)"', pages[0])
    assert "<span>Newer rows</span>" in walk(first, "prev")


def test_a_cursor_without_a_sound_number_shows_the_first_page() -> None:
    seed(120)
    query = list_transactions({}, ())
    first = keyset.paginate(query, size=50)
    ways: list[Any] = ["n", "x2", "n2x", "n99999999999", "p-", "n²", 7, None, ["n2"]]
    for way in ways:
        forged = urlsafe_b64encode(json.dumps(["", way, first.rows[-1].pk]).encode()).decode().rstrip("=")
        page = keyset.paginate(query, size=50, at=forged)
        assert (page.number, page.rows) == (1, first.rows), way


def test_running_ones_keep_their_places_while_leases_are_renewed(browse: Client, orders: Any) -> None:
    transactions.submit_many("orders", [{"payload": {}, "id": f"r{number}"} for number in range(3)])
    transactions.claim(orders.pk, 3, 1)
    before = re.findall(r'id="(row-\d+)"', records.read(browse, f"{LIST}?state=running"))
    TransactionRecord.objects.filter(uid="r0").update(lease_expires_at=timezone.now() + timedelta(days=1))
    assert len(before) == 3
    assert re.findall(r'id="(row-\d+)"', records.read(browse, f"{LIST}?state=running")) == before


@pytest.mark.parametrize("rows", [1000, pytest.param(200_000, marks=pytest.mark.soak)])
def test_lists_and_their_fragments_take_few_queries_however_many_rows_there_are(browse: Client, rows: int) -> None:
    seed(rows)
    for query in ("", "?state=pending", "?state=running", "?state=failed&pipeline=big"):
        for headers in ({}, REFRESH):
            with CaptureQueriesContext(connection) as queries:
                answer = browse.get(LIST + query, headers=headers)
            assert len(queries) <= QUERY_BUDGET, query
            sent = len(gzip.compress(answer.content))
            print(f"{query or 'all'} {bool(headers)}: {len(queries)} queries, {len(answer.content):,} {sent:,} bytes")
            assert sent <= (LARGEST if headers else 120 * 1024)
