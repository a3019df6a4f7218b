"""Policies in the database: immutable versions, one in force, never an invalid one."""

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from engines import policies
from engines.core.errors import PolicyError
from engines.models import Policy, PolicyVersion
from engines.policies import PolicyUnknownError, StalePolicyError, VersionUnknownError
from ergon_site.access.models import AuditEntry

pytestmark = pytest.mark.django_db

TOUGH = {"steps": {"process": {"retry": {"max_attempts": 5}}}}


def test_the_shipped_policy_is_as_documented() -> None:
    policy: Any = policies.in_force(policies.find("default").pk).policy
    retry = policy.steps.process.retry
    assert (retry.max_attempts, retry.timeout, retry.backoff, retry.backoff_multiplier, retry.backoff_cap) == (
        3,
        30.0,
        1.0,
        2.0,
        60.0,
    )
    assert (policy.loop.concurrency.value, policy.loop.batch.size) == (8, 100)


def test_a_new_version_is_in_force_at_once_and_keeps_who_why_and_what() -> None:
    policies.write("tough", {}, kind="consumer", by="ada", reason="begin")
    version = policies.write("tough", TOUGH, by="bob", reason="flaky customer")
    assert policies.find("tough").active == version
    assert (version.number, version.author, version.reason) == (2, "bob", "flaky customer")
    assert version.changes == [{"path": "steps.process.retry.max_attempts", "before": 1, "after": 5}]
    assert version.body["loop"]["batch"]["size"] == 1  # complete, with every default written out
    assert AuditEntry.objects.filter(actor="bob", action="policy.write", target="policy tough").exists()


def test_an_earlier_version_can_be_put_in_force_again() -> None:
    policies.write("tough", {}, kind="consumer", by="ada", reason="begin")
    policies.write("tough", TOUGH, by="ada", reason="tougher")
    policies.activate("tough", 1, by="bob", reason="too tough")
    assert policies.find("tough").active == PolicyVersion.objects.get(policy__name="tough", number=1)
    third = policies.write("tough", TOUGH, by="ada", reason="after all")
    assert third.number == 3


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"loop": {"batch": {"size": 0}}}, "ConsumerPolicy.loop.batch.size must be a whole number of at least 1"),
        ({"steps": {"proces": {}}}, "ConsumerPolicy.steps.proces is unknown"),
        ([], "ConsumerPolicy must be an object"),
        ({"loop": {"concurrency": {"value": 5, "max": 2}}}, "must be at least value"),
    ],
)
def test_an_invalid_policy_is_never_kept(body: Any, problem: str) -> None:
    with pytest.raises(PolicyError, match=problem):
        policies.write("new", body, kind="consumer", by="ada", reason="mistake")
    assert not Policy.objects.filter(name="new").exists()
    with pytest.raises(PolicyError, match=problem):
        policies.write("default", body, by="ada", reason="mistake")
    active = policies.find("default").active
    assert active is not None
    assert active.number == 1


def test_whoever_comes_second_is_told_so() -> None:
    policies.write("default", TOUGH, by="ada", reason="first", expected=1)
    with pytest.raises(StalePolicyError, match="has changed to version 2"):
        policies.write("default", {}, by="bob", reason="second", expected=1)


def test_what_does_not_exist_is_said_by_name() -> None:
    with pytest.raises(PolicyUnknownError, match="no policy named 'nothing'"):
        policies.write("nothing", {}, by="ada", reason="r")
    with pytest.raises(VersionUnknownError, match="'default' has no version 9"):
        policies.activate("default", 9, by="ada", reason="r")
    with pytest.raises(PolicyError, match="is of the kind consumer, not producer"):
        policies.write("default", {}, kind="producer", by="ada", reason="r")


@pytest.mark.parametrize(
    "change", ["UPDATE engines_policyversion SET reason = ''", "DELETE FROM engines_policyversion"]
)
def test_the_database_itself_refuses_to_change_a_version(change: str) -> None:
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(change)
