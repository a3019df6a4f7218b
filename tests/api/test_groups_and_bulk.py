"""Groups of dead letters are decided about as a whole, and bulk operations followed and stopped, by machines too."""

from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from engines import dead_letters
from engines.core.states import GroupState
from engines.dead_letters import DeadLetterDraft, bulk
from engines.models import BulkOperation, DeadLetter, DeadLetterGroup, TransactionRecord
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.models import AuditEntry
from tests.api.api_clients import client_with, failed, pointers, post, problem
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

TENANT, OTHER = "7b1e6f0c-0f4e-4c0f-9a52-3f3a0a1e9c11", "0c6f2a4e-1111-4222-8333-944455556666"


@pytest.fixture
def api() -> Client:
    make_pipeline("invoices")
    return client_with("transactions:read", "dead_letters:operate")


def called(tenant: str, number: int = 1) -> DeadLetter:
    """A dead letter of a provider."""
    draft: dict[str, Any] = {"step": "call", "category": "SYSTEM", "error_type": "Down", "message": "gone"}
    details = {"tenant_id": tenant, "task_name": "rank", "request": {}}
    return dead_letters.record(
        [DeadLetterDraft(source="rank/snapshot", uid=f"call-{number}", details=details, **draft)]
    )[0]


def client_of(*tenants: str, scopes: tuple[str, ...] = (), name: str = "dash") -> Client:
    grant = Grant(
        scopes=("transactions:read", "dead_letters:operate", *scopes), tenants=[UUID(tenant) for tenant in tenants]
    )
    token = clients.create(name, grant, by="tests").token.text
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {token}"})


def test_groups_are_listed_filtered_and_told_with_how_many_are_open(api: Client) -> None:
    letter, _, other = failed("a"), failed("b"), failed("c", "no such account")
    dead_letters.decide(other.group_id, GroupState.MUTED, by="ada", reason="known")
    page = api.get("/api/v1/dead-letter-groups").json()
    assert set(page) == {"results", "next", "previous"}
    assert [one["id"] for one in page["results"]] == [other.group_id, letter.group_id]
    expected = {"state=open": 1, "state=muted": 1, "source=invoices": 2, "category=SYSTEM": 0, "state=open&limit=1": 1}
    counts = {query: len(api.get(f"/api/v1/dead-letter-groups?{query}").json()["results"]) for query in expected}
    assert counts == expected
    told = api.get(f"/api/v1/dead-letter-groups/{letter.group_id}").json()
    assert (told["open_count"], told["total"], told["state"], told["source"]) == (2, 2, "open", "invoices")
    assert (told["error_type"], told["message"]) == ("TransactionException", "no such customer")


@pytest.mark.parametrize(
    "address", ["dead-letter-groups?state=done", "bulk-operations?state=x", "bulk-operations?group=x"]
)
def test_a_filter_that_means_nothing_is_refused(api: Client, address: str) -> None:
    problem(api.get(f"/api/v1/{address}"), 400, "invalid_request")


@pytest.mark.parametrize(("verb", "state"), [("mute", "muted"), ("resolve", "resolved"), ("reopen", "open")])
def test_a_group_is_decided_about_with_the_audit_line_of_the_console(api: Client, verb: str, state: str) -> None:
    letter = failed("a")
    answer = post(api, f"dead-letter-groups/{letter.group_id}/{verb}", {"reason": "bank's fault"})
    told = answer.json()
    assert (answer.status_code, told["state"], told["decided_by"]) == (200, state, "client:erp")
    entry = AuditEntry.objects.get(action=f"dead_letter_group.{state}")
    assert (entry.actor, entry.reason, entry.after) == ("client:erp", "bank's fault", {"state": state})


