"""The audit log: read, searched, exported, never written here."""

from collections.abc import Mapping
from typing import ClassVar

from django.http import HttpRequest
from django.utils import timezone

from ergon_site.access import listing
from ergon_site.access.console.cells import UNKNOWN, column, unbroken, words
from ergon_site.access.console.lists import KeysetPage, choice, choice_of, typed
from ergon_site.access.console.pages import registered
from ergon_site.access.core.roles import Right
from ergon_site.access.keyset import KeysetQuery
from ergon_site.access.models import AuditEntry

AGES = {
    "under-1h": "younger than an hour",
    "under-1d": "younger than a day",
    "under-7d": "younger than a week",
    "under-30d": "younger than 30 days",
    "over-30d": "older than 30 days",
}


@registered(AuditEntry)
class AuditLogPage(KeysetPage):
    view_right = Right.AUDIT
    list_display: ClassVar = ("at", "who", "did", "about", "why")
    list_filter: ClassVar = [
        choice_of("action", lambda _: [(action, action) for action in listing.actions()]),
        *(choice("age", AGES), typed("actor"), typed("target")),
    ]
    search_help_text = "Start of an actor, target or action"
    export_fields = ("id", "at", "actor", "action", "target", "reason", "before", "after")
    fields = ("at", "actor", "action", "target", "reason", "before", "after")

    who = column("actor", lambda entry: words(entry.actor))
    did = column("action", lambda entry: unbroken(entry.action))
    about = column("target", lambda entry: words(entry.target))
    why = column("reason", lambda entry: words(entry.reason) if entry.reason else UNKNOWN)

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        return listing.entries(wanted, timezone.now())
