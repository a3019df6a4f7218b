"""Least privilege: each address asks for one scope, and that scope opens it."""

import pytest
from django.test import Client

from ergon_site.access.core.scopes import SCOPES
from tests.api.api_clients import client_with
from tests.factories import make_pipeline

pytestmark = [pytest.mark.django_db, pytest.mark.once]

NEEDS = [
    ("GET", "transactions", "transactions:read"),
    ("POST", "transactions", "transactions:submit"),
    ("POST", "transactions/batch", "transactions:submit"),
    ("GET", "transactions/t", "transactions:read"),
    ("GET", "transactions/t/explain", "transactions:read"),
    ("POST", "transactions/t/cancel", "transactions:operate"),
    ("POST", "transactions/t/replay", "transactions:operate"),
    ("GET", "pipelines", "transactions:read"),
    ("POST", "pipelines", "transactions:operate"),
    ("GET", "pipelines/invoices", "transactions:read"),
    ("POST", "pipelines/invoices/amend", "transactions:operate"),
    ("POST", "pipelines/invoices/pause", "transactions:operate"),
    ("POST", "pipelines/invoices/resume", "transactions:operate"),
    ("GET", "schedules", "transactions:read"),
    ("POST", "schedules", "transactions:operate"),
    ("GET", "schedules/nightly", "transactions:read"),
    ("POST", "schedules/nightly/pause", "transactions:operate"),
    ("POST", "schedules/nightly/resume", "transactions:operate"),
    ("GET", "dead-letters", "transactions:read"),
    ("GET", "dead-letters/1", "transactions:read"),
    ("POST", "dead-letters/1/replay", "dead_letters:operate"),
    ("POST", "dead-letters/1/discard", "dead_letters:operate"),
    ("GET", "dead-letter-groups", "transactions:read"),
    ("GET", "dead-letter-groups/1", "transactions:read"),
    ("POST", "dead-letter-groups/1/mute", "dead_letters:operate"),
    ("POST", "dead-letter-groups/1/resolve", "dead_letters:operate"),
    ("POST", "dead-letter-groups/1/reopen", "dead_letters:operate"),
    ("POST", "dead-letter-groups/1/replay", "dead_letters:operate"),
    ("POST", "dead-letter-groups/1/discard", "dead_letters:operate"),
    ("GET", "bulk-operations", "transactions:read"),
    ("GET", "bulk-operations/1", "transactions:read"),
    ("GET", "bulk-operations/1/items", "transactions:read"),
    ("POST", "bulk-operations/transactions", "transactions:operate"),
    ("POST", "bulk-operations/pipelines", "transactions:operate"),
    ("POST", "bulk-operations/schedules", "transactions:operate"),
    ("POST", "bulk-operations/dead-letters", "dead_letters:operate"),
    ("POST", "bulk-operations/dead-letter-groups", "dead_letters:operate"),
    ("POST", "bulk-operations/artifacts", "platform"),
    ("POST", "bulk-operations/1/pause", "dead_letters:operate"),
    ("POST", "bulk-operations/1/resume", "dead_letters:operate"),
    ("POST", "bulk-operations/1/cancel", "dead_letters:operate"),
    ("GET", "policies", "policies:read"),
    ("GET", "policies/default", "policies:read"),
    ("POST", "policies/default/rehearsals", "policies:write"),
    ("GET", "policies/default/rehearsals/1", "policies:read"),
    ("POST", "policies/default/versions", "policies:write"),
    ("POST", "policies/default/versions/1/activate", "policies:write"),
    ("GET", "provider-policies", "policies:read"),
    ("GET", "provider-policies/rank/snapshot", "policies:read"),
    ("POST", "provider-policies/rank/snapshot/versions", "policies:write"),
    ("POST", "provider-policies/rank/snapshot/versions/1/activate", "policies:write"),
    ("PUT", "providers/rank/snapshot/quota", "providers:operate"),
    ("DELETE", "providers/rank/snapshot/quota", "providers:operate"),
]
# A scope may be asked for by what answers HEAD as well.
NEEDS += [("HEAD", address, scope) for method, address, scope in NEEDS if method == "GET"]


@pytest.mark.parametrize(("method", "address", "scope"), NEEDS)
def test_a_client_with_every_other_scope_is_kept_out(method: str, address: str, scope: str) -> None:
    api = client_with(*(set(SCOPES) - {scope}))
    answer = api.generic(method, f"/api/v1/{address}", "{}", content_type="application/json")
    assert answer.status_code == 403
    assert method == "HEAD" or scope in answer.json()["detail"]


@pytest.mark.parametrize(("method", "address", "scope"), NEEDS)
def test_a_client_with_that_scope_alone_is_let_in(method: str, address: str, scope: str) -> None:
    make_pipeline("invoices")
    answer = client_with(scope).generic(method, f"/api/v1/{address}", "{}", content_type="application/json")
    assert answer.status_code in {200, 400, 404, 428}


def test_nobody_gets_in_without_a_token(client: Client) -> None:
    for method, address, _ in NEEDS:
        answer = client.generic(method, f"/api/v1/{address}", "{}", content_type="application/json")
        assert answer.status_code == 401