def test_a_group_is_replayed_a_few_first_at_a_pace_and_never_beyond_its_cap(api: Client) -> None:
    letters = [failed(uid) for uid in "abc"]
    body = {"reason": "customer made", "canary": 2, "rate": 5.5, "cap": 2}
    answer = post(api, f"dead-letter-groups/{letters[0].group_id}/replay", body)
    told = answer.json()
    assert answer.status_code == 201, told
    assert (told["verb"], told["state"], told["by"], told["reason"]) == (
        *("replay", "running", "client:erp", "customer made"),
    )
    assert (told["expected"], told["canary"], told["rate"], told["cap"], told["done"]) == (3, 2, 5.5, 2, 0)
    entry = AuditEntry.objects.get(action="bulk.replay")
    assert (entry.actor, entry.after and entry.after["cap"]) == ("client:erp", 2)
    bulk.advance()
    told = api.get(f"/api/v1/bulk-operations/{told['id']}").json()
    assert (told["done"], told["skipped"], told["failed"]) == (2, 0, 0)
    items = api.get(f"/api/v1/bulk-operations/{told['id']}/items").json()["results"]
    assert [(one["dead_letter"], one["result"]) for one in items] == [(letters[1].pk, "done"), (letters[0].pk, "done")]
    assert {one["note"] for one in items} == set(
        TransactionRecord.objects.exclude(replay_of=None).values_list("uid", flat=True)
    )


def test_a_group_is_replayed_carefully_if_nothing_is_said(api: Client) -> None:
    told = post(api, f"dead-letter-groups/{failed('a').group_id}/replay", {"reason": "x"}).json()
    assert (told["canary"], told["rate"], told["cap"]) == (1, 10, 100_000)


@pytest.mark.parametrize("reason", [None, "", "  ", 5, True, ["x"], "x" * 1001])
def test_a_reason_is_a_text_that_somebody_has_written(api: Client, reason: Any) -> None:
    address = f"dead-letter-groups/{failed('a').group_id}"
    for verb in ("mute", "replay", "discard"):
        body = problem(post(api, f"{address}/{verb}", {"reason": reason}), 400, "invalid_request")
        assert pointers(body) == ["/reason"]


def test_a_group_is_discarded_for_a_reason(api: Client) -> None:
    letter = failed("a")
    answer = post(api, f"dead-letter-groups/{letter.group_id}/discard", {"reason": "test orders"})
    assert (answer.status_code, answer.json()["verb"], answer.json()["canary"]) == (201, "discard", 0)
    assert AuditEntry.objects.get(action="bulk.discard").reason == "test orders"


@pytest.mark.parametrize(
    ("terms", "pointer"),
    [
        ({}, "/reason"),
        ({"reason": " "}, "/reason"),
        ({"reason": "x", "canary": -1}, "/canary"),
        ({"reason": "x", "canary": 1001}, "/canary"),
        ({"reason": "x", "rate": 0}, "/rate"),
        ({"reason": "x", "rate": 501}, "/rate"),
        ({"reason": "x", "cap": 0}, "/cap"),
        ({"reason": "x", "cap": 100_001}, "/cap"),
        ({"reason": "x", "pace": 1}, "/pace"),
    ],
)
def test_terms_out_of_bounds_are_pointed_at(api: Client, terms: dict[str, Any], pointer: str) -> None:
    answer = post(api, f"dead-letter-groups/{failed('a').group_id}/replay", terms)
    assert pointers(problem(answer, 400, "invalid_request")) == [pointer]
    assert not BulkOperation.objects.exists()


def test_one_operation_at_a_time_concerns_a_group(api: Client) -> None:
    address = f"dead-letter-groups/{failed('a').group_id}"
    post(api, f"{address}/discard", {"reason": "x"})
    problem(post(api, f"{address}/replay", {"reason": "x"}), 409, "group_busy")
    problem(post(api, f"{address}/discard", {"reason": "x"}), 409, "group_busy")


def test_an_operation_that_stopped_is_not_resumed_beside_another_on_its_group(api: Client) -> None:
    address = f"dead-letter-groups/{failed('a').group_id}"
    stopped = post(api, f"{address}/replay", {"reason": "x"}).json()["id"]
    BulkOperation.objects.update(state="stopped")
    post(api, f"{address}/discard", {"reason": "x"})
    problem(post(api, f"bulk-operations/{stopped}/resume", {"reason": "x"}), 409, "group_busy")


