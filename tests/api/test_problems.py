"""Every error of the API is a problem+json with a stable code."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from ergon_site.access import clients
from ergon_site.access.api import throttling
from ergon_site.access.clients import Grant

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.api.failing_urls")]


@pytest.fixture
def api(token: str) -> Client:
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def stranger() -> Client:
    return Client(raise_request_exception=False)


@pytest.fixture(autouse=True)
def _forgotten_callers() -> Iterator[None]:
    yield
    throttling.forget()


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, f"urn:ergon:problem:{code}")
    assert body["title"]
    assert body["detail"]
    return body


def post(client: Client, body: bytes | str, media: str = "application/json") -> Any:
    return client.post("/api/v1/echo", body, content_type=media)


def test_401_without_a_token_names_the_scheme(stranger: Client) -> None:
    answer = stranger.get("/api/v1/client")
    problem(answer, 401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="ergon"'


def test_401_with_a_wrong_token(stranger: Client) -> None:
    answer = stranger.get("/api/v1/client", headers={"Authorization": "Bearer ergon_wrong_token"})
    problem(answer, 401, "unauthenticated")


def test_403_names_the_missing_scope(stranger: Client) -> None:
    token = clients.create("small", Grant(scopes=["policies:read"]), by="tests").token
    answer = stranger.get("/api/v1/audit-entries", headers={"Authorization": f"Bearer {token.text}"})
    assert "platform" in problem(answer, 403, "permission_denied")["detail"]


def test_403_from_anywhere_below_the_api(api: Client) -> None:
    problem(api.get("/api/v1/deny"), 403, "permission_denied")


def test_404_for_an_address_that_does_not_exist(api: Client, stranger: Client) -> None:
    problem(api.get("/api/v1/nothing"), 404, "not_found")
    problem(stranger.get("/api/nothing"), 404, "not_found")


def test_405_names_the_methods_that_exist(api: Client) -> None:
    answer = api.delete("/api/v1/client")
    problem(answer, 405, "method_not_allowed")
    assert "GET" in answer.headers["Allow"]


def test_406_when_json_is_not_acceptable(api: Client) -> None:
    problem(api.get("/api/v1/client", headers={"Accept": "text/csv"}), 406, "not_acceptable")


def test_413_when_the_body_is_too_large(api: Client) -> None:
    assert "1,000 bytes" in problem(post(api, b" " * 1001), 413, "payload_too_large")["detail"]


def test_415_when_the_body_is_not_json(api: Client) -> None:
    problem(post(api, "name=x", media="text/plain"), 415, "unsupported_media_type")


def test_429_says_when_to_come_back(stranger: Client) -> None:
    token = clients.create("slow", Grant(scopes=["platform"], rate=0.01), by="tests").token
    headers = {"Authorization": f"Bearer {token.text}"}
    assert stranger.get("/api/v1/client", headers=headers).status_code == 200
    answer = stranger.get("/api/v1/client", headers=headers)
    problem(answer, 429, "throttled")
    assert 0 < int(answer.headers["Retry-After"]) <= 100


def test_429_for_an_address_that_guesses_tokens(stranger: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # At the real rate, how many calls it takes would depend on how fast this machine is.
    monkeypatch.setattr(throttling, "WRONG_TOKENS_PER_SECOND", 0.01)
    headers = {"Authorization": "Bearer ergon_wrong_token"}
    answers = [stranger.get("/api/v1/client", headers=headers) for _ in range(3)]
    problem(answers[0], 401, "unauthenticated")
    problem(answers[-1], 429, "throttled")


def test_problems_are_json_where_the_answer_would_not_be(stranger: Client) -> None:
    problem(stranger.delete("/api/schema/"), 405, "method_not_allowed")


def test_500_tells_nothing_of_the_inside(api: Client) -> None:
    answer = api.get("/api/v1/fail")
    problem(answer, 500, "internal_error")
    assert b"ZeroDivision" not in answer.content


def test_503_when_the_database_is_busy_or_away(api: Client) -> None:
    answer = api.get("/api/v1/away")
    problem(answer, 503, "unavailable")
    assert answer.headers["Retry-After"] == "1"
    assert b"deadlock" not in answer.content
    problem(api.get("/api/v1/lacking"), 503, "unavailable")


def test_a_view_that_names_no_scope_is_closed(api: Client) -> None:
    problem(api.get("/api/v1/forgetful"), 500, "internal_error")


def test_400_for_a_body_that_is_not_json(api: Client) -> None:
    assert "line 1 column 2" in problem(post(api, "{"), 400, "malformed_request")["detail"]


def test_400_for_a_request_that_is_suspicious(api: Client) -> None:
    problem(api.get("/api/v1/suspect"), 400, "malformed_request")


def test_400_points_at_each_field_at_fault(api: Client) -> None:
    body = problem(post(api, '{"sizes": [1, "big"]}'), 400, "invalid_request")
    assert [error["pointer"] for error in body["errors"]] == ["/name", "/sizes/1"]
    assert body["detail"] == "2 fields are wrong."


def test_a_single_fault_is_the_detail(api: Client) -> None:
    body = problem(post(api, '{"sizes": []}'), 400, "invalid_request")
    assert body["detail"] == body["errors"][0]["detail"] == "This field is required."


def test_people_get_pages_instead(stranger: Client) -> None:
    for address, status in {"/nothing": 404, "/fail": 500, "/lacking": 503, "/deny": 403}.items():
        answer = stranger.get(address)
        assert answer.status_code == status
        assert answer.headers["Content-Type"].startswith("text/html")
        assert b"console" in answer.content
