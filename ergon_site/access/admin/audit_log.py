"""The audit log: read, searched, exported, never written here."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from django.http import HttpRequest

from ergon_site.access import listing
from ergon_site.access.console import json_view, targets
from ergon_site.access.console.cells import UNKNOWN, anchor, column, unbroken, words
from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.lists import KeysetPage, choice, choice_of, typed
from ergon_site.access.console.pages import registered
from ergon_site.access.core import differences
from ergon_site.access.core.roles import Right
from ergon_site.access.database.clock import page_time
from ergon_site.access.keyset import KeysetQuery
from ergon_site.access.models import AuditEntry

AGES = {
    "under-1h": "Last hour",
    "under-1d": "Last day",
    "under-7d": "Last week",
    "under-30d": "Last 30 days",
    "over-30d": "Older than 30 days",
}


@registered(AuditEntry)
class AuditLogPage(KeysetPage, DetailPage):
    view_right = Right.AUDIT
    detail_template = "console/audit_entry.html"
    empty_text = "Every change by a person, a command or an API client is listed here."
    list_display: ClassVar = ("when", "who", "did", "about", "why")
    list_filter: ClassVar = [
        choice_of("action", lambda _: [(action, action) for action in listing.actions()]),
        *(choice("age", AGES), typed("actor"), typed("target")),
    ]
    search_names = ("after", "before")
    search_help_text = "Start of an actor, target or action"
    export_fields = ("id", "at", "actor", "action", "target", "reason", "before", "after")

    when = column("when", lambda entry: entry.at)
    who = column("actor", lambda entry: words(entry.actor))
    did = column("action", lambda entry: unbroken(entry.action))
    about = column("target", lambda entry: entry.link)
    why = column("reason", lambda entry: words(entry.reason) if entry.reason else UNKNOWN)

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        return listing.entries(wanted, page_time())

    def decorate(self, request: HttpRequest, rows: list[Any]) -> list[Any]:
        found = targets.addresses(request, {row.target for row in rows})
        for row in rows:
            shown = words(row.target)
            row.link = anchor(found[row.target], shown) if row.target in found else shown
        return rows

    def details(self, request: HttpRequest, row: AuditEntry) -> dict[str, Any]:
        before, after = row.before or {}, dict(row.after or {})
        # A policy's entry has the changes of its fields as a list of their own; others had a list of another sort once.
        listed = [one for one in after.pop("changes", None) or [] if isinstance(one, dict) and "path" in one]
        changed = [*differences.changes(before, after), *listed]
        told = [{**one, **{side: _text(one[side]) for side in ("before", "after") if side in one}} for one in changed]
        places = {re.split(r"[.\[]", one["path"])[0] for one in changed}
        same = [(name, _text(value)) for name, value in after.items() if name not in places] if before else []
        address = targets.addresses(request, [row.target]).get(row.target, "")
        return {"entry": row, "address": address, "changes": told, "same": same}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_view.text(value)
