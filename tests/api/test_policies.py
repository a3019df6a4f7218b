"""Policies over HTTP: nobody overwrites what they have not read."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from engines import policies
from engines.models import Policy, PolicyVersion
from engines.policies import StalePolicyError
from ergon_site.access.models import AuditEntry
from tests.api.api_clients import client_with, pointers, post, problem
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

CALM = {"steps": {"process": {"retry": {"max_attempts": 5, "backoff": 2}}}}


@pytest.fixture
def api() -> Client:
    return client_with("policies:read", "policies:write")


def write(api: Client, name: str = "default", policy: Any = CALM, **headers: str) -> Any:
    return post(api, f"policies/{name}/versions", {"policy": policy, "reason": "calmer"}, **headers)


def test_policies_are_listed_with_what_they_govern(api: Client) -> None:
    make_pipeline("invoices")
    page = api.get("/api/v1/policies").json()
    assert [(one["name"], one["kind"], one["version"], one["pipelines"]) for one in page["results"]] == [
        ("default", "consumer", 1, ["invoices"]),
        ("default-producer", "producer", 1, []),
    ]


def test_a_policy_is_told_complete_with_its_versions_and_its_tag(api: Client) -> None:
    answer = api.get("/api/v1/policies/default")
    told = answer.json()
    assert answer.headers["ETag"] == '"1"'
    assert (told["name"], told["kind"], told["version"]) == ("default", "consumer", 1)
    assert told["policy"]["steps"]["process"]["retry"]["max_attempts"] == 3
    assert told["policy"]["record_payload"] is False
    assert [(one["number"], one["reason"]) for one in told["versions"]] == [(1, "Shipped with Ergon")]


def test_a_version_is_written_over_the_one_that_was_read(api: Client) -> None:
    answer = write(api, If_Match=api.get("/api/v1/policies/default").headers["ETag"])
    assert (answer.status_code, answer.headers["ETag"], answer.json()["number"]) == (201, '"2"', 2)
    assert {"path": "steps.process.retry.max_attempts", "before": 3, "after": 5} in answer.json()["changes"]
    told = api.get("/api/v1/policies/default").json()
    assert (told["version"], told["policy"]["steps"]["process"]["retry"]["max_attempts"]) == (2, 5)
    entry = AuditEntry.objects.get(action="policy.write")
    assert (entry.actor, entry.reason) == ("client:erp", "calmer")


def test_a_version_is_not_written_blindly(api: Client) -> None:
    problem(write(api), 428, "precondition_required")
    problem(write(api, If_None_Match='"1"'), 428, "precondition_required")
    problem(post(api, "policies/default/versions/1/activate", {"reason": "x"}), 428, "precondition_required")
    assert PolicyVersion.objects.filter(policy__name="default").count() == 1


@pytest.mark.parametrize("tag", ['"7"', "7", '"0"', "", "nonsense", 'W/"1"', '"1", "2"', "1" * 5000])
def test_a_stale_tag_is_answered_with_the_current_number(api: Client, tag: str) -> None:
    answer = write(api, If_Match=tag)
    assert problem(answer, 412, "stale_policy")["version"] == 1
    assert answer.headers["ETag"] == '"1"'
    answer = post(api, "policies/default/versions/1/activate", {"reason": "x"}, If_Match=tag)
    assert problem(answer, 412, "stale_policy")["version"] == 1


@pytest.mark.parametrize("tag", ["1", " 1", "*"])
def test_a_tag_may_come_bare_or_as_any(api: Client, tag: str) -> None:
    assert write(api, If_Match=tag).status_code == 201


@pytest.mark.parametrize(
    ("policy", "pointer", "words"),
    [
        (
            {"steps": {"process": {"retry": {"max_attempts": 0}}}},
            "/policy/steps/process/retry/max_attempts",
            "ConsumerPolicy.steps.process.retry.max_attempts must be a whole number of at least 1, not 0.",
        ),
        ({"lop": {}}, "/policy/lop", "ConsumerPolicy.lop is unknown"),
        ({"loop": {"a/b~c": 1}}, "/policy/loop/a~1b~0c", "ConsumerPolicy.loop.a/b~c is unknown"),
        ({"loop": 5}, "/policy/loop", "ConsumerPolicy.loop must be an object, not 5."),
        ([], "/policy", "ConsumerPolicy must be an object, not []."),
        ({"loop": {"timeout": True}}, "/policy/loop/timeout", "ConsumerPolicy.loop.timeout must be"),
    ],
)
def test_what_is_wrong_with_a_policy_is_pointed_at(api: Client, policy: Any, pointer: str, words: str) -> None:
    body = problem(write(api, policy=policy, If_Match='"1"'), 400, "invalid_policy")
    assert pointers(body) == [pointer]
    assert body["detail"].startswith(words)
    assert policies.find("default").active is not None


def test_a_new_policy_is_made_only_where_there_is_none(api: Client) -> None:
    body = {"kind": "producer", "policy": {}, "reason": "slow lane"}
    answer = post(api, "policies/slow/versions", body, If_None_Match="*")
    assert (answer.status_code, answer.headers["ETag"], answer.json()["number"]) == (201, '"1"', 1)
    assert api.get("/api/v1/policies/slow").json()["kind"] == "producer"
    answer = post(api, "policies/slow/versions", {**body, "kind": "consumer"}, If_None_Match="*")
    assert problem(answer, 412, "stale_policy")["version"] == 1


@pytest.mark.parametrize("kind", [None, "", "pump", 5, []])
def test_a_new_policy_has_a_kind(api: Client, kind: Any) -> None:
    body = {"kind": kind, "policy": {}, "reason": "x"}
    assert pointers(problem(post(api, "policies/new/versions", body, If_None_Match="*"), 400, "invalid_request")) == [
        "/kind"
    ]
    assert not Policy.objects.filter(name="new").exists()


def test_a_kind_is_given_once(api: Client) -> None:
    body = {"kind": "consumer", "policy": {}, "reason": "x"}
    answer = post(api, "policies/default/versions", body, If_Match='"1"')
    assert pointers(problem(answer, 400, "invalid_request")) == ["/kind"]


def test_an_unknown_policy_is_not_found(api: Client) -> None:
    problem(api.get("/api/v1/policies/ghost"), 404, "policy_unknown")
    problem(write(api, "ghost", If_Match="*"), 404, "policy_unknown")
    problem(api.get("/api/v1/policies/no%20name"), 404, "not_found")


def test_an_earlier_version_is_put_in_force_again(api: Client) -> None:
    write(api, If_Match='"1"')
    answer = post(api, "policies/default/versions/1/activate", {"reason": "worse"}, If_Match='"2"')
    assert (answer.status_code, answer.headers["ETag"], answer.json()["number"]) == (200, '"1"', 1)
    assert api.get("/api/v1/policies/default").json()["version"] == 1
    answer = post(api, "policies/default/versions/9/activate", {"reason": "x"}, If_Match='"1"')
    problem(answer, 404, "version_unknown")
    assert AuditEntry.objects.get(action="policy.activate").actor == "client:erp"


def attempt(number: int, **fields: Any) -> int | str:
    """One of several that write at once: the number of its version, or why there is none."""
    body = {"steps": {"process": {"retry": {"max_attempts": 10 + number}}}}
    try:
        return policies.write("default", body, by=f"w{number}", reason="race", **fields).number
    except StalePolicyError as error:
        return f"stale at {error.active}"
    finally:
        connection.close()


@pytest.mark.django_db(transaction=True)
def test_of_writers_who_read_the_same_version_one_succeeds() -> None:
    with ThreadPoolExecutor(6) as pool:
        ends = list(pool.map(lambda number: attempt(number, expected=1), range(6)))
    assert sorted(map(str, ends)) == ["2", *["stale at 2"] * 5]


@pytest.mark.django_db(transaction=True)
def test_writers_who_wait_for_each_other_see_what_the_other_wrote() -> None:
    with ThreadPoolExecutor(6) as pool:
        ends = list(pool.map(attempt, range(6)))
    assert sorted(map(str, ends)) == ["2", "3", "4", "5", "6", "7"]
    versions = PolicyVersion.objects.filter(policy__name="default", number__gt=1).order_by("number")
    attempts = [version.body["steps"]["process"]["retry"]["max_attempts"] for version in versions]
    assert [version.changes for version in versions][1:] == [
        [{"path": "steps.process.retry.max_attempts", "before": before, "after": after}]
        for before, after in pairwise(attempts)
    ]


def make(number: int) -> int | str:
    try:
        return policies.write("new", {}, by=f"w{number}", reason="race", kind="consumer", expected=0).number
    except StalePolicyError as error:
        return f"stale at {error.active}"
    finally:
        connection.close()


@pytest.mark.django_db(transaction=True)
def test_of_those_who_make_a_policy_at_once_one_succeeds() -> None:
    with ThreadPoolExecutor(6) as pool:
        ends = list(pool.map(make, range(6)))
    assert sorted(map(str, ends)) == ["1", *["stale at 1"] * 5]
