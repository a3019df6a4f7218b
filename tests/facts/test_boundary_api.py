"""Gates, ceilings and retention over HTTP and from a shell: the console's verbs, with the same audit line."""

from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.models import AuditEntry
from facts import ledger
from facts.models import Boundary
from tests.api.api_clients import pointers, post, problem
from tests.commands import ask, run
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary

pytestmark = pytest.mark.django_db

OPERATE = ("transactions:read", "transactions:operate")


def client_for(*zones: str, scopes: tuple[str, ...] = OPERATE, name: str = "ops") -> Client:
    token = clients.create(name, Grant(scopes=scopes, zones=zones), by="tests").token.text
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def boundary() -> Boundary:
    return make_boundary()


@pytest.fixture
def api() -> Client:
    return client_for(OFFICE)


def test_boundaries_are_listed_and_told(api: Client, boundary: Boundary) -> None:
    ledger.append_many([draft(number) for number in range(3)])
    page = api.get("/api/v1/boundaries").json()
    assert set(page) == {"results", "next", "previous"}
    [told] = page["results"]
    assert (told["from_zone"], told["to_zone"], told["gate"], told["backlog"]) == (PLANT, OFFICE, "normal", 3)
    assert (told["row_ceiling"], told["keep_days"], told["is_remote"]) == (None, 30, False)
    assert api.get(f"/api/v1/boundaries/{boundary.pk}").json() == told
    assert "source_token_file" not in told


def test_a_gate_is_closed_and_opened(api: Client, boundary: Boundary) -> None:
    address = f"boundaries/{boundary.pk}"
    told = post(api, f"{address}/close", {"reason": "the link is mended"}).json()
    assert (told["gate"], told["gate_by"], told["gate_reason"]) == ("autonomous", "client:ops", "the link is mended")
    told = post(api, f"{address}/open", {"reason": "mended"}).json()
    assert (told["gate"], told["gate_by"]) == ("normal", "")
    entries = AuditEntry.objects.filter(action__in=["boundary.open", "boundary.close"]).order_by("id")
    assert [(entry.actor, entry.action, entry.reason) for entry in entries] == [
        ("client:ops", "boundary.close", "the link is mended"),
        ("client:ops", "boundary.open", "mended"),
    ]


def test_limits_are_set_one_by_one_and_taken_back(api: Client, boundary: Boundary) -> None:
    address = f"boundaries/{boundary.pk}/limit"
    told = post(api, address, {"row_ceiling": 5, "byte_ceiling": 9999, "reason": "a small disk"}).json()
    assert (told["row_ceiling"], told["byte_ceiling"], told["keep_days"]) == (5, 9999, 30)
    told = post(api, address, {"row_ceiling": None, "keep_days": 7, "reason": "a large one"}).json()
    assert (told["row_ceiling"], told["byte_ceiling"], told["keep_days"]) == (None, 9999, 7)
    entry = AuditEntry.objects.filter(action="boundary.limit").latest("id")
    assert (entry.actor, entry.reason) == ("client:ops", "a large one")
    assert (entry.before or {})["row_ceiling"] == 5


@pytest.mark.parametrize(
    ("limits", "pointer"),
    [
        ({"row_ceiling": 0}, "/row_ceiling"),
        ({"byte_ceiling": 2**53 + 1}, "/byte_ceiling"),
        ({"keep_days": None}, "/keep_days"),
        ({"keep_days": 36_501}, "/keep_days"),
        ({"ceiling": 1}, "/ceiling"),
        ({"reason": ""}, "/reason"),
    ],
)
def test_limits_out_of_bounds_are_pointed_at(
    api: Client, boundary: Boundary, limits: dict[str, Any], pointer: str
) -> None:
    answer = post(api, f"boundaries/{boundary.pk}/limit", {"reason": "x", **limits})
    assert pointers(problem(answer, 400, "invalid_request")) == [pointer]


def test_a_retention_that_no_page_takes_is_not_kept_on_by_silence(api: Client) -> None:
    boundary = make_boundary()
    Boundary.objects.update(keep_days=0)
    answer = post(api, f"boundaries/{boundary.pk}/limit", {"row_ceiling": 5, "reason": "x"})
    assert pointers(problem(answer, 400, "invalid_provisioning")) == ["/keep_days"]


def test_a_boundary_is_operated_by_those_who_speak_for_a_side(boundary: Boundary) -> None:
    stranger = client_for("Harbour", name="stranger")
    assert stranger.get("/api/v1/boundaries").json()["results"] == []
    problem(stranger.get(f"/api/v1/boundaries/{boundary.pk}"), 403, "zone_not_authorized")
    for verb in ("open", "close", "limit"):
        problem(post(stranger, f"boundaries/{boundary.pk}/{verb}", {"reason": "x"}), 403, "zone_not_authorized")
    platform = client_for(scopes=(*OPERATE, "platform"), name="platform")
    assert len(platform.get("/api/v1/boundaries").json()["results"]) == 1
    assert post(platform, f"boundaries/{boundary.pk}/close", {"reason": "x"}).status_code == 200


def test_sending_facts_is_not_operating(boundary: Boundary) -> None:
    sender = client_for(PLANT, scopes=(), name="sender")
    assert sender.get("/api/v1/boundaries").status_code == 403
    for verb in ("open", "close", "limit"):
        assert post(sender, f"boundaries/{boundary.pk}/{verb}", {"reason": "x"}).status_code == 403


@pytest.mark.parametrize("number", [7, 10**18, 10**30])
def test_a_boundary_that_is_not_there_is_said_to_be_so(api: Client, number: int) -> None:
    problem(api.get(f"/api/v1/boundaries/{number}"), 404, "unknown_boundary")
    for verb in ("open", "close", "limit"):
        problem(post(api, f"boundaries/{number}/{verb}", {"reason": "x"}), 404, "unknown_boundary")


def test_limits_are_set_from_a_shell(boundary: Boundary) -> None:
    told = ask("boundary", "limit", PLANT, OFFICE, "--row-ceiling", "5", "--keep-days", "7", "--reason", "small")
    assert (told["row_ceiling"], told["byte_ceiling"], told["keep_days"]) == (5, None, 7)
    assert "5 facts, 99 bytes" in run("boundary", "limit", PLANT, OFFICE, "--byte-ceiling", "99", "--reason", "x")
    told = ask("boundary", "limit", PLANT, OFFICE, "--row-ceiling", "0", "--reason", "large")
    assert (told["row_ceiling"], told["byte_ceiling"], told["keep_days"]) == (None, 99, 7)
    entry = AuditEntry.objects.filter(action="boundary.limit").latest("id")
    assert (entry.actor.partition(":")[0], entry.reason) == ("command", "large")
    with pytest.raises(CommandError, match="there is no zone named 'Harbour'"):
        run("boundary", "limit", "Harbour", OFFICE, "--reason", "x")
