"""Health, calls and overrides over HTTP: the documents' body, and whose it is."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.database.clock import database_time
from ergon_site.access.models import AuditEntry
from providers import ProviderConnectionError, RetryPolicy, calls
from providers.core.exchange import Who
from providers.models import Gate
from tests.api.api_clients import pointers, post, problem
from tests.factories import ProviderHealthStateFactory, QuotaStateFactory
from tests.providers.scripted_providers import TENANT, WHO, scripted

pytestmark = pytest.mark.django_db

OTHER = "0c6f2a4e-1111-4222-8333-944455556666"
SUMMARY = "/api/v1/provider-health/summary"
METRICS = "/api/v1/provider-metrics"
DOWN = ProviderConnectionError("no route")


def client_of(*tenants: str, scopes: tuple[str, ...] = ("providers:read",), name: str = "dash") -> Client:
    grant = Grant(scopes=scopes, tenants=[UUID(tenant) for tenant in tenants])
    token = clients.create(name, grant, by="tests").token.text
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def api() -> Client:
    return client_of(TENANT)


def summary(api: Client, tenant: str = TENANT) -> Any:
    answer = api.get(SUMMARY, {"tenant_id": tenant})
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_the_body_is_the_documents(api: Client) -> None:
    calls.set_quota(WHO, limit=10000, window=86_400, by="ada")
    provider = scripted({}, {}, DOWN, {})
    for _ in range(3):
        provider.ask()
    told = summary(api)
    assert set(told) == {"tenant_id", "generated_at", "providers"}
    assert told["tenant_id"] == TENANT
    assert abs(datetime.fromisoformat(told["generated_at"]) - datetime.now(UTC)) < timedelta(minutes=1)
    (one,) = told["providers"]
    assert list(one) == [
        *("provider_name", "capability", "breaker_state", "success_rate_1h", "p95_latency_ms_1h", "quota"),
        *("last_error_code", "last_error_at", "last_success_at"),
    ]
    assert (one["provider_name"], one["capability"], one["breaker_state"]) == ("rank", "rank_snapshot", "closed")
    assert one["success_rate_1h"] == 0.75
    assert one["p95_latency_ms_1h"] >= 0
    assert set(one["quota"]) == {"limit_count", "used_count", "remaining_count", "window_end"}
    assert [one["quota"][name] for name in ("limit_count", "used_count", "remaining_count")] == [10000, 3, 9997]
    assert datetime.fromisoformat(one["quota"]["window_end"]).tzinfo is not None
    assert one["last_error_code"] == "connection_error"
    assert datetime.fromisoformat(one["last_success_at"]) >= datetime.fromisoformat(one["last_error_at"])


def test_what_stood_in_is_told_beside_the_documents_body_and_changes_no_rate(api: Client) -> None:
    scripted(DOWN, fallback=lambda *_: {}, retry_policy=RetryPolicy(max_attempts=1)).ask()
    provider = scripted({}, cache_for=3600.0)
    for _ in range(3):
        provider.ask()
    [one] = summary(api)["providers"]
    assert (one["success_rate_1h"], one["last_error_code"]) == (0.5, "connection_error")
    [more] = api.get("/api/v1/providers", {"tenant_id": TENANT}).json()["results"]
    counts = ("attempts_1h", "cache_hits_1h", "stale_answers_1h", "fallbacks_1h", "execution_rate_1h")
    assert [more[name] for name in counts] == [2, 2, 0, 1, 0.5]
    found = api.get(METRICS, {"source": "fallback"}).json()["results"]
    assert [(row["outcome"], row["reason_code"]) for row in found] == [("success", "connection_error")]
    assert api.get(METRICS, {"source": "nowhere"}).status_code == 400


def test_every_provider_with_a_quota_or_health_is_listed_and_no_other(api: Client) -> None:
    assert summary(api)["providers"] == []
    named = {"tenant_id": TENANT, "provider_name": "mail"}
    ProviderHealthStateFactory.create(**named, capability="read", breaker_state="open", success_rate_1h=0.5)
    QuotaStateFactory.create(**named, capability="send", limit_count=5, used_count=2)
    calls.set_quota(Who(OTHER, "rank", "rank_snapshot"), limit=1, window=60, by="ada")
    read, send = summary(api)["providers"]
    assert (read["capability"], read["breaker_state"], read["success_rate_1h"]) == ("read", "open", 0.5)
    assert read["quota"] is None
    assert (send["capability"], send["breaker_state"], send["success_rate_1h"]) == ("send", "closed", None)
    assert send["quota"]["remaining_count"] == 3


def test_the_breaker_is_the_effective_one(api: Client) -> None:
    for _ in range(2):
        scripted(DOWN).ask()
    assert summary(api)["providers"][0]["breaker_state"] == "open"
    Gate.objects.update(open_until=1.0)
    assert summary(api)["providers"][0]["breaker_state"] == "half_open"
    calls.force_closed(WHO, by="ada", reason="x")
    assert summary(api)["providers"][0]["breaker_state"] == "closed"


def test_a_quota_whose_window_is_over_is_as_good_as_new(api: Client) -> None:
    calls.set_quota(WHO, limit=5, window=60, by="ada")
    Gate.objects.update(used=5, window_start=60.0, window_end=120.0)
    assert summary(api)["providers"][0]["quota"]["remaining_count"] == 5


def test_a_client_sees_its_own_tenants_alone_unless_it_is_of_the_platform(api: Client) -> None:
    problem(api.get(SUMMARY, {"tenant_id": OTHER}), 403, "permission_denied")
    platform = client_of(scopes=("providers:read", "platform"), name="platform")
    assert summary(platform, OTHER)["providers"] == []
    assert summary(platform, OTHER.upper())["tenant_id"] == OTHER
    blind = client_of(TENANT, scopes=("transactions:read",), name="blind")
    problem(blind.get(SUMMARY, {"tenant_id": TENANT}), 403, "permission_denied")
    assert Client().get(SUMMARY, {"tenant_id": TENANT}).status_code == 401


@pytest.mark.parametrize(
    "text", [None, "", "acme", TENANT[:-1], f"{TENANT}0", f"{{{TENANT}}}", TENANT.replace("-", ""), "\x00"]
)
def test_a_tenant_that_is_none_is_refused(api: Client, text: str | None) -> None:
    asked = {} if text is None else {"tenant_id": text}
    assert pointers(problem(api.get(SUMMARY, asked), 400, "invalid_request")) == ["/tenant_id"]


def test_calls_are_listed_by_what_they_were(api: Client) -> None:
    scripted(DOWN, {}).ask(correlation_id="order-7")
    scripted({}).ask()
    everything = api.get(METRICS).json()
    assert set(everything) == {"results", "next", "previous"}
    assert [one["outcome"] for one in everything["results"]] == ["success", "success", "retry"]
    assert everything["results"][2]["reason_code"] == "connection_error"
    for asked, count in {
        "provider=rank&capability=rank_snapshot": 3,
        "provider=mail": 0,
        "outcome=retry": 1,
        "reason=connection_error": 1,
        "correlation_id=order-7": 2,
        "created_after=2020-01-01T00:00:00Z": 3,
        "created_before=2020-01-01T00:00:00%2B02:00": 0,
        f"tenant_id={TENANT}": 3,
    }.items():
        assert len(api.get(f"{METRICS}?{asked}").json()["results"]) == count, asked
    first = api.get(METRICS, {"limit": 2}).json()
    assert len(api.get(first["next"]).json()["results"]) == 1
    stranger = client_of(OTHER, name="stranger")
    assert stranger.get(METRICS).json()["results"] == []
    problem(stranger.get(METRICS, {"tenant_id": TENANT}), 403, "permission_denied")


@pytest.mark.parametrize(
    "asked",
    [
        *("outcome=well", "reason=none", "created_after=yesterday", "provider=", "provider=%00", "tenant_id=x"),
        *("created_before=9999-99-99T00:00:00Z", f"correlation_id={'x' * 201}"),
    ],
)
def test_odd_filters_are_refused_not_failed(api: Client, asked: str) -> None:
    problem(api.get(f"{METRICS}?{asked}"), 400, "invalid_request")


def test_operators_override_through_the_api() -> None:
    api = client_of(TENANT, scopes=("providers:read", "providers:operate"))
    address = "providers/rank/rank_snapshot/override"
    body = {"tenant_id": TENANT, "action": "force-open", "reason": "they move", "seconds": 60}
    told = post(api, address, body).json()
    assert (told["breaker_state"], told["override"], told["override_by"]) == ("open", "open", "client:dash")
    assert scripted({}).ask().reason_code == "circuit_open"
    assert post(api, address, {**body, "action": "force-close"}).json()["breaker_state"] == "closed"
    told = post(api, address, {"tenant_id": TENANT, "action": "reset", "reason": "done"}).json()
    assert (told["breaker_state"], told["override"]) == ("closed", None)
    scripted({}).ask()
    (one,) = api.get("/api/v1/providers", {"tenant_id": TENANT}).json()["results"]
    assert (one["execution_rate_1h"], one["attempts_1h"], one["refusals_1h"]) == (1.0, 1, 1)
    entry = AuditEntry.objects.get(action="breaker.force_open")
    assert (entry.actor, entry.reason) == ("client:dash", "they move")


def test_an_override_without_seconds_holds_for_half_an_hour_and_with_null_until_it_is_reset() -> None:
    api = client_of(TENANT, scopes=("providers:operate",))
    address = "providers/rank/rank_snapshot/override"
    body = {"tenant_id": TENANT, "action": "force-open", "reason": "they move"}
    until = datetime.fromisoformat(post(api, address, body).json()["override_until"])
    assert timedelta(minutes=29) < until - database_time() <= timedelta(minutes=30)
    assert post(api, address, {**body, "seconds": None}).json()["override_until"] is None


def test_an_override_that_makes_no_sense_is_refused() -> None:
    api = client_of(TENANT, scopes=("providers:operate",))
    address = "providers/rank/rank_snapshot/override"
    body = {"tenant_id": TENANT, "action": "force-open", "reason": "they move"}
    for change, pointer in (
        ({"action": "slam"}, "/action"),
        ({"action": ["reset"]}, "/action"),
        ({"reason": " "}, "/reason"),
        ({"reason": 7}, "/reason"),
        ({"tenant_id": None}, "/tenant_id"),
        ({"seconds": "60"}, "/seconds"),
        ({"seconds": True}, "/seconds"),
        ({"seconds": 1e300}, "/seconds"),
        ({"extra": 1}, "/extra"),
        ({"action": "reset", "seconds": 5}, "/seconds"),
    ):
        assert pointers(problem(post(api, address, body | change), 400, "invalid_request")) == [pointer]
    for seconds in (0, -1, 10**9):
        assert pointers(problem(post(api, address, body | {"seconds": seconds}), 400, "invalid_order")) == ["/seconds"]
    problem(post(api, address, [body]), 400, "invalid_request")
    problem(post(api, f"providers/{'x' * 101}/send/override", body), 400, "invalid_order")
    problem(post(api, "providers/%00/send/override", body), 400, "invalid_order")
    problem(post(api, address, body | {"tenant_id": OTHER}), 403, "permission_denied")
    problem(post(client_of(TENANT, name="reader"), address, body), 403, "permission_denied")
    assert not Gate.objects.exists()
