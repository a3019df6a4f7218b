"""Pipelines are paused and resumed, dead letters replayed and discarded, by machines too."""

from typing import Any

import pytest
from django.test import Client

from engines import dead_letters, transactions
from engines.dead_letters import DeadLetterDraft
from engines.models import DeadLetter, Pipeline, TransactionRecord
from ergon_site.access.models import AuditEntry
from tests.api.api_clients import client_with, failed, pointers, post, problem
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db


@pytest.fixture
def api() -> Client:
    make_pipeline("invoices")
    return client_with("transactions:read", "transactions:operate", "dead_letters:operate")


def test_pipelines_are_listed_by_name_with_what_waits(api: Client) -> None:
    make_pipeline("archive")
    transactions.submit("invoices", 1)
    page = api.get("/api/v1/pipelines").json()
    assert [one["name"] for one in page["results"]] == ["archive", "invoices"]
    assert set(page) == {"results", "next", "previous"}
    told = page["results"][1]
    assert (told["task"], told["direction"], told["connector"]) == ("tests.act", "inbound", "database")
    assert (told["policy"], told["policy_version"], told["paused"]) == ("default", 1, False)
    assert told["depth"] == {"pending": 1, "is_capped": False}


def test_what_waits_in_all_of_them_is_counted_by_one_statement(api: Client, django_assert_max_num_queries: Any) -> None:
    api.get("/api/v1/pipelines")
    for number in range(10):
        make_pipeline(f"p{number}")
        transactions.submit(f"p{number}", 1)
    with django_assert_max_num_queries(4):
        page = api.get("/api/v1/pipelines").json()
    assert [one["depth"]["pending"] for one in page["results"]] == [0, *[1] * 10]


def test_pipelines_come_in_pages(api: Client) -> None:
    for name in ("a", "b", "c"):
        make_pipeline(name)
    first = api.get("/api/v1/pipelines?limit=3").json()
    second = api.get(first["next"]).json()
    assert [one["name"] for one in first["results"] + second["results"]] == ["a", "b", "c", "invoices"]


