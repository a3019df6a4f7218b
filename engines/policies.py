"""VERBS of policies: write a version, activate one. A version that is not valid is never kept."""

from functools import lru_cache
from typing import Any

from django.db import transaction

from engines import rehearsals
from engines.core import naming
from engines.core.errors import EngineError, PolicyError
from engines.core.policy import ConsumerPolicy, ProducerPolicy
from engines.models import Policy, PolicyVersion
from engines.transactions import payloads
from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.policies import errors
from ergon_site.access.policies.models import InForce
from ergon_site.access.policies.verbs import Policies

REMEMBERED = 256
LARGEST = 256 * 1024


class PolicyUnknownError(errors.PolicyUnknownError, EngineError):
    """There is none of that name."""


class VersionUnknownError(errors.VersionUnknownError, EngineError):
    """The policy has none of that number."""


class StalePolicyError(errors.StalePolicyError, EngineError):
    """The policy was changed by somebody else meanwhile."""


@retry_conflicts
@transaction.atomic
def write(
    name: str, body: Any, *, by: str, reason: str, kind: str | None = None, expected: int | None = None
) -> PolicyVersion:
    """A new version, in force at once; with `expected`, only if that is the one in force now."""
    policy = POLICIES.lock(name)
    if policy is None:
        if kind is None:
            raise PolicyUnknownError(name)
        if refusal := naming.refusal("policy", name):
            raise PolicyError(refusal)
        policy = Policy(name=name, kind=kind)
    POLICIES.expect(policy, expected)
    if kind is not None and kind != policy.kind:
        msg = f"the policy {name!r} is of the kind {policy.kind}, not {kind}"
        raise PolicyError(msg)
    version = POLICIES.extend(policy, body, by=by, reason=reason)
    rehearsals.keep(version, policy.content(version).to_dict())
    return version


def activate(name: str, number: int, *, by: str, reason: str, expected: int | None = None) -> PolicyVersion:
    """Put an existing version in force: an earlier one rolls back. With `expected`, only if that is in force now."""
    return POLICIES.activate(name, number=number, by=by, reason=reason, expected=expected)


def in_force(policy_id: int) -> InForce:
    """The active version of a policy."""
    return Policy.objects.select_related("active").get(pk=policy_id).in_force


@lru_cache(REMEMBERED)
def of_version(version_id: int) -> ConsumerPolicy | ProducerPolicy:
    """A version of a policy; read once, because versions never change."""
    version = PolicyVersion.objects.select_related("policy").get(pk=version_id)
    return version.policy.value_class.from_stored(version.body)


def _check(complete: dict[str, Any]) -> None:
    try:
        payloads.encode(complete, limit=LARGEST, what="policy")
    except payloads.PayloadError as error:
        raise PolicyError(str(error)) from None


POLICIES: Policies[Policy, PolicyVersion] = Policies(
    model=Policy, check=_check, unknown=PolicyUnknownError, version_unknown=VersionUnknownError, stale=StalePolicyError
)
find = POLICIES.find
