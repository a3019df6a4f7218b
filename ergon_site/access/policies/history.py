"""The versions of a policy as pages show them: what each changed, and the button that puts it in force."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse

from ergon_site.access.buttons import Button, bar, button
from ergon_site.access.core import differences
from ergon_site.access.core.roles import Right
from ergon_site.access.policies.models import PolicyRow, VersionRow

VERSIONS = 20
CHANGES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A path with the value before and after."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A version in the table; the one in force has no button."""

    version: VersionRow
    address: str
    changes: list[Change]
    not_shown: int
    button: Button | None


def history_context(request: HttpRequest, policy: PolicyRow) -> dict[str, Any]:
    """The newest versions, and the address of all of them if there are earlier ones."""
    versions = list(policy.versions.all()[: VERSIONS + 1])
    entries = [_entry(request, policy, version) for version in versions[:VERSIONS]]
    refusals = bar(*(entry.button for entry in entries if entry.button))["refusals"]
    every = f"{page(versions[0], 'changelist')}?policy__id__exact={policy.pk}" if len(versions) > VERSIONS else ""
    return {"entries": entries, "refusals": refusals, "all_versions": every}


def conflict(policy: PolicyRow, expected: int) -> dict[str, Any]:
    """The author and the changes since the version that a form was opened with."""
    opened = policy.versions.filter(number=expected).first()
    return {"version": policy.active, "changes": between(policy, opened, policy.active) if opened else []}


def between(policy: PolicyRow, earlier: VersionRow, later: VersionRow) -> list[Change]:
    """The differences of two versions; missing fields have their defaults."""
    bodies = (policy.read(version.body).to_dict() for version in (earlier, later))
    return list(_changes(differences.changes(*bodies)))


def activation(request: HttpRequest, policy: PolicyRow, version: VersionRow) -> Button | None:
    """The button that puts a version in force, unless it is."""
    if policy.active is None or version.pk == policy.active.pk:
        return None
    title = "Roll back" if version.number < policy.active.number else "Activate"
    return button(request, title, page(version, "activate", version.pk), right=Right.EDIT_POLICIES)


def page(row: Model, name: str, *args: Any) -> str:
    """The address of one of the pages of a row's table."""
    opts = row._meta  # noqa: SLF001 (Django's own way)
    return reverse(f"admin:{opts.app_label}_{opts.model_name}_{name}", args=args)


def _entry(request: HttpRequest, policy: PolicyRow, version: VersionRow) -> Entry:
    changes = list(_changes(version.changes))
    return Entry(
        version=version,
        address=page(version, "change", version.pk),
        changes=changes[:CHANGES],
        not_shown=max(0, len(changes) - CHANGES),
        button=activation(request, policy, version),
    )


def _changes(changes: list[dict[str, Any]]) -> Iterator[Change]:
    for one in changes:
        before, after = (json.dumps(one[side]) if side in one else "nothing" for side in ("before", "after"))
        yield Change(path=one["path"], before=before, after=after)
