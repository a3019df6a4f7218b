"""Attention: causes before their consequences, acts beside them, acknowledgements, and where activity leads to."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext

from engines import pipelines, transactions
from engines.dead_letters import bulk
from engines.dead_letters.bulk import Terms
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.console.targets import addresses
from ergon_site.access.models import ApiClient, AuditEntry
from ergon_site.console import console
from facts import provisioning
from providers import calls
from providers.models import Gate
from tests.console import records
from tests.factories import make_pipeline
from tests.facts.drafts import make_boundary
from tests.providers.scripted_providers import WHO

pytestmark = pytest.mark.django_db


def asked_by(user: object) -> HttpRequest:
    request = RequestFactory().get("/")
    request.user = user  # type: ignore[assignment]
    return request


def test_audit_targets_of_every_app_lead_to_their_pages_by_one_statement(
    administrator: User, hire: Callable[[str], User]
) -> None:
    console()
    orders = make_pipeline("orders")
    letter, left = records.fail(orders, {}), records.fail(orders, {})
    pipelines.pause("orders", by="ada", reason="")

    new = transactions.replay(letter.uid, by="ada", reason="")
    transactions.cancel(new.id, by="ada", reason="")
    operation = bulk.begin("discard", left.group_id, Terms(), by="ada", reason="")
    calls.force_open(WHO, by="ada", reason="moving")
    boundary = make_boundary()
    provisioning.close_gate(str(boundary.from_zone), str(boundary.to_zone), by="ada", reason="moving")
    clients.create("press", Grant(scopes=["metrics:read"]), by="ada")
    targets = {entry.target for entry in AuditEntry.objects.all()}
    client, gate = ApiClient.objects.get(), Gate.objects.get()
    engines = "/admin/engines/"
    with CaptureQueriesContext(connection) as queries:
        found = addresses(asked_by(administrator), [*targets, "pipeline gone", "dead letter 99999999999999999999 of x"])
    assert len(queries) == 1
    assert set(found) == targets - {"facts"}
    assert found["pipeline orders"] == f"{engines}pipeline/{orders.pk}/change/"
    transaction = f"{engines}transactionrecord/{letter.transaction_id}/change/"
    assert found[f"transaction {letter.uid}"] == transaction
    assert found[f"bulk operation {operation.pk}"] == f"{engines}bulkoperation/{operation.pk}/change/"
    assert found[str(gate)] == f"/admin/providers/gate/{gate.pk}/change/"
    assert found[f"boundary {boundary}"] == f"/admin/facts/boundary/{boundary.pk}/change/"
    assert found["API client press"] == f"/admin/access/apiclient/{client.pk}/change/"
    assert set(found) - set(addresses(asked_by(hire("viewer")), targets)) == {"API client press"}
