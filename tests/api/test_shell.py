"""What stands around the API: schema, docs, pages, probes, metrics."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from ergon_site.access import audit, middleware
from ergon_site.access.api import schema, throttling
from ergon_site.access.api.schema import SchemaView
from ergon_site.access.core.scopes import SCOPES
from tests.api.api_clients import client_with, problem


@pytest.fixture(autouse=True)
def _nobody_was_throttled() -> None:
    throttling.forget()


@pytest.fixture
def api(token: str) -> Client:
    return Client(headers={"Authorization": f"Bearer {token}"})


def test_the_schema_is_openapi_3_1_and_tells_of_tokens_and_problems(client: Client) -> None:
    document = client.get("/api/schema/", headers={"Accept": "application/json"}).json()
    assert document["openapi"].startswith("3.1")
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    operation = document["paths"]["/api/v1/client"]["get"]
    assert operation["responses"]["401"]["content"]["application/problem+json"]
    assert {"400", "403", "404", "405", "406", "429", "500"} <= set(operation["responses"])


def test_the_schema_is_made_once_in_each_form_whoever_asks_and_however(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(SchemaGenerator):
        def get_schema(self, *args: Any, **kwargs: Any) -> Any:
            made.append(args)
            return super().get_schema(*args, **kwargs)  # type: ignore[no-untyped-call]

    made: list[Any] = []
    monkeypatch.setattr(SchemaView, "generator_class", Counting)
    schema.forget()
    for number in range(20):
        client.get(f"/api/schema/?version={number}&lang=de", headers={"Accept": "application/json"})
        client.get("/api/schema/", headers={"Accept": f"text/x{number}, */*"})
    assert len(made) == 2
    answer = client.get("/api/schema/?format=json")
    assert answer["Content-Type"] == "application/vnd.oai.openapi+json"
    assert client.head("/api/schema/").status_code == 200


def test_calls_of_the_api_pass_by_sessions_and_have_the_same_headers_as_pages(
    api: Client, browse: Client, client: Client
) -> None:
    page, answer = client.get("/admin/login/"), api.get("/api/v1/client")
    for name in ("Content-Security-Policy", "X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy"):
        assert answer.headers[name] == page.headers[name]
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert not answer.cookies
    # Whoever is logged in to the console is nobody here.
    problem(browse.get("/api/v1/client"), 401, "unauthenticated")


@pytest.mark.parametrize("accept", ["", "*/*", "application/json", "application/json;q=0.5, */*", "text/html, */*;q=1"])
def test_whoever_takes_json_gets_it(api: Client, accept: str) -> None:
    answer = api.get("/api/v1/client", headers={"Accept": accept} if accept else {})
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")


@pytest.mark.parametrize("asked", [{"headers": {"Accept": "text/html"}}, {"query_params": {"format": "xml"}}])
def test_whoever_takes_no_json_is_refused(api: Client, asked: dict[str, Any]) -> None:
    assert api.get("/api/v1/client", **asked).status_code in {404, 406}


def test_the_docs_page_loads_nothing_from_elsewhere(client: Client) -> None:
    page = client.get("/api/docs/").content.decode()
    assert "swagger-ui" in page
    assert "//cdn" not in page
    assert "https://" not in page
    assert 'href="/admin/"' in page, "a way back to the console"


def test_every_operation_has_a_summary_of_its_own(client: Client) -> None:
    paths = client.get("/api/schema/?format=json").json()["paths"]
    summaries = {
        f"{method} {path}": one.get("summary") for path, found in paths.items() for method, one in found.items()
    }
    assert [operation for operation, summary in summaries.items() if not summary] == []
    assert len(set(summaries.values())) == len(summaries)
    assert summaries["get /api/v1/attention"] == "List the items that need attention"
    assert summaries["post /api/v1/bulk-operations/artifacts"] == "Start a bulk operation on artifacts"
    assert summaries["post /api/v1/policies/{name}/rehearsals"] == "Rehearse a policy"
    assert summaries["get /api/v1/policies/{name}"] == "Show a policy"


def test_lists_come_in_pages_by_cursor_newest_first(api: Client) -> None:
    for number in range(5):
        audit.record(actor="ada", action="test", target=f"thing {number}")
    first = api.get("/api/v1/audit-entries?limit=3").json()
    second = api.get(first["next"]).json()
    targets = [entry["target"] for entry in first["results"] + second["results"]]
    assert targets[:5] == [f"thing {number}" for number in (4, 3, 2, 1, 0)]
    assert set(first) == {"results", "next", "previous"}
    assert first["previous"] is None
    assert api.get(second["previous"]).json()["results"] == first["results"]


def test_a_wrong_cursor_is_refused(api: Client) -> None:
    answer = api.get("/api/v1/audit-entries?cursor=nonsense")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


def test_alive_and_ready_are_open_to_all(client: Client, db: None) -> None:
    assert client.get("/livez").json() == {"status": "alive"}
    ready = client.get("/readyz")
    assert ready.json() == {"status": "ready", "checks": {"database": "ok", "migrations": "ok"}}


@pytest.mark.parametrize("probe", ["/livez", "/readyz", "/metrics"])
def test_probes_answer_whatever_host_they_are_called_by(client: Client, db: None, settings: Any, probe: str) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert client.get(probe, headers={"Host": "10.1.2.3:8000"}).status_code == 200
    refused = client.post(probe)
    assert (refused.status_code, refused.json()["code"]) == (405, "method_not_allowed")


def test_not_ready_while_a_migration_waits(client: Client, db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(name) FROM django_migrations WHERE app = 'access'")
        cursor.execute("DELETE FROM django_migrations WHERE app = 'access' AND name = %s", cursor.fetchone())
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["migrations"] == "1 waiting: run the command migrate"


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("192.0.2.7", {}, 401),
        ("127.0.0.1", {"X-Forwarded-For": "192.0.2.7"}, 401),
        ("", {}, 401),
        ("192.0.2.7", {"Authorization": "Bearer ergon_wrong_token"}, 401),
    ],
)
def test_metrics_are_for_this_host(
    client: Client, db: None, address: str, headers: dict[str, str], status: int
) -> None:
    assert client.get("/metrics", REMOTE_ADDR=address, headers=headers).status_code == status


@pytest.mark.django_db
def test_metrics_are_for_clients_with_their_scope() -> None:
    answer = client_with("metrics:read").get("/metrics", REMOTE_ADDR="192.0.2.7")
    assert answer.status_code == 200
    assert b"python_info" in answer.content
    others = client_with(*(set(SCOPES) - {"metrics:read"}), name="others")
    refused = problem(others.get("/metrics", REMOTE_ADDR="192.0.2.7"), 403, "permission_denied")
    assert refused["detail"] == "This client lacks the scope metrics:read."


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["127.0.0.1", "192.0.2.7"])
def test_metrics_are_throttled(settings: Any, address: str) -> None:
    settings.ERGON_METRICS_RATE = 1 / 3600
    scraper = client_with("metrics:read")
    assert scraper.get("/metrics", REMOTE_ADDR=address).status_code == 200
    refused = scraper.get("/metrics", REMOTE_ADDR=address)
    problem(refused, 429, "throttled")
    assert 1 < int(refused.headers["Retry-After"]) <= 3600


def test_an_address_that_is_none_is_not_this_host(client: Client, db: None) -> None:
    assert client.get("/metrics", REMOTE_ADDR="unix:").status_code == 401


def test_scopes_are_those_of_the_specification() -> None:
    groups = {
        "facts": {"append", "fetch"},
        "objects": {"put", "get"},
        "transactions": {"submit", "read", "operate"},
        "dead_letters": {"operate"},
        "policies": {"read", "write"},
        "providers": {"read", "operate"},
        "metrics": {"read"},
    }
    expected = {f"{noun}:{verb}" for noun, verbs in groups.items() for verb in verbs} | {"platform"}
    assert set(SCOPES) == expected


def test_a_method_that_a_caller_makes_up_is_no_label_of_its_own(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = InMemoryMetricReader()
    # The API takes a provider once per process and for good; this test wants one for a while.
    monkeypatch.setattr(middleware, "api_duration", MeterProvider([reader]).get_meter("tests").create_histogram("d"))
    for number in range(50):
        assert client.generic(f"A{number}", "/api/v1/nowhere").status_code == 404
    client.get("/api/v1/nowhere")
    told: Any = reader.get_metrics_data()
    [scope] = told.resource_metrics[0].scope_metrics
    counted = {point.attributes["method"]: point.count for point in scope.metrics[0].data.data_points}
    assert counted == {"_OTHER": 50, "GET": 1}
