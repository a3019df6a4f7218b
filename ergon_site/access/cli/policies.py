"""Versions of policies, as commands tell them."""

from collections.abc import Sequence
from typing import Any

from ergon_site.access.cli.commands import as_json, moment
from ergon_site.access.cli.tables import printable
from ergon_site.access.policies.models import VersionRow


def version(row: VersionRow) -> dict[str, Any]:
    names = ("number", "author", "reason", "created_at", "changes")
    return {name: getattr(row, name) for name in names}


def versions(policy: Any) -> tuple[list[dict[str, Any]], list[str], list[list[Any]]]:
    """Every version of a policy; and as a table, its headings and rows."""
    told = [version(row) | {"active": row == policy.active} for row in policy.versions.all()]
    headings = ["version", "active", "since (UTC)", "by", "reason", "changed"]
    rows = [
        [one["number"], one["active"], moment(one["created_at"]), one["author"], one["reason"], len(one["changes"])]
        for one in told
    ]
    return told, headings, rows


def change_lines(row: VersionRow, changed: Sequence[dict[str, Any]]) -> list[str]:
    """The lines that confirm an activation, and its changes."""
    lines = [printable(f"{row} is active")]
    for change in changed:
        before, after = (as_json(change[side]) if side in change else "nothing" for side in ("before", "after"))
        lines.append(printable(f"  {change['path']}: {before} → {after}"))
    return lines
