"""Policies and quotas of providers over HTTP and from a shell: the console's verbs, with the same audit line."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from django.core.management import CommandError
from django.test import Client

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.models import AuditEntry
from providers import active_policy
from providers.models import ProviderPolicyRow
from tests.api.api_clients import pointers, post, problem
from tests.commands import ask, run
from tests.providers.scripted_providers import TENANT, scripted

pytestmark = pytest.mark.django_db

OTHER = "0c6f2a4e-1111-4222-8333-944455556666"
RANK = "rank/rank_snapshot"
CALM = {"retry": {"max_attempts": 2}}
SCOPES = ("policies:read", "policies:write", "providers:read", "providers:operate")


@pytest.fixture
def api() -> Client:
    token = clients.create("erp", Grant(scopes=SCOPES, tenants=[UUID(TENANT)]), by="tests").token.text
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {token}"})


def write(api: Client, key: str = RANK, policy: Any = CALM, **headers: str) -> Any:
    return post(api, f"provider-policies/{key}/versions", {"policy": policy, "reason": "calmer"}, **headers)


def test_a_policy_is_made_read_and_changed_over_the_version_that_was_read(api: Client) -> None:
    made = write(api, If_None_Match="*")
    assert (made.status_code, made.headers["ETag"], made.json()["number"]) == (201, '"1"', 1)
    read = api.get(f"/api/v1/provider-policies/{RANK}")
    told = read.json()
    assert (told["provider_name"], told["capability"], told["version"]) == ("rank", "rank_snapshot", 1)
    assert (told["policy"]["retry"]["max_attempts"], read.headers["ETag"]) == (2, '"1"')
    written = write(api, policy={"retry": {"max_attempts": 4}}, If_Match=read.headers["ETag"])
    assert {"path": "retry.max_attempts", "before": 2, "after": 4} in written.json()["changes"]
    page = api.get("/api/v1/provider-policies").json()
    assert set(page) == {"results", "next", "previous"}
    assert page["results"] == [{"provider_name": "rank", "capability": "rank_snapshot", "version": 2}]
    entries = AuditEntry.objects.filter(action="policy.write")
    assert {(entry.actor, entry.reason, entry.target) for entry in entries} == {
        ("client:erp", "calmer", "provider policy rank/rank_snapshot")
    }
    assert active_policy.governing(scripted({})).policy.retry.max_attempts == 4


def test_policies_come_in_pages(api: Client) -> None:
    for key in ("b/x", "a/y", "a/x"):
        write(api, key, If_None_Match="*")
    first = api.get("/api/v1/provider-policies?limit=2").json()
    second = api.get(first["next"]).json()
    names = [(one["provider_name"], one["capability"]) for one in first["results"] + second["results"]]
    assert names == [("a", "x"), ("a", "y"), ("b", "x")]


def test_an_earlier_version_is_put_in_force_again(api: Client) -> None:
    write(api, If_None_Match="*")
    write(api, policy={"timeout": 5}, If_Match='"1"')
    address = f"provider-policies/{RANK}/versions"
    answer = post(api, f"{address}/1/activate", {"reason": "worse"}, If_Match='"2"')
    assert (answer.status_code, answer.headers["ETag"], answer.json()["number"]) == (200, '"1"', 1)
    problem(post(api, f"{address}/9/activate", {"reason": "x"}, If_Match='"1"'), 404, "version_unknown")
    assert AuditEntry.objects.get(action="policy.activate").actor == "client:erp"


def test_nobody_overwrites_what_they_have_not_read(api: Client) -> None:
    write(api, If_None_Match="*")
    problem(write(api), 428, "precondition_required")
    answer = write(api, If_Match='"7"')
    assert (problem(answer, 412, "stale_policy")["version"], answer.headers["ETag"]) == (1, '"1"')
    assert problem(write(api, If_None_Match="*"), 412, "stale_policy")["version"] == 1
    activate = f"provider-policies/{RANK}/versions/1/activate"
    problem(post(api, activate, {"reason": "x"}), 428, "precondition_required")
    problem(post(api, activate, {"reason": "x"}, If_Match='"3"'), 412, "stale_policy")


@pytest.mark.parametrize("key", ["ghost/one", "rank/ghost", "no%20name/x", "%F0%9F%98%80/x"])
def test_a_policy_that_is_not_there_is_said_to_be_so(api: Client, key: str) -> None:
    problem(api.get(f"/api/v1/provider-policies/{key}"), 404, "policy_unknown")
    problem(write(api, key, If_Match="*"), 404, "policy_unknown")
    activate = f"provider-policies/{key}/versions/1/activate"
    problem(post(api, activate, {"reason": "x"}, If_Match="*"), 404, "policy_unknown")


@pytest.mark.parametrize("key", ["%00/x", "x/%00", f"{'x' * 101}/x", "a/b/c"])
def test_what_cannot_be_a_name_is_at_no_address(api: Client, key: str) -> None:
    problem(api.get(f"/api/v1/provider-policies/{key}"), 404, "not_found")
    problem(write(api, key, If_None_Match="*"), 404, "not_found")


@pytest.mark.parametrize(
    ("policy", "code", "pointer"),
    [
        ({"retry": {"max_attempts": 0}}, "invalid_policy", "/policy/retry/max_attempts"),
        ({"breaker": {"a/b": 1}}, "invalid_policy", "/policy/breaker/a~1b"),
        ({"cost": True}, "invalid_policy", "/policy/cost"),
        ([], "invalid_request", "/policy"),
        (None, "invalid_request", "/policy"),
    ],
)
def test_what_is_wrong_with_a_policy_is_pointed_at(api: Client, policy: Any, code: str, pointer: str) -> None:
    assert pointers(problem(write(api, policy=policy, If_None_Match="*"), 400, code)) == [pointer]
    assert not ProviderPolicyRow.objects.exists()


def test_a_name_of_blanks_is_refused(api: Client) -> None:
    problem(write(api, "%20/x", If_None_Match="*"), 400, "invalid_policy")


def set_quota(api: Client, **changes: Any) -> Any:
    body = {"tenant_id": TENANT, "limit": 2, "window": 86400, "reason": "their price", **changes}
    return api.put(f"/api/v1/providers/{RANK}/quota", body, content_type="application/json")


def drop_quota(api: Client, **asked: str) -> Any:
    return api.delete(f"/api/v1/providers/{RANK}/quota?{urlencode(asked)}")


def test_a_quota_is_set_obeyed_and_dropped(api: Client) -> None:
    told = set_quota(api).json()
    assert (told["tenant_id"], told["provider_name"], told["quota"]["limit_count"]) == (TENANT, "rank", 2)
    provider = scripted({})
    assert [provider.ask().reason_code for _ in range(3)] == [None, None, "quota_exhausted"]
    answer = drop_quota(api, tenant_id=TENANT, reason="a gift")
    assert (answer.status_code, answer.json()["quota"]) == (200, None)
    assert provider.ask().ok
    entries = AuditEntry.objects.filter(action__startswith="quota.").order_by("pk")
    assert [(entry.actor, entry.action, entry.reason) for entry in entries] == [
        ("client:erp", "quota.set", "their price"),
        ("client:erp", "quota.drop", "a gift"),
    ]


def test_a_quota_of_another_tenant_is_not_touched(api: Client) -> None:
    problem(set_quota(api, tenant_id=OTHER), 403, "permission_denied")
    problem(drop_quota(api, tenant_id=OTHER, reason="x"), 403, "permission_denied")


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"tenant_id": "acme"}, "/tenant_id"),
        ({"limit": -1}, "/limit"),
        ({"limit": 10**15 + 1}, "/limit"),
        ({"window": 0}, "/window"),
        ({"window": 1e300}, "/window"),
        ({"reason": ""}, "/reason"),
        ({"more": 1}, "/more"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(api: Client, changes: dict[str, Any], pointer: str) -> None:
    assert pointers(problem(set_quota(api, **changes), 400, "invalid_request")) == [pointer]


@pytest.mark.parametrize("asked", [{}, {"tenant_id": TENANT}, {"reason": "x"}, {"tenant_id": "acme", "reason": "x"}])
def test_dropping_needs_a_tenant_and_a_reason(api: Client, asked: dict[str, str]) -> None:
    problem(drop_quota(api, **asked), 400, "invalid_request")


def test_the_list_of_providers_is_a_list_like_the_others(api: Client) -> None:
    set_quota(api)
    page = api.get("/api/v1/providers", {"tenant_id": TENANT}).json()
    assert (set(page), len(page["results"])) == ({"results", "next", "previous"}, 1)
    assert (page["next"], page["previous"]) == (None, None)


def test_a_policy_is_set_shown_and_rolled_back_from_a_shell(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({**CALM, "timeout": 30.0}))
    names = ("rank", "rank_snapshot")
    with pytest.raises(CommandError, match="there is no policy named 'rank/rank_snapshot'"):
        run("provider_policy", "show", *names)
    told = ask("provider_policy", "set", *names, "--file", str(file), "--reason", "calmer")
    assert (told["provider_name"], told["number"], told["reason"]) == ("rank", 1, "calmer")
    shown = ask("provider_policy", "show", *names)
    file.write_text(json.dumps({**shown, "timeout": 5}))
    text = run("provider_policy", "set", *names, "--file", str(file), "--reason", "shorter")
    assert text == "rank/rank_snapshot v2 is active\n  timeout: 30.0 → 5\n"
    assert [row["active"] for row in ask("provider_policy", "versions", *names)] == [True, False]
    text = run("provider_policy", "activate", *names, "1", "--reason", "worse")
    assert text == "rank/rank_snapshot v1 is active\n  timeout: 5 → 30.0\n"
    assert [row["version"] for row in ask("provider_policy", "list")] == [1]
    assert "rank_snapshot" in run("provider_policy", "list")
    actions = AuditEntry.objects.order_by("pk").values_list("action", "reason")
    assert list(actions) == [("policy.write", "calmer"), ("policy.write", "shorter"), ("policy.activate", "worse")]
    assert all(entry.actor.startswith("command:") for entry in AuditEntry.objects.all())


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "is not JSON"), ('{"retry": {"max_attempts": 0}}', "max_attempts must be"), ("[" * 300, "deeply|not JSON")],
)
def test_a_file_that_is_no_policy_is_refused_in_one_line(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "policy.json"
    file.write_text(content)
    with pytest.raises(CommandError, match=words):
        run("provider_policy", "set", "rank", "rank_snapshot", "--file", str(file), "--reason", "x")
    assert not ProviderPolicyRow.objects.exists()
