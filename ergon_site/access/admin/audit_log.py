"""The audit log: read, searched, exported, never written here."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from unfold.decorators import display

from ergon_site.access import listing
from ergon_site.access.console.cells import unbroken, words
from ergon_site.access.console.lists import Choice, KeysetPage, Typed
from ergon_site.access.core.roles import Right
from ergon_site.access.keyset import KeysetQuery
from ergon_site.access.models import AuditEntry


class ActionFilter(Choice):
    title = parameter_name = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(action, action) for action in listing.actions()]


class AgeFilter(Choice):
    title = parameter_name = "age"
    offered = {
        "under-1h": "younger than an hour",
        "under-1d": "younger than a day",
        "under-7d": "younger than a week",
        "under-30d": "younger than 30 days",
        "over-30d": "older than 30 days",
    }


class ActorFilter(Typed):
    title = parameter_name = "actor"


class TargetFilter(Typed):
    title = parameter_name = "target"


@admin.register(AuditEntry)
class AuditLogPage(KeysetPage):
    view_right = Right.AUDIT
    list_display: ClassVar = ("at", "who", "did", "about", "why")
    list_filter: ClassVar = [ActionFilter, AgeFilter, ActorFilter, TargetFilter]
    search_help_text = "Start of an actor, target or action"
    export_fields = ("id", "at", "actor", "action", "target", "reason", "before", "after")
    fields = ("at", "actor", "action", "target", "reason", "before", "after")

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        return listing.entries(wanted, timezone.now())

    @display(description="actor")
    def who(self, entry: AuditEntry) -> str:
        return words(entry.actor)

    @display(description="action")
    def did(self, entry: AuditEntry) -> str:
        return unbroken(entry.action)

    @display(description="target")
    def about(self, entry: AuditEntry) -> str:
        return words(entry.target)

    @display(description="reason")
    def why(self, entry: AuditEntry) -> str:
        return words(entry.reason) if entry.reason else "–"
