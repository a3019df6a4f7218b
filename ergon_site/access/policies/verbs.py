"""VERBS of policies, of whichever app: write a version, activate one. A version that is not valid is never kept."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Max, QuerySet

from ergon_site.access import audit
from ergon_site.access.core import differences, json_text
from ergon_site.access.core.texts import is_storable
from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.policies.errors import PolicyUnknownError, StalePolicyError, VersionUnknownError
from ergon_site.access.policies.models import PolicyRow, VersionRow, told

Policy = TypeVar("Policy", bound=PolicyRow)
Version = TypeVar("Version", bound=VersionRow)


def _storable(body: dict[str, Any]) -> None:
    json_text.parse(json.dumps(body).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies(Generic[Policy, Version]):
    """The policies of an app; a `key` is what its columns of identity hold. The errors may be the app's own."""

    model: type[Policy]
    # Refuses, with a ValueError, what no column can keep.
    check: Callable[[dict[str, Any]], None] = _storable
    unknown: type[PolicyUnknownError] = PolicyUnknownError
    version_unknown: type[VersionUnknownError] = VersionUnknownError
    stale: type[StalePolicyError] = StalePolicyError

    @retry_conflicts
    @transaction.atomic
    def write(self, *key: str, body: Any, by: str, reason: str, expected: int | None = None) -> Version:
        """A new version, in force at once; with `expected`, only if that is now active. The first makes the policy.

        With 0 expected, there must be none yet.
        """
        policy = self.lock(*key) or self.model(**self._columns(key))
        self.expect(policy, expected)
        return self.extend(policy, body, by=by, reason=reason)

    @retry_conflicts
    @transaction.atomic
    def activate(self, *key: str, number: int, by: str, reason: str, expected: int | None = None) -> Version:
        """Put an existing version in force: an earlier one rolls back. With `expected`, only if that is in force."""
        policy = self.lock(*key)
        if policy is None:
            raise self.unknown(told(*key))
        self.expect(policy, expected)
        version: Version | None = policy.versions.filter(number=number).first()
        if version is None:
            raise self.version_unknown(str(policy), number)
        self._put_in_force(policy, version, by=by, reason=reason, action="policy.activate")
        return version

    def find(self, *key: str) -> Policy:
        policy = self.look_up(*key)
        if policy is None:
            raise self.unknown(told(*key))
        return policy

    def look_up(self, *key: str) -> Policy | None:
        """The policy, if there is one; `in_force` is what it says."""
        return self._named(key).select_related("active").first()

    def lock(self, *key: str) -> Policy | None:
        """The policy, held until the transaction ends."""
        # Without its version: joined in, that would be the one from before the wait for the lock.
        return self._named(key).select_for_update().first()

    def expect(self, policy: Policy, expected: int | None) -> None:
        """Refuse if another version is in force than somebody has read."""
        number = policy.active.number if policy.active else 0
        if expected is not None and expected != number:
            raise self.stale(str(policy), number)

    def extend(self, policy: Policy, body: Any, *, by: str, reason: str) -> Version:
        """The next version of a policy that is locked, or the first of a new one; in force at once."""
        asked, active = policy.read(body), policy.active
        complete = asked.to_dict()
        self.check(complete)
        if policy._state.adding:  # noqa: SLF001 (Django's own way)
            try:
                with transaction.atomic():
                    policy.save()
            except IntegrityError:
                raise self.stale(str(policy), 1) from None
        latest = policy.versions.aggregate(number=Max("number"))["number"] or 0
        version: Version = policy.versions.create(
            number=latest + 1,
            body=asked.to_stored(),
            changes=differences.changes(policy.content(active).to_dict(), complete) if active else [],
            author=by,
            reason=reason,
        )
        self._put_in_force(policy, version, by=by, reason=reason, action="policy.write")
        return version

    def _named(self, key: tuple[str, ...]) -> QuerySet[Policy]:
        rows = self.model._default_manager.filter(**self._columns(key))  # noqa: SLF001 (Django's own way)
        return rows if all(map(is_storable, key)) else rows.none()

    def _columns(self, key: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self.model.identity, key, strict=True))

    def _put_in_force(self, policy: Policy, version: Version, *, by: str, reason: str, action: str) -> None:
        before = policy.active
        policy.active = version
        policy.save(update_fields=["active"])
        audit.record(
            actor=by,
            action=action,
            target=policy.target,
            reason=reason,
            before={"version": before.number} if before else None,
            after={"version": version.number, "changes": version.changes if action == "policy.write" else []},
        )
