"""The versions of a policy as pages show them: what each changed, and the button that puts it in force."""

from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse

from ergon_site.access.console.buttons import Button, bar, button
from ergon_site.access.core import differences, ruled
from ergon_site.access.core.roles import Right
from ergon_site.access.policies.models import PolicyRow, VersionRow

VERSIONS = 20
CHANGES = 6


def history_context(request: HttpRequest, policy: PolicyRow) -> dict[str, Any]:
    """The newest versions, each with what it changed, and the address of all of them if there are earlier ones."""
    versions = list(policy.versions.all()[: VERSIONS + 1])
    entries: list[dict[str, Any]] = [
        {
            "version": version,
            "address": page(version, "change", version.pk),
            "changes": in_words(policy, version.changes[:CHANGES]),
            "not_shown": max(0, len(version.changes) - CHANGES),
            "button": activation(request, policy, version),
        }
        for version in versions[:VERSIONS]
    ]
    refusals = bar(*(entry["button"] for entry in entries if entry["button"]))["refusals"]
    every = f"{page(versions[0], 'changelist')}?policy__id__exact={policy.pk}" if len(versions) > VERSIONS else ""
    return {"entries": entries, "refusals": refusals, "all_versions": every}


def between(policy: PolicyRow, earlier: VersionRow, later: VersionRow) -> list[dict[str, str]]:
    """The differences of two versions; missing fields have their defaults."""
    bodies = (policy.content(version).to_dict() for version in (earlier, later))
    return in_words(policy, differences.changes(*bodies))


def activation(request: HttpRequest, policy: PolicyRow, version: VersionRow) -> Button | None:
    """The button that puts a version in force, unless it is."""
    if policy.active is None or version.pk == policy.active.pk:
        return None
    title = "Roll back" if version.number < policy.active.number else "Activate"
    return button(request, title, page(version, "activate", version.pk), right=Right.EDIT_POLICIES)


def page(row: Model, name: str, *args: Any) -> str:
    """The address of one of the pages of a row's table."""
    opts = row._meta  # noqa: SLF001 (Django's own way)
    return reverse(f"ergon:{opts.app_label}_{opts.model_name}_{name}", args=args)


def in_words(policy: PolicyRow, changes: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Changes with their values as people read them, and what each field means."""
    kind, sides = policy.value_class, ("before", "after")
    meanings = {path: one.metadata["meaning"] for path, one in ruled.leaves(kind)}
    return [
        {
            "path": one["path"],
            "meaning": meanings.get(one["path"], ""),
            **{side: ruled.words(kind, one["path"], one[side]) if side in one else "nothing" for side in sides},
        }
        for one in changes
    ]
