"""Looking at transactions, and deciding about them."""

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from django.test import Client
from django.utils import timezone

from engines import pipelines, transactions
from engines.core.outcome import Success
from engines.models import DeadLetter, TransactionRecord
from ergon_site.access import api_identity, clients
from ergon_site.access.clients import Grant
from ergon_site.access.models import AuditEntry
from tests.api.api_clients import client_with, failed, pointers, post, problem, run, succeeded
from tests.durable_transactions import claim
from tests.factories import make_pipeline
from tests.processes import LIMIT, Site

pytestmark = pytest.mark.django_db


@pytest.fixture
def api() -> Client:
    make_pipeline("invoices")
    return client_with("transactions:read", "transactions:operate")


def listed(api: Client, query: str = "") -> list[str]:
    answer = api.get(f"/api/v1/transactions{query}")
    assert answer.status_code == 200, answer.content
    return [one["id"] for one in answer.json()["results"]]


def test_the_newest_come_first_in_pages_and_without_payloads(api: Client) -> None:
    for number in range(5):
        transactions.submit("invoices", {"secret": number}, id=f"t{number}")
    first = api.get("/api/v1/transactions?limit=3").json()
    second = api.get(first["next"]).json()
    assert [one["id"] for one in first["results"] + second["results"]] == ["t4", "t3", "t2", "t1", "t0"]
    assert (first["previous"], second["next"]) == (None, None)
    assert set(first["results"][0]).isdisjoint({"payload", "result", "error", "metadata"})
    assert first["results"][0]["pipeline"] == "invoices"


def test_a_list_costs_the_same_however_long_it_is(api: Client, django_assert_num_queries: Any) -> None:
    for number in range(20):
        transactions.submit("invoices", number)
    api.get("/api/v1/transactions")
    api_identity.forget()
    with django_assert_num_queries(2):
        assert len(listed(api)) == 20


def test_lists_are_filtered(api: Client) -> None:
    make_pipeline("orders")
    failed("bad")
    succeeded("good")
    transactions.submit("invoices", 1, id="gone")
    transactions.cancel("gone", by="ada", reason="test")
    transactions.submit("orders", 1, id="runs")
    transactions.claim(TransactionRecord.objects.get(uid="runs").pipeline_id, 1, worker=1)
    transactions.submit("invoices", 1, id="waits")
    assert listed(api) == ["waits", "runs", "gone", "good", "bad"]
    expected = {
        "state=pending": ["waits"],
        "state=running": ["runs"],
        "state=succeeded": ["good"],
        "state=failed": ["bad"],
        "state=cancelled": ["gone"],
        "pipeline=orders": ["runs"],
        "pipeline=invoices": ["waits", "gone", "good", "bad"],
        "pipeline=invoices&state=failed": ["bad"],
        "pipeline=orders&state=failed": [],
        "correlation_id=order-7": ["bad"],
        "category=BUSINESS": ["bad"],
        "category=TIMEOUT": [],
        "id=good": ["good"],
    }
    assert {query: listed(api, f"?{query}") for query in expected} == expected


def test_lists_are_filtered_by_time(api: Client) -> None:
    moment = timezone.now()
    for uid, made_at in (("early", moment - timedelta(seconds=1)), ("late", moment)):
        succeeded(uid)
        TransactionRecord.objects.filter(uid=uid).update(created_at=made_at)
    at = quote(moment.isoformat())
    assert listed(api, f"?created_before={at}") == ["early"]
    assert listed(api, f"?created_after={at}") == ["late"]
    assert listed(api, f"?created_after={moment.isoformat()}") == ["late"]


