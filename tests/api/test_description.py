"""The OpenAPI document tells the truth about all that operators do: it is answered as it says, never by a 5xx."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from engines import schedules
from engines.dead_letters import bulk
from engines.dead_letters.bulk import Terms
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.core.scopes import SCOPES
from providers import calls, policies
from providers.core.exchange import Who
from tests.api.api_clients import failed
from tests.factories import make_pipeline
from tests.facts.drafts import OFFICE, PLANT, make_boundary
from tests.processes import Site

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

TENANT = "7b1e6f0c-0f4e-4c0f-9a52-3f3a0a1e9c11"
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
KEY = "/{provider_name}/{capability}"
OPERATIONS: dict[str, list[tuple[str, Sequence[str]]]] = {
    "pipelines": [("GET", ("", "/{name}")), ("POST", ("", "/{name}/amend", "/{name}/pause", "/{name}/resume"))],
    "schedules": [("GET", ("", "/{name}")), ("POST", ("", "/{name}/pause", "/{name}/resume"))],
    "dead-letters": [("GET", ("", "/{letter_id}"))],
    "dead-letter-groups": [
        ("GET", ("", "/{group_id}")),
        ("POST", [f"/{{group_id}}/{verb}" for verb in ("mute", "resolve", "reopen", "replay", "discard")]),
    ],
    "bulk-operations": [
        ("GET", ("", "/{operation_id}", "/{operation_id}/items")),
        ("POST", [f"/{{operation_id}}/{verb}" for verb in ("pause", "resume", "cancel")]),
        ("POST", ("/transactions", "/dead-letters")),
    ],
    "providers": [("GET", [""]), ("PUT", [f"{KEY}/quota"]), ("DELETE", [f"{KEY}/quota"])],
    "provider-policies": [
        ("GET", ("", KEY)),
        ("POST", (f"{KEY}/versions", f"{KEY}/versions/{{number}}/activate")),
    ],
    "boundaries": [
        ("GET", ("", "/{boundary_id}")),
        ("POST", [f"/{{boundary_id}}/{verb}" for verb in ("open", "close", "limit")]),
    ],
}


@pytest.fixture
def known() -> dict[str, Any]:
    """Names that are known, so that a call comes further than to the door."""
    make_pipeline("nightly")
    make_pipeline("invoices")
    letter = failed("a")
    schedules.create("nightly", schedules.Plan(pipeline="invoices", cron="* * * * *"), by="tests")
    operation = bulk.begin("replay", letter.group_id, Terms(), by="tests", reason="x")
    policies.write("rank", "snapshot", body={}, by="tests", reason="x")
    calls.set_quota(Who(TENANT, "rank", "snapshot"), limit=5, window=60, by="tests")
    names: dict[str, Any] = {"name": "nightly", "provider_name": "rank", "capability": "snapshot", "number": 1}
    numbers = {"letter_id": letter.pk, "group_id": letter.group_id, "operation_id": operation.pk}
    return names | numbers | {"boundary_id": make_boundary().pk}


@pytest.fixture
def headers() -> dict[str, str]:
    grant = Grant(scopes=list(SCOPES), zones=[PLANT], target_zones=[OFFICE], tenants=[UUID(TENANT)], rate=1e9)
    return {"Authorization": f"Bearer {clients.create('ops', grant, by='tests').token.text}"}


@pytest.fixture
def described(site: Site) -> Any:
    return schemathesis.openapi.from_url(f"{site.url}/api/schema/", headers={"Accept": "application/json"})


@pytest.mark.parametrize("noun", OPERATIONS)
def test_whatever_the_document_allows_is_answered_as_it_says(
    described: Any, headers: dict[str, str], known: dict[str, Any], noun: str
) -> None:
    for method, addresses in OPERATIONS[noun]:
        for address in addresses:
            ask_anything(described[f"/api/v1/{noun}{address}"][method], headers, known)


def ask_anything(operation: Any, headers: dict[str, str], known: dict[str, Any]) -> None:
    @settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def call(case: Any) -> None:
        for name in case.path_parameters or {}:
            case.path_parameters[name] = known[name]
        if "tenant_id" in (case.query or {}):
            case.query["tenant_id"] = TENANT
        case.validate_response(case.call(headers={"If-Match": "*", **headers}), checks=CHECKS)

    call()
