"""Groups of dead letters and bulk operations of other tenants are not for a client's eyes."""

from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils.dateparse import parse_datetime

from engines import dead_letters
from engines.core.states import GroupState
from engines.dead_letters import DeadLetterDraft, bulk
from engines.dead_letters.bulk import Selection, Terms
from engines.models import BulkOperation, DeadLetter, DeadLetterGroup
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from tests.api.api_clients import failed, post, problem
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

MINE, OTHER = "7b1e6f0c-0f4e-4c0f-9a52-3f3a0a1e9c11", "0c6f2a4e-1111-4222-8333-944455556666"


def called(tenant: str, message: str = "gone") -> DeadLetter:
    """A dead letter of a provider."""
    draft: dict[str, Any] = {"step": "call", "category": "SYSTEM", "error_type": "Down", "message": message}
    details = {"tenant_id": tenant, "task_name": "rank", "request": {}}
    return dead_letters.record([DeadLetterDraft(source="rank/snapshot", uid="call", details=details, **draft)])[0]


def discard_all(letter: DeadLetter, by: str = "client:others") -> BulkOperation:
    operation = bulk.begin("discard", letter.group_id, Terms(rate=bulk.AT_ONCE), by=by, reason="their reason")
    BulkOperation.objects.update(moved_at="2020-01-01T00:00:00Z")
    bulk.advance()
    return operation


def mute(selection: Selection, by: str = "client:others") -> BulkOperation:
    operation = bulk.begin_selected("mute", selection, Terms(rate=bulk.AT_ONCE), by=by, reason="their reason")
    BulkOperation.objects.update(moved_at="2020-01-01T00:00:00Z")
    bulk.advance()
    return operation


@pytest.fixture
def api() -> Client:
    return client_of(MINE, name="mine")


@pytest.fixture
def platform() -> Client:
    return client_of(scopes=("platform",), name="ops")


def client_of(*tenants: str, name: str, scopes: tuple[str, ...] = ()) -> Client:
    scopes = ("transactions:read", "dead_letters:operate", *scopes)
    token = clients.create(name, Grant(scopes=scopes, tenants=[UUID(one) for one in tenants]), by="tests").token.text
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {token}"})


def ids(api: Client, address: str) -> list[int]:
    return [one["id"] for one in api.get(f"/api/v1/{address}").json()["results"]]


def test_groups_of_other_tenants_are_not_shown(api: Client, platform: Client) -> None:
    mine, other = called(MINE, "no such key"), called(OTHER, "account of Eve is closed")
    assert ids(api, "dead-letter-groups") == [mine.group_id]
    assert set(ids(platform, "dead-letter-groups")) == {mine.group_id, other.group_id}
    problem(api.get(f"/api/v1/dead-letter-groups/{other.group_id}"), 403, "permission_denied")
    assert api.get(f"/api/v1/dead-letter-groups/{mine.group_id}").json()["message"] == "no such key"


def test_what_is_settled_in_a_group_of_other_tenants_does_not_open_it(api: Client) -> None:
    other = called(OTHER)
    dead_letters.discard(other.pk, by="ada", reason="seen")
    for verb in ("mute", "resolve", "reopen", "replay", "discard"):
        answer = post(api, f"dead-letter-groups/{other.group_id}/{verb}", {"reason": "x"})
        problem(answer, 403, "permission_denied")


def test_a_group_that_several_tenants_share_tells_each_of_its_own(api: Client, platform: Client) -> None:
    mine = [called(MINE), called(MINE)]
    dead_letters.discard(mine[0].pk, by="ada", reason="seen")
    others = [called(OTHER) for _ in range(3)]
    dead_letters.decide(mine[0].group_id, GroupState.MUTED, by="client:others", reason="their reason")
    address = f"/api/v1/dead-letter-groups/{mine[0].group_id}"
    for told in (api.get(address).json(), *api.get("/api/v1/dead-letter-groups").json()["results"]):
        assert (told["open_count"], told["total"], told["state"]) == (1, 2, "muted")
        assert parse_datetime(told["last_seen_at"]) == DeadLetter.objects.get(pk=mine[1].pk).created_at
        assert (told["decided_by"], told["decision_reason"]) == ("", "")
    whole = platform.get(address).json()
    assert (whole["open_count"], whole["total"], whole["decision_reason"]) == (4, 5, "their reason")
    for letter in others:
        dead_letters.discard(letter.pk, by="ada", reason="seen")
    assert post(api, f"dead-letter-groups/{mine[0].group_id}/reopen", {"reason": "x"}).json()["total"] == 2
    assert DeadLetterGroup.objects.get().total == 5