def test_a_long_queue_is_counted_only_so_far(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.reads.depth.COUNTED", 3)
    transactions.submit_many("invoices", [{"payload": number} for number in range(5)])
    assert api.get("/api/v1/pipelines").json()["results"][0]["depth"] == {"pending": 3, "is_capped": True}


def test_a_pipeline_is_paused_and_resumed(api: Client) -> None:
    paused = post(api, "pipelines/invoices/pause", {"reason": "bank is down"})
    told = paused.json()
    assert (paused.status_code, told["paused"], told["pause_reason"]) == (200, True, "bank is down")
    assert (told["paused_by"], Pipeline.objects.get().is_paused) == ("client:erp", True)
    resumed = post(api, "pipelines/invoices/resume", {"reason": "bank is back"})
    assert (resumed.status_code, resumed.json()["paused"], Pipeline.objects.get().is_paused) == (200, False, False)
    entries = AuditEntry.objects.filter(target="pipeline invoices").exclude(action="pipeline.create").order_by("id")
    assert [(entry.actor, entry.action, entry.reason) for entry in entries] == [
        ("client:erp", "pipeline.pause", "bank is down"),
        ("client:erp", "pipeline.resume", "bank is back"),
    ]


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_pipeline_that_is_not_there_is_said_to_be_so(api: Client, verb: str) -> None:
    problem(post(api, f"pipelines/ghost/{verb}", {"reason": "x"}), 404, "pipeline_unknown")
    problem(post(api, f"pipelines/no%20name/{verb}", {"reason": "x"}), 404, "not_found")
    assert pointers(problem(post(api, f"pipelines/invoices/{verb}", {}), 400, "invalid_request")) == ["/reason"]


def letters(api: Client, query: str = "") -> list[str]:
    answer = api.get(f"/api/v1/dead-letters{query}")
    assert answer.status_code == 200, answer.content
    return [one["transaction"] for one in answer.json()["results"]]


def test_dead_letters_are_listed_and_filtered(api: Client) -> None:
    first, other = failed("a"), failed("b", "no such account")
    dead_letters.discard(other.pk, by="ada", reason="test")
    expected = {
        "": ["b", "a"],
        "state=open": ["a"],
        "state=discarded": ["b"],
        "source=invoices": ["b", "a"],
        "source=orders": [],
        "category=BUSINESS": ["b", "a"],
        "category=SYSTEM": [],
        f"group={first.group_id}": ["a"],
        f"group={first.group_id}&state=replayed": [],
    }
    assert {query: letters(api, f"?{query}") for query in expected} == expected
    told = api.get("/api/v1/dead-letters").json()["results"][1]
    assert (told["id"], told["group"], told["error_type"]) == (first.pk, first.group_id, "TransactionException")
    assert set(told).isdisjoint({"payload", "traceback", "details"})


@pytest.mark.parametrize("query", ["state=done", "source=%00", "category=x", "group=x", "group=²", f"group={2**63}"])
def test_a_filter_of_dead_letters_that_means_nothing_is_refused(api: Client, query: str) -> None:
    body = problem(api.get(f"/api/v1/dead-letters?{query}"), 400, "invalid_request")
    assert pointers(body) == [f"/{query.partition('=')[0]}"]


def test_a_dead_letter_is_told_with_what_would_be_replayed(api: Client) -> None:
    letter = failed("a")
    told = api.get(f"/api/v1/dead-letters/{letter.pk}").json()
    assert (told["transaction"], told["payload"], told["state"]) == ("a", {"n": 1}, "open")
    assert (told["step"], told["message"]) == ("process", "no such customer")
    assert {"traceback", "details"} <= set(told)


def test_a_dead_letter_is_replayed_once(api: Client) -> None:
    letter = failed("a")
    answer = post(api, f"dead-letters/{letter.pk}/replay", {"reason": "customer made", "payload": {"n": 2}})
    assert (answer.status_code, answer.json()["state"]) == (201, "pending")
    assert TransactionRecord.objects.get(uid=answer.json()["id"]).payload == {"n": 2}
    letter.refresh_from_db()
    assert (letter.state, letter.settled_by, letter.replayed_as) == ("replayed", "client:erp", answer.json()["id"])
    body = problem(post(api, f"dead-letters/{letter.pk}/replay", {"reason": "again"}), 409, "letter_settled")
    assert "client:erp" in body["detail"]


def test_a_dead_letter_is_discarded_for_a_reason(api: Client) -> None:
    letter = failed("a")
    answer = post(api, f"dead-letters/{letter.pk}/discard", {"reason": "a test order"})
    told = answer.json()
    assert (answer.status_code, told["state"], told["reason"]) == (200, "discarded", "a test order")
    assert (told["settled_by"], told["settled_at"] is None) == ("client:erp", False)
    problem(post(api, f"dead-letters/{letter.pk}/discard", {"reason": "again"}), 409, "letter_settled")
    assert AuditEntry.objects.get(action="dead_letter.discard").actor == "client:erp"


def test_a_dead_letter_of_no_pipeline_cannot_be_replayed(api: Client) -> None:
    draft: dict[str, Any] = {"step": "call", "category": "SYSTEM", "error_type": "Down", "message": "", "details": {}}
    letter = dead_letters.record([DeadLetterDraft(source="bank/transfer", uid="call-1", payload={"n": 1}, **draft)])[0]
    problem(post(api, f"dead-letters/{letter.pk}/replay", {"reason": "x"}), 409, "not_replayable")
    assert DeadLetter.objects.get().state == "open"


@pytest.mark.parametrize("number", [7, 10**18, 10**30])
def test_an_unknown_dead_letter_is_not_found(api: Client, number: int) -> None:
    problem(api.get(f"/api/v1/dead-letters/{number}"), 404, "letter_unknown")
    for verb in ("replay", "discard"):
        problem(post(api, f"dead-letters/{number}/{verb}", {"reason": "x"}), 404, "letter_unknown")
