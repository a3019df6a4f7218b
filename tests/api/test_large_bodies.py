"""A batch takes a thousand items of 4 KiB; no body makes the server hold many times its size."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from engines.models import TransactionRecord
from ergon_site.access import clients
from ergon_site.access.api.parsers import BATCH_LIMIT, MEMORY, OVERHEAD
from ergon_site.access.clients import Grant
from ergon_site.access.core.json_size import CONTAINER, NAME, VALUE
from facts.client import BoundaryClient
from facts.models import Fact
from tests.factories import make_pipeline
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.processes import Site, serve

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]
TRANSACTIONS, FACTS = "/api/v1/transactions/batch", "/api/v1/facts/batch"


@pytest.fixture
def token() -> str:
    grant = Grant(scopes=["transactions:submit", "facts:append"], zones=[PLANT], target_zones=[OFFICE])
    return clients.create("press", grant, by="tests").token.text


def post(site: Site, token: str, path: str, body: bytes | Iterator[bytes]) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return httpx.post(f"{site.url}{path}", content=body, headers=headers, timeout=120)


def filled(start: bytes, part: bytes, end: bytes = b"]}", *, most: int = BATCH_LIMIT) -> bytes:
    """That part, over and over."""
    count = (most - len(start) - len(end)) // len(part)
    return start + (part * count).removesuffix(b",") + end


def padded(start: bytes, parts: bytes, end: bytes = b"", *, size: int = BATCH_LIMIT) -> bytes:
    """These parts, and text for the rest."""
    start += parts.removesuffix(b",") + b',"'
    return start + b"x" * (size - len(start) - len(end) - 3) + end + b'"]}'


def named(count: int) -> bytes:
    return b"{" + b",".join(b'"n%07d":"v%07d"' % (number, number) for number in range(count)) + b"}"


# What all copies of a body and its value may take, and what is left for parts where a text fills the body.
ALLOWED = (MEMORY - OVERHEAD) * 99 // 100
ROOM = ALLOWED - 3 * BATCH_LIMIT


def within_bounds(start: bytes) -> Iterator[bytes]:
    """As much as is allowed of each kind, almost."""
    is_compact = start.endswith(b":[")
    half = BATCH_LIMIT // 2
    yield padded(start, named(ROOM // (NAME + VALUE)))
    yield padded(start, named((ALLOWED - 3 * half) // (NAME + VALUE)), size=half)
    yield padded(start, b'"ab",' * (ROOM // VALUE))
    yield padded(start, b'{"a":"bc"},' * (ROOM // (CONTAINER + NAME + VALUE)))
    yield padded(start, b"1", "😀".encode(), size=ALLOWED // (2 + 4 if is_compact else 1 + 5 + 4))
    yield padded(start, b"1", "中".encode(), size=ALLOWED // (2 + 2 if is_compact else 1 + 3 + 2))
    yield padded(start, b"1", b"\\ud83d\\ude00", size=ALLOWED // (1 + 1 + 7))


def beyond_bounds(field: bytes) -> Iterator[bytes]:
    start = b'{"' + field + b'":['
    for part in (b"[],", b"{},", b'{"a":1},', b"[[]],", b"300,", b"1.5,", b'"",', b'"ab",', b'"[",', b"-1e5,"):
        yield filled(start, part)
    yield filled(start + b"{", b'"a":[],', b"}]}")
    yield start + b"[" * (BATCH_LIMIT - len(start))
    yield filled(start + b'"', b"[{,:")  # a string that does not end


@contextmanager
def watching(site: Site) -> Iterator[list[int]]:
    """The largest memory that the server has meanwhile, beyond what it has now."""
    processes = site.processes()
    before = [one.memory_info().rss for one in processes]
    over, peak = threading.Event(), [0]

    def watch() -> None:
        while not over.wait(0.002):
            peak[0] = max(peak[0], *(one.memory_info().rss - was for one, was in zip(processes, before, strict=True)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(("path", "field"), [(TRANSACTIONS, b"transactions"), (FACTS, b"facts")])
def test_no_hostile_body_costs_more_than_four_times_its_size(token: str, path: str, field: bytes) -> None:
    with serve(threads="1") as site:
        for _ in range(5):
            post(site, token, path, b"{}")
        for body in beyond_bounds(field):
            with watching(site) as peak:
                answer = post(site, token, path, body)
            assert answer.json()["code"] == "payload_too_large", body[:40]
            assert peak[0] <= 4 * len(body), body[:40]


@pytest.mark.parametrize(
    ("path", "start"),
    [(TRANSACTIONS, b'{"transactions":['), (TRANSACTIONS, b'{"transactions": ['), (FACTS, b'{"facts": [')],
)
def test_a_body_just_within_the_bounds_costs_four_times_the_largest_at_most(
    token: str, path: str, start: bytes
) -> None:
    with serve(threads="1") as site:
        for _ in range(5):
            post(site, token, path, start + b'1,{"a":"b"}]}')
        for body in within_bounds(start):
            with watching(site) as peak:
                answer = post(site, token, path, body)
            assert answer.status_code == 400 or b'"status":400' in answer.content, body[:40]
            assert peak[0] <= 4 * BATCH_LIMIT, body[:40]


def test_a_thousand_transactions_of_four_kibibytes_fit(site: Site, token: str) -> None:
    make_pipeline("invoices")
    fields: dict[str, object] = {f"field_{number}": f"value of field {number}" for number in range(60)}
    payload = {"rows": [{"at": number, "is": 12.5} for number in range(15)], **fields}
    payload["text"] = "[" * (4096 - len(json.dumps(payload)) - 12)
    assert len(json.dumps(payload)) >= 4080
    items = [{"pipeline": "invoices", "payload": payload, "metadata": {"tenant": "a"}} for _ in range(1000)]
    answer = post(site, token, TRANSACTIONS, json.dumps({"transactions": items}).encode())
    assert (answer.status_code, TransactionRecord.objects.count()) == (200, 1000)


def test_a_thousand_facts_of_four_kibibytes_fit(site: Site, token: str) -> None:
    make_boundary()
    labels = {f"label-{number}": "x" * 20 for number in range(10)}
    items = [draft(number, object_json={"text": "ä" * 2048}, labels=labels) for number in range(1000)]
    body = json.dumps({"facts": items}, ensure_ascii=False).encode()
    answer = post(site, token, FACTS, body)
    assert (answer.status_code, Fact.objects.count()) == (200, 1000)


def test_the_client_sends_more_than_fits_in_several_requests(site: Site, token: str) -> None:
    make_boundary()
    many = [draft(number, object_json={"text": "x" * 20_000}) for number in range(600)]
    dense = [draft(f"dense-{number}", object_json={"readings": [12.5] * 700}) for number in range(400)]
    with BoundaryClient(site.url, token) as client:
        results = client.append_many([*many, *dense])
    assert [result.offset for result in results] == list(range(1000))  # type: ignore[union-attr]


def test_a_body_that_needs_too_much_memory_is_told_so_before_it_is_parsed(site: Site, token: str) -> None:
    few = b'{"transactions":[' + b"[]," * 1000 + b"[]]}"
    many = b'{"transactions":[' + b"[]," * 200_000 + b"[]]}"
    assert post(site, token, TRANSACTIONS, few).status_code == 400
    refused = post(site, token, TRANSACTIONS, many)
    assert (refused.status_code, refused.json()["code"]) == (413, "payload_too_large")
    assert "needs more than 40 MiB of memory" in refused.json()["detail"]
    assert "200,003 lists and objects" in refused.json()["detail"]
    alone = b'{"pipeline":"invoices","payload":[' + b"[]," * 200_000 + b"[]]}"
    refused = post(site, token, "/api/v1/transactions", alone)
    assert "200,003 lists and objects" in refused.json()["detail"]


def test_a_body_without_a_length_costs_no_more(token: str) -> None:
    start = b'{"transactions":['
    with serve(threads="1") as site:
        for _ in range(5):
            post(site, token, TRANSACTIONS, start + b'1,{"a":"b"}]}')
        body = next(within_bounds(start))
        with watching(site) as peak:
            answer = post(site, token, TRANSACTIONS, (body[at : at + 50_000] for at in range(0, len(body), 50_000)))
    assert answer.status_code == 400
    assert peak[0] <= 4 * BATCH_LIMIT


def test_a_wide_character_in_a_long_text_counts_for_all_of_it(site: Site, token: str) -> None:
    for text in ("😀", "\\ud83d\\ude00"):
        body = padded(b'{"transactions":[', b"1", text.encode())
        assert post(site, token, TRANSACTIONS, body).json()["code"] == "payload_too_large"


def test_the_last_of_many_names_twice_is_told_at_once(site: Site, token: str) -> None:
    body = b'{"facts":[' + named(60_000).removesuffix(b"}") + b',"n0059999":1}]}'
    assert "'n0059999' occurs twice" in post(site, token, FACTS, body).json()["detail"]