def test_an_operation_is_paused_resumed_and_cancelled_once(api: Client) -> None:
    begun = post(api, f"dead-letter-groups/{failed('a').group_id}/discard", {"reason": "x"}).json()
    address = f"bulk-operations/{begun['id']}"
    for verb, state in {"pause": "paused", "resume": "running", "cancel": "cancelled"}.items():
        answer = post(api, f"{address}/{verb}", {"reason": f"{verb} it"})
        assert (answer.status_code, answer.json()["state"]) == (200, state)
        entry = AuditEntry.objects.get(action=f"bulk.{state}")
        assert (entry.actor, entry.reason) == ("client:erp", f"{verb} it")
    for verb in ("pause", "resume", "cancel"):
        problem(post(api, f"{address}/{verb}", {"reason": "x"}), 409, "operation_state")
    assert [one["id"] for one in api.get("/api/v1/bulk-operations?state=cancelled").json()["results"]] == [begun["id"]]
    assert DeadLetter.objects.get().state == "open"


@pytest.mark.parametrize("number", [7, 10**18, 10**30])
def test_what_is_not_there_is_said_to_be_so(api: Client, number: int) -> None:
    problem(api.get(f"/api/v1/dead-letter-groups/{number}"), 404, "group_unknown")
    for verb in ("mute", "resolve", "reopen", "replay", "discard"):
        problem(post(api, f"dead-letter-groups/{number}/{verb}", {"reason": "x"}), 404, "group_unknown")
    for address in ("", "/items"):
        problem(api.get(f"/api/v1/bulk-operations/{number}{address}"), 404, "operation_unknown")
    for verb in ("pause", "resume", "cancel"):
        problem(post(api, f"bulk-operations/{number}/{verb}", {"reason": "x"}), 404, "operation_unknown")


def test_a_letter_of_a_provider_is_shown_and_settled_by_clients_of_its_tenant_alone() -> None:
    mine, other = called(TENANT, 1), called(OTHER, 2)
    api, platform = client_of(TENANT), client_of(scopes=("platform",), name="ops")
    assert [one["id"] for one in api.get("/api/v1/dead-letters").json()["results"]] == [mine.pk]
    assert len(platform.get("/api/v1/dead-letters").json()["results"]) == 2
    assert api.get(f"/api/v1/dead-letters/{mine.pk}").json()["details"]["tenant_id"] == TENANT
    assert platform.get(f"/api/v1/dead-letters/{other.pk}").json()["details"]["tenant_id"] == OTHER
    problem(api.get(f"/api/v1/dead-letters/{other.pk}"), 403, "permission_denied")
    for verb in ("replay", "discard"):
        problem(post(api, f"dead-letters/{other.pk}/{verb}", {"reason": "x"}), 403, "permission_denied")
    assert post(api, f"dead-letters/{mine.pk}/discard", {"reason": "x"}).status_code == 200
    assert post(platform, f"dead-letters/{other.pk}/discard", {"reason": "x"}).status_code == 200


def test_a_group_with_letters_of_other_tenants_is_not_decided_about_as_a_whole() -> None:
    mine, other = called(TENANT, 1), called(OTHER, 2)
    assert mine.group_id == other.group_id
    api, platform = client_of(TENANT), client_of(scopes=("platform",), name="ops")
    for verb in ("mute", "resolve", "reopen", "replay", "discard"):
        answer = post(api, f"dead-letter-groups/{mine.group_id}/{verb}", {"reason": "x"})
        problem(answer, 403, "permission_denied")
    begun = post(platform, f"dead-letter-groups/{mine.group_id}/discard", {"reason": "x"}).json()
    problem(post(api, f"bulk-operations/{begun['id']}/cancel", {"reason": "x"}), 403, "permission_denied")
    post(platform, f"bulk-operations/{begun['id']}/cancel", {"reason": "x"})
    dead_letters.discard(other.pk, by="ada", reason="seen")
    assert post(api, f"dead-letter-groups/{mine.group_id}/mute", {"reason": "x"}).status_code == 200
    assert DeadLetterGroup.objects.get().state == "muted"