def test_bulk_operations_on_dead_letters_of_other_tenants_are_not_shown(api: Client, platform: Client) -> None:
    mine, other, shared = called(MINE, "a"), called(OTHER, "b"), called(MINE, "c")
    called(OTHER, "c")
    own, theirs, both = discard_all(mine), discard_all(other), discard_all(shared)
    assert ids(api, "bulk-operations") == [own.pk]
    assert ids(platform, "bulk-operations") == [both.pk, theirs.pk, own.pk]
    assert len(ids(api, f"bulk-operations/{own.pk}/items")) == 1
    for operation in (theirs, both):
        for address in ("", "/items"):
            answer = api.get(f"/api/v1/bulk-operations/{operation.pk}{address}")
            assert "their reason" not in problem(answer, 403, "permission_denied")["detail"]
        for verb in ("pause", "resume", "cancel"):
            problem(post(api, f"bulk-operations/{operation.pk}/{verb}", {"reason": "x"}), 403, "permission_denied")


def test_bulk_operations_on_selected_groups_are_not_shown_to_others(api: Client, platform: Client) -> None:
    keys = (called(OTHER, "account of Eve is closed").group_id, called(OTHER, "account of Bob is closed").group_id)
    named = Selection(kind="dead_letter_group", keys=keys)
    found = Selection(kind="dead_letter_group", where={"source": "rank/snapshot"})
    theirs = [mute(named), mute(found)]
    assert ids(api, "bulk-operations") == []
    assert len(ids(platform, "bulk-operations")) == 2
    for operation in theirs:
        assert len(ids(platform, f"bulk-operations/{operation.pk}/items")) == 2
        for address in ("", "/items"):
            answer = api.get(f"/api/v1/bulk-operations/{operation.pk}{address}")
            assert "their reason" not in problem(answer, 403, "permission_denied")["detail"]
        for verb in ("pause", "resume", "cancel"):
            problem(post(api, f"bulk-operations/{operation.pk}/{verb}", {"reason": "x"}), 403, "permission_denied")


def test_a_client_sees_those_groups_of_its_operation_that_it_may_see(api: Client) -> None:
    keys = (called(MINE, "a").group_id, called(OTHER, "b").group_id)
    operation = mute(Selection(kind="dead_letter_group", keys=keys), by="client:mine")
    [item] = api.get(f"/api/v1/bulk-operations/{operation.pk}/items").json()["results"]
    assert item["target"] == keys[0]


def test_a_client_sees_the_operation_that_it_has_begun_and_its_own_items(api: Client) -> None:
    mine, other = called(MINE), called(OTHER)
    dead_letters.discard(other.pk, by="ada", reason="seen")
    begun = post(api, f"dead-letter-groups/{mine.group_id}/discard", {"reason": "x"}).json()
    called(OTHER)
    assert ids(api, "bulk-operations") == [begun["id"]]
    assert api.get(f"/api/v1/bulk-operations/{begun['id']}").json()["expected"] == 1


def test_groups_and_operations_of_pipelines_are_of_no_tenant(api: Client) -> None:
    make_pipeline("invoices")
    letter = failed("a")
    operation = discard_all(letter)
    DeadLetter.objects.filter(pk=letter.pk).update(details={})
    assert ids(api, "dead-letter-groups") == [letter.group_id]
    assert ids(api, "bulk-operations") == [operation.pk]
    assert len(ids(api, f"bulk-operations/{operation.pk}/items")) == 1
    assert api.get(f"/api/v1/dead-letter-groups/{letter.group_id}").json()["total"] == 1
