"""The versions of a policy as pages show them: what each changed, and the button that puts it in force."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from engines import policies
from engines.core import differences
from engines.models import Policy, PolicyVersion
from ergon_site.access.buttons import Button, bar, button
from ergon_site.access.core.roles import Right

VERSIONS = 20
CHANGES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One place, and what was and is there."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A version in the table; the one in force has no button."""

    version: PolicyVersion
    changes: list[Change]
    not_shown: int
    button: Button | None


def history(request: HttpRequest, policy: Policy) -> dict[str, Any]:
    """The newest versions, and whether there are earlier ones."""
    versions = list(policy.versions.all()[: VERSIONS + 1])
    entries = [_entry(request, policy, version) for version in versions[:VERSIONS]]
    refusals = bar(*(entry.button for entry in entries if entry.button))["refusals"]
    return {"entries": entries, "refusals": refusals, "has_earlier": len(versions) > VERSIONS}


def conflict(policy: Policy, expected: int) -> dict[str, Any]:
    """Who was quicker, and what they changed since the version that a form was opened with."""
    opened = policy.versions.filter(number=expected).first()
    assert policy.active is not None  # noqa: S101 (a policy is made with its first version)
    return {"version": policy.active, "changes": between(opened, policy.active, policy.kind) if opened else []}


def between(earlier: PolicyVersion, later: PolicyVersion, kind: str) -> list[Change]:
    """How two versions differ, whatever came in between; fields that one leaves out have their defaults."""
    bodies = (policies.read(kind, version.body).to_dict() for version in (earlier, later))
    return list(_told(differences.changes(*bodies)))


def activation(request: HttpRequest, policy: Policy, version: PolicyVersion) -> Button | None:
    """The button that puts a version in force, unless it is."""
    if policy.active is None or version.pk == policy.active.pk:
        return None
    title = "Roll back" if version.number < policy.active.number else "Activate"
    address = reverse("admin:engines_policyversion_activate", args=[version.pk])
    return button(request, title, address, right=Right.EDIT_POLICIES)


def _entry(request: HttpRequest, policy: Policy, version: PolicyVersion) -> Entry:
    changes = list(_told(version.changes))
    return Entry(
        version=version,
        changes=changes[:CHANGES],
        not_shown=max(0, len(changes) - CHANGES),
        button=activation(request, policy, version),
    )


def _told(changes: list[dict[str, Any]]) -> Iterator[Change]:
    for one in changes:
        before, after = (json.dumps(one[side]) if side in one else "nothing" for side in ("before", "after"))
        yield Change(path=one["path"], before=before, after=after)
