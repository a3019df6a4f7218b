"""The OpenAPI document tells the truth about the boundary: what it allows is answered as it says, never by a 5xx."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from facts import ledger, provisioning
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.processes import Site

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
OPERATIONS = [
    ("POST", "/api/v1/facts"),
    ("POST", "/api/v1/facts/batch"),
    ("GET", "/api/v1/facts/{message_id}"),
    ("GET", "/api/v1/consumers/{name}"),
    ("GET", "/api/v1/consumers/{name}/facts"),
    ("POST", "/api/v1/consumers/{name}/confirm"),
]


@pytest.fixture
def headers() -> dict[str, str]:
    make_boundary()
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    ledger.append_many([draft(number) for number in range(3)])
    grant = Grant(zones=[PLANT], target_zones=[OFFICE], consumers=["erp"], rate=1e9)
    return {"Authorization": f"Bearer {clients.create('press', grant, by='tests').token.text}"}


@pytest.fixture
def described(site: Site) -> Any:
    return schemathesis.openapi.from_url(f"{site.url}/api/schema/", headers={"Accept": "application/json"})


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
@pytest.mark.parametrize("is_at_home", [True, False], ids=["own names", "any names"])
def test_whatever_the_document_allows_is_answered_as_it_says(
    described: Any, headers: dict[str, str], method: str, path: str, *, is_at_home: bool
) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=described[path][method].as_strategy())
    def call(case: Any) -> None:
        if is_at_home:
            _bring_home(case)
        if (case.query or {}).get("wait") is not None:
            case.query["wait"] = 0
        case.validate_response(case.call(headers=headers), checks=CHECKS)

    call()


def _bring_home(case: Any) -> None:
    """Names that are known, so that a call comes further than to the door."""
    if "name" in (case.path_parameters or {}):
        case.path_parameters["name"] = "erp"
    if "message_id" in (case.path_parameters or {}):
        case.query = {"from_zone": PLANT, "to_zone": OFFICE}
    body = case.body if isinstance(case.body, dict) else {}
    for fact in body.get("facts", [body]):
        if isinstance(fact, dict) and isinstance(fact.get("envelope"), dict):
            fact["envelope"] |= {"from_zone": PLANT, "to_zone": OFFICE}
