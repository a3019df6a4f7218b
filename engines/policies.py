"""VERBS of policies: write a version, activate one. A version that is not valid is never kept."""

from functools import lru_cache
from typing import Any, NamedTuple

from django.db import IntegrityError, transaction
from django.db.models import Max

from engines import payloads
from engines.core import differences, naming
from engines.core.errors import EngineError, PolicyError
from engines.core.policy import ConsumerPolicy, ProducerPolicy
from engines.models import Policy, PolicyVersion
from ergon_site.access import audit

KINDS: dict[str, type[ConsumerPolicy | ProducerPolicy]] = {"consumer": ConsumerPolicy, "producer": ProducerPolicy}
REMEMBERED = 256
LARGEST = 256 * 1024


class PolicyUnknownError(EngineError):
    code = "policy_unknown"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no policy named {name!r}")


class VersionUnknownError(EngineError):
    code = "version_unknown"

    def __init__(self, name: str, number: int) -> None:
        super().__init__(f"the policy {name!r} has no version {number}")


class StalePolicyError(EngineError):
    """Somebody else was quicker."""

    code = "stale_policy"

    def __init__(self, name: str, active: int) -> None:
        super().__init__(f"the policy {name!r} is at version {active} now: read it again")
        self.active = active


class InForce(NamedTuple):
    """A policy as it is now, and the row that says so."""

    version_id: int
    policy: ConsumerPolicy | ProducerPolicy


def read(kind: str, body: Any) -> ConsumerPolicy | ProducerPolicy:
    """The policy that a JSON value says, or a `PolicyError` that names the field."""
    if kind not in KINDS:
        msg = f"a policy is of the kind consumer or producer, not {kind!r}"
        raise PolicyError(msg)
    return KINDS[kind].from_dict(body)


@transaction.atomic
def write(
    name: str, body: Any, *, by: str, reason: str, kind: str | None = None, expected: int | None = None
) -> PolicyVersion:
    """A new version, in force at once; with `expected`, only if that is the one in force now."""
    policy = _lock(name)
    if policy is None:
        if kind is None:
            raise PolicyUnknownError(name)
        if refusal := naming.refusal("policy", name):
            raise PolicyError(refusal)
        policy = Policy(name=name, kind=kind)
    _expect(policy, expected)
    if kind is not None and kind != policy.kind:
        msg = f"the policy {name!r} is of the kind {policy.kind}, not {kind}"
        raise PolicyError(msg)
    complete = _storable(read(policy.kind, body).to_dict())
    active = policy.active
    if policy._state.adding:  # noqa: SLF001 (Django's own way)
        _add(policy)
    before = read(policy.kind, active.body).to_dict() if active else {}
    latest = policy.versions.aggregate(number=Max("number"))["number"] or 0
    version = policy.versions.create(
        number=latest + 1,
        body=complete,
        changes=differences.changes(before, complete) if active else [],
        author=by,
        reason=reason,
    )
    _put_in_force(policy, version, by=by, reason=reason, action="policy.write")
    return version


@transaction.atomic
def activate(name: str, number: int, *, by: str, reason: str, expected: int | None = None) -> PolicyVersion:
    """Put an existing version in force: an earlier one rolls back. With `expected`, only if that is in force now."""
    policy = _lock(name)
    if policy is None:
        raise PolicyUnknownError(name)
    _expect(policy, expected)
    version = policy.versions.filter(number=number).first()
    if version is None:
        raise VersionUnknownError(name, number)
    _put_in_force(policy, version, by=by, reason=reason, action="policy.activate")
    return version


def find(name: str) -> Policy:
    policy = Policy.objects.select_related("active").filter(name=name).first()
    if policy is None:
        raise PolicyUnknownError(name)
    return policy


def in_force(policy_id: int) -> InForce:
    """What a policy says now."""
    policy = Policy.objects.select_related("active").get(pk=policy_id)
    assert policy.active is not None  # noqa: S101 (a policy is made with its first version)
    return InForce(policy.active.pk, read(policy.kind, policy.active.body))


@lru_cache(REMEMBERED)
def of_version(version_id: int) -> ConsumerPolicy | ProducerPolicy:
    """What a version says; asked for once, because a version never changes."""
    version = PolicyVersion.objects.select_related("policy").get(pk=version_id)
    return read(version.policy.kind, version.body)


def _storable(complete: dict[str, Any]) -> dict[str, Any]:
    try:
        payloads.encode(complete, limit=LARGEST, what="policy")
    except payloads.PayloadError as error:
        raise PolicyError(str(error)) from None
    return complete


def _lock(name: str) -> Policy | None:
    # Without its version: joined in, that would be the one from before the wait for the lock.
    return Policy.objects.select_for_update().filter(name=name).first()


def _add(policy: Policy) -> None:
    try:
        with transaction.atomic():
            policy.save()
    except IntegrityError:
        raise StalePolicyError(policy.name, 1) from None


def _expect(policy: Policy, expected: int | None) -> None:
    number = policy.active.number if policy.active else 0
    if expected is not None and expected != number:
        raise StalePolicyError(policy.name, number)


def _put_in_force(policy: Policy, version: PolicyVersion, *, by: str, reason: str, action: str) -> None:
    before = policy.active
    policy.active = version
    policy.save(update_fields=["active"])
    audit.record(
        actor=by,
        action=action,
        target=f"policy {policy.name}",
        reason=reason,
        before={"version": before.number} if before else None,
        after={"version": version.number, "changes": version.changes if action == "policy.write" else []},
    )