@pytest.mark.parametrize(
    "query",
    [
        *("state=done", "state=", "category=system", "correlation_id=", "correlation_id=%00", "id=%00"),
        *("created_after=now", "created_before=2026-01-01", "created_after=9999-12-31T23:59:59-14:00"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(api: Client, query: str) -> None:
    body = problem(api.get(f"/api/v1/transactions?{query}"), 400, "invalid_request")
    assert pointers(body) == [f"/{query.partition('=')[0]}"]


def test_a_list_of_an_unknown_pipeline_is_refused(api: Client) -> None:
    problem(api.get("/api/v1/transactions?pipeline=ghost"), 404, "pipeline_unknown")


def test_a_transaction_is_told_with_everything_that_is_kept_of_it(api: Client) -> None:
    transactions.submit("invoices", {"n": 1}, id="t", metadata={"tenant": "a"}, correlation_id="c", dedupe_key="d")
    run("t", Success({"ok": True}))
    new = transactions.replay("t", by="ada", reason="again", payload={"n": 2})
    told = api.get("/api/v1/transactions/t").json()
    assert (told["id"], told["state"], told["pipeline"]) == ("t", "succeeded", "invoices")
    assert (told["payload"], told["result"], told["metadata"]) == ({"n": 1}, {"ok": True}, {"tenant": "a"})
    assert (told["correlation_id"], told["dedupe_key"], told["deliveries"]) == ("c", "d", 1)
    assert (told["policy_version"], told["error"], told["dead_letter"]) == ("default v1", None, None)
    assert (told["replay_of"], told["replays"]) == (None, [new.id])
    again = api.get(f"/api/v1/transactions/{new.id}").json()
    assert (again["replay_of"], again["parent_id"], again["payload"]) == ("t", "t", {"n": 2})
    assert again["payload_changes"] == [{"path": "n", "before": 1, "after": 2}]


def test_a_failure_is_told_with_its_error_and_its_dead_letter(api: Client) -> None:
    letter = failed("bad")
    told = api.get("/api/v1/transactions/bad").json()
    assert (told["state"], told["category"], told["dead_letter"]) == ("failed", "BUSINESS", letter.pk)
    assert told["error"]["message"] == "no such customer"


def test_a_transaction_explains_itself(api: Client) -> None:
    transactions.submit("invoices", 1, id="waits")
    told = api.get("/api/v1/transactions/waits/explain").json()
    assert set(told) == {"id", "state", "sentence", "facts", "attempts", "result", "error"}
    assert told["sentence"] == "waiting: no worker serves this pipeline"
    assert told["facts"]["pipeline"] == "invoices"


@pytest.mark.parametrize(
    "uid",
    [
        *("with space", "a.b", "urn:x:1", "a/b", "/a", "a/", "a//b", "ä?#&%", "%2F", "a\nb", "x" * 200, "..x", "+"),
        *("explain", "batch/", "a/b/explainx"),
    ],
)
def test_ids_may_hold_anything(api: Client, uid: str) -> None:
    transactions.submit("invoices", 1, id=uid)
    address = f"/api/v1/transactions/{quote(uid, safe='')}"
    assert api.get(address).json()["id"] == uid
    assert api.get(f"{address}/explain").json()["id"] == uid
    assert listed(api, f"?id={quote(uid, safe='')}") == [uid]
    cancelled = post(api, f"transactions/{quote(uid, safe='')}/cancel", {"reason": "test"})
    assert cancelled.json() == {"id": uid, "state": "cancelled"}
    assert post(api, f"transactions/{quote(uid, safe='')}/replay", {"reason": "test"}).status_code == 201


@pytest.mark.parametrize("uid", ["ghost", "x" * 200, "a/b", "%ff"])
def test_an_unknown_transaction_is_not_found(api: Client, uid: str) -> None:
    for address in (f"transactions/{uid}", f"transactions/{uid}/explain"):
        problem(api.get(f"/api/v1/{address}"), 404, "transaction_unknown")
    for verb in ("cancel", "replay"):
        problem(post(api, f"transactions/{uid}/{verb}", {"reason": "test"}), 404, "transaction_unknown")


@pytest.mark.parametrize("uid", ["%00", "x" * 201])
def test_what_cannot_be_an_id_is_no_address(api: Client, uid: str) -> None:
    problem(api.get(f"/api/v1/transactions/{uid}"), 404, "not_found")


def test_a_pending_one_is_cancelled_by_its_client_and_for_a_reason(api: Client) -> None:
    transactions.submit("invoices", 1, id="t")
    answer = post(api, "transactions/t/cancel", {"reason": "ordered twice"})
    assert (answer.status_code, answer.json()) == (200, {"id": "t", "state": "cancelled"})
    entry = AuditEntry.objects.get(action="transaction.cancel")
    assert (entry.actor, entry.target, entry.reason) == ("client:erp", "transaction t", "ordered twice")
    body = problem(post(api, "transactions/t/cancel", {"reason": "again"}), 409, "not_pending")
    assert body["detail"] == "The transaction 't' is cancelled; only a pending or running transaction can be cancelled."


def test_of_a_running_one_the_cancellation_is_accepted_and_done_later(api: Client) -> None:
    transactions.submit("invoices", 1, id="t")
    claim(pipelines.find("invoices"))
    for _ in range(2):
        answer = post(api, "transactions/t/cancel", {"reason": "ordered twice"})
        assert (answer.status_code, answer.json()) == (202, {"id": "t", "state": "running"})
    assert api.get("/api/v1/transactions/t").json()["cancel_requested_at"]


def test_one_that_has_ended_is_replayed_as_a_new_one(api: Client) -> None:
    letter = failed("bad")
    answer = post(api, "transactions/bad/replay", {"reason": "customer made", "payload": {"n": 2}})
    assert (answer.status_code, answer.json()["state"]) == (201, "pending")
    new = TransactionRecord.objects.get(uid=answer.json()["id"])
    assert (new.payload, new.parent_id) == ({"n": 2}, "bad")
    assert DeadLetter.objects.get(pk=letter.pk).state == "replayed"
    entry = AuditEntry.objects.get(action="transaction.replay_edited")
    assert (entry.actor, entry.reason) == ("client:erp", "customer made")
    assert "2" not in str(entry.after).replace(new.uid, "")
    problem(post(api, "transactions/bad/replay", {"reason": "again"}), 409, "letter_settled")


def test_null_is_a_payload_and_nothing_is_the_payload_as_it_was(api: Client) -> None:
    succeeded("t")
    as_it_was = post(api, "transactions/t/replay", {"reason": "x"}).json()["id"]
    null = post(api, "transactions/t/replay", {"reason": "x", "payload": None}).json()["id"]
    payloads = {record.uid: record.payload for record in TransactionRecord.objects.all()}
    assert (payloads[as_it_was], payloads[null]) == ({"n": 1}, None)


def test_one_that_has_not_ended_is_not_replayed(api: Client) -> None:
    transactions.submit("invoices", 1, id="t")
    problem(post(api, "transactions/t/replay", {"reason": "x"}), 409, "not_finished")


def test_an_edited_payload_has_its_limit_too(api: Client) -> None:
    succeeded("t")
    answer = post(api, "transactions/t/replay", {"reason": "x", "payload": "x" * 2**20})
    assert pointers(problem(answer, 413, "payload_too_large")) == ["/payload"]
    assert TransactionRecord.objects.count() == 1


@pytest.mark.parametrize("reason", [None, "", "  ", 5, "x" * 1001])
@pytest.mark.parametrize("verb", ["cancel", "replay"])
def test_a_decision_needs_a_reason(api: Client, verb: str, reason: Any) -> None:
    transactions.submit("invoices", 1, id="t")
    body = problem(post(api, f"transactions/t/{verb}", {"reason": reason}), 400, "invalid_request")
    assert pointers(body) == ["/reason"]
    assert pointers(problem(post(api, f"transactions/t/{verb}", {}), 400, "invalid_request")) == ["/reason"]


@pytest.mark.once
def test_ids_travel_through_a_real_server(site: Site) -> None:
    make_pipeline("invoices")
    token = clients.create("erp", Grant(scopes=["transactions:submit", "transactions:read"]), by="tests").token.text
    with httpx.Client(
        base_url=f"{site.url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=LIMIT
    ) as http:
        for uid in ("order 7/a.b:c", "urn:x:1", "ä+%&?#", "a//b", "/a"):
            body = {"pipeline": "invoices", "payload": 1, "id": uid}
            assert http.post("/transactions", json=body).json() == {"id": uid, "state": "pending"}
            assert http.get(f"/transactions/{quote(uid, safe='')}").json()["id"] == uid
            assert http.get(f"/transactions/{quote(uid, safe='')}/explain").json()["id"] == uid
