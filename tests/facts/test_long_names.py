"""Zones may have long names: a boundary between two of them is made, operated and retired like any other."""

import pytest
from django.test import Client

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.models import AuditEntry
from facts import ledger, provisioning, retiring
from facts.models import Boundary
from tests.facts.drafts import draft, make_boundary

pytestmark = pytest.mark.django_db

HERE, THERE = "h" * 256, "t" * 256
WHY = {"by": "ada", "reason": "asked for"}


def test_a_boundary_between_zones_with_long_names_is_made_operated_and_retired() -> None:
    make_boundary(HERE, THERE)
    ledger.append(draft(from_zone=HERE, to_zone=THERE))
    provisioning.create_consumer("reader", HERE, THERE, **WHY)
    provisioning.close_gate(HERE, THERE, **WHY)
    provisioning.open_gate(HERE, THERE, **WHY)
    provisioning.limit(HERE, THERE, provisioning.Allowance(row_ceiling=10), **WHY)
    retiring.retire_consumer("reader", **WHY)
    lengths = [len(target) for target in AuditEntry.objects.values_list("target", flat=True)]
    assert max(lengths) == 300


def test_its_pages_and_its_place_in_the_api_are_shown(browse: Client) -> None:
    boundary = make_boundary(HERE, THERE)
    ledger.append(draft(from_zone=HERE, to_zone=THERE))
    for address in (f"boundary/{boundary.pk}/change/", f"fact/{boundary.pk}-0/change/", "boundary/", "fact/", "zone/"):
        assert HERE in browse.get(f"/admin/facts/{address}").content.decode(), address
    scopes = ["transactions:read", "transactions:operate", "facts:append"]
    token = clients.create("mes", Grant(scopes=scopes, zones=[HERE], target_zones=[THERE]), by="tests").token.text
    api = Client(headers={"Authorization": f"Bearer {token}"}, content_type="application/json")
    assert api.get(f"/api/v1/boundaries/{boundary.pk}").status_code == 200
    for verb in ("close", "open"):
        answer = api.post(f"/api/v1/boundaries/{boundary.pk}/{verb}", {"reason": "x"}, content_type="application/json")
        assert answer.status_code == 200, answer.content
    assert Boundary.objects.get().gate == "normal"


def test_a_boundary_with_long_names_is_made_in_the_console(browse: Client) -> None:
    for name in (HERE, THERE):
        provisioning.create_zone(name, by="tests")
    form = {"from_zone": HERE, "to_zone": THERE, "keep_days": "30", "reason": "asked for"}
    browse.post("/admin/facts/boundary/add/", form)
    assert str(Boundary.objects.get()) == f"{HERE} → {THERE}"
