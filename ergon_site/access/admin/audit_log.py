"""The audit log: read, searched, exported, never written here."""

from typing import ClassVar

from django.contrib import admin

from ergon_site.access.core.roles import Right
from ergon_site.access.models import AuditEntry
from ergon_site.access.pages import ConsolePage


@admin.register(AuditEntry)
class AuditLogPage(ConsolePage):
    view_right = Right.AUDIT
    list_display = ("at", "actor", "action", "target", "reason")
    list_display_links = ("at",)
    list_filter: ClassVar = ["action", "at"]
    search_fields = ("actor__startswith", "target__startswith", "action__startswith")
    search_help_text = "The beginning of an actor, a target or an action."
    export_fields = ("id", "at", "actor", "action", "target", "reason", "before", "after")
    fields = ("at", "actor", "action", "target", "reason", "before", "after")