def test_selected_rows_are_acted_on_and_the_figures_of_replays_told() -> None:
    make_pipeline("invoices")
    api = client_with("transactions:read", "dead_letters:operate", "transactions:operate")
    letters = [failed(uid) for uid in "abc"]
    ids = [str(letter.pk) for letter in letters[:2]]
    dry = post(api, "bulk-operations/dead-letters", {"verb": "replay", "ids": ids, "dry_run": True})
    assert (dry.status_code, dry.json()["would"], BulkOperation.objects.count()) == (200, 2, 0)
    asked = {"verb": "replay", "ids": ids, "canary": 2, "reason": "customer made"}
    told = post(api, "bulk-operations/dead-letters", asked).json()
    assert (told["kind"], told["group"], told["filter"]) == ("dead_letter", None, {"ids": [int(one) for one in ids]})
    assert told["replays"] == dict.fromkeys(("started", "succeeded", "failed", "cancelled", "lost", "running"), 0)
    bulk.advance()
    address = f"/api/v1/bulk-operations/{told['id']}"
    for body in (api.get(address).json(), api.get("/api/v1/bulk-operations").json()["results"][0]):
        assert (body["done"], body["replays"]["started"], body["replays"]["running"]) == (2, 2, 2)
    items = api.get(f"{address}/items").json()["results"]
    assert {(one["label"], one["result"], one["outcome"]) for one in items} == {
        (letter.uid, "done", "running") for letter in letters[:2]
    }
    paused = post(api, "bulk-operations/pipelines", {"verb": "pause", "ids": ["invoices"], "reason": "x"}).json()
    assert (paused["kind"], paused["replays"], paused["rate"]) == ("pipeline", None, 500)
    body = {"verb": "cancel", "filter": {"state": "pending", "pipeline": "invoices"}, "reason": "x", "cap": 1}
    assert post(api, "bulk-operations/transactions", body).json()["expected"] == 2
    narrow = client_of(name="letters alone")
    problem(post(narrow, f"bulk-operations/{paused['id']}/cancel", {"reason": "x"}), 403, "permission_denied")
    assert post(api, f"bulk-operations/{paused['id']}/cancel", {"reason": "x"}).json()["state"] == "cancelled"


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ({"verb": "replay", "ids": ["1"]}, 400, "invalid_request"),
        ({"verb": "replay", "reason": "x"}, 400, "invalid_request"),
        ({"verb": "replay", "ids": ["1"], "filter": {}, "reason": "x"}, 400, "invalid_request"),
        ({"verb": "replay", "ids": [], "reason": "x"}, 400, "invalid_bulk_operation"),
        ({"verb": "replay", "ids": ["1"] * 1001, "reason": "x"}, 400, "invalid_request"),
        ({"verb": "replay", "ids": [1], "reason": "x"}, 400, "invalid_request"),
        ({"verb": "cancel", "filter": {}, "reason": "x"}, 400, "invalid_bulk_operation"),
        ({"verb": "replay", "filter": {"uid": "x"}, "reason": "x"}, 400, "invalid_bulk_operation"),
        ({"verb": "replay", "filter": {"state": "lost"}, "reason": "x"}, 400, "invalid_request"),
        ({"verb": "replay", "ids": ["9" * 30], "reason": "x"}, 404, "selection_unknown"),
        ({"verb": "replay", "ids": ["x' OR 1=1"], "reason": "x"}, 404, "selection_unknown"),
    ],
)
def test_a_selection_that_is_none_is_refused(api: Client, asked: dict[str, Any], status: int, code: str) -> None:
    problem(post(api, "bulk-operations/dead-letters", asked), status, code)
    assert not BulkOperation.objects.exists()


def test_letters_of_other_tenants_are_not_selected_nor_shown() -> None:
    mine, other = called(TENANT, 1), called(OTHER, 2)
    api, platform = client_of(TENANT), client_of(scopes=("platform",), name="ops")
    for body in ({"ids": [str(other.pk)]}, {"ids": [str(mine.pk), str(other.pk)]}, {"filter": {"state": "open"}}):
        refused = post(api, "bulk-operations/dead-letters", {"verb": "discard", "reason": "x", **body})
        problem(refused, 403, "permission_denied")
    groups = {"verb": "discard", "reason": "x", "ids": [str(mine.group_id)]}
    problem(post(api, "bulk-operations/dead-letter-groups", groups), 403, "permission_denied")
    assert post(api, "bulk-operations/dead-letters", {"verb": "discard", "reason": "x", "ids": [str(mine.pk)]}).json()
    theirs = post(
        platform, "bulk-operations/dead-letters", {"verb": "discard", "reason": "x", "ids": [str(other.pk)]}
    ).json()
    problem(api.get(f"/api/v1/bulk-operations/{theirs['id']}"), 403, "permission_denied")
    assert len(api.get("/api/v1/bulk-operations").json()["results"]) == 1
