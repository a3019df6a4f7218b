"""The audit log: read, searched, exported, never written here."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from ergon_site.access import listing
from ergon_site.access.console import json_view
from ergon_site.access.console.cells import UNKNOWN, anchor, column, unbroken, words
from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.lists import KeysetPage, choice, choice_of, typed
from ergon_site.access.console.pages import ConsolePage, registered
from ergon_site.access.core import differences
from ergon_site.access.core.roles import Right
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
    empty_text = "No entries yet. Every change by a person, a command or an API client is listed here."
    list_display: ClassVar = ("at", "who", "did", "about", "why")
    list_filter: ClassVar = [
        choice_of("action", lambda _: [(action, action) for action in listing.actions()]),
        *(choice("age", AGES), typed("actor"), typed("target")),
    ]
    search_names = ("after", "before")
    search_help_text = "Start of an actor, target or action"
    export_fields = ("id", "at", "actor", "action", "target", "reason", "before", "after")

    who = column("actor", lambda entry: words(entry.actor))
    did = column("action", lambda entry: unbroken(entry.action))
    about = column("target", lambda entry: entry.link)
    why = column("reason", lambda entry: words(entry.reason) if entry.reason else UNKNOWN)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.target_view)
        return [path("<int:entry_id>/target/", view, name="access_auditentry_target"), *super().get_urls()]

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        return listing.entries(wanted, timezone.now())

    def decorate(self, request: HttpRequest, rows: list[Any]) -> list[Any]:
        """With links to what entries are about; the rows themselves are looked for when somebody follows one."""
        for row in rows:
            named = next(self._named(request, row.target), None)
            shown = words(row.target)
            row.link = anchor(reverse("ergon:access_auditentry_target", args=[row.pk]), shown) if named else shown
        return rows

    def details(self, request: HttpRequest, row: AuditEntry) -> dict[str, Any]:
        both = isinstance(row.before, dict) and isinstance(row.after, dict)
        changed = differences.changes(row.before or {}, row.after or {})
        told = [{**one, **{side: _text(one[side]) for side in ("before", "after") if side in one}} for one in changed]
        places = {one["path"] for one in changed}
        same = [(name, _text(value)) for name, value in (row.after or {}).items() if name not in places] if both else []
        return {"entry": row, "address": self._address(request, row.target), "changes": told, "same": same}

    def target_view(self, request: HttpRequest, entry_id: int) -> HttpResponse:
        """To the page of what an entry is about."""
        entry = self.row(request, str(entry_id))
        if address := self._address(request, entry.target):
            return redirect(address)
        messages.warning(request, f"There is no {entry.target} any more.")
        return redirect(self.address(entry.pk))

    def _address(self, request: HttpRequest, target: str) -> str:
        """The page of a row by the name that the log has for it; empty if it is gone, or none of this person's."""
        for page, columns in self._named(request, target):
            row = page.get_queryset(request).filter(**columns).first()
            if row is not None:
                return page.address(row.pk)
        return ""

    def _named(self, request: HttpRequest, target: str) -> Iterator[tuple[ConsolePage, dict[str, str]]]:
        for page in self.admin_site._registry.values():  # noqa: SLF001 (Django has no other list of its pages)
            pattern = getattr(page, "audited", "")
            if pattern and (found := re.fullmatch(pattern, target)) and page.has_view_permission(request):
                yield page, found.groupdict()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_view.text(value)
