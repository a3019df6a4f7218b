"""Capabilities of providers: breaker, rates, quota and pauses of each, and what a person can do about them."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from ergon_site.access.buttons import bar, button
from ergon_site.access.core.roles import Right
from ergon_site.access.models import AuditEntry
from ergon_site.access.pages import holds
from providers.admin.gate_changes import GateChanges
from providers.admin.gate_list import GateColumns
from providers.admin.gate_page import live
from providers.models import Gate
from providers.reads import lists

SHOWN = 10


@admin.register(Gate)
class GatesPage(GateColumns, GateChanges):
    looked_for = staticmethod(lists.gates)
    detail_template = "console/provider.html"
    new_title = "Set quota"
    empty_text = "Capabilities are listed after their first call, or once they have a quota."

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.live_view)
        return [path("<path:object_id>/live/", view, name="providers_gate_live"), *super().get_urls()]

    def details(self, request: HttpRequest, row: Gate) -> dict[str, Any]:
        address = {name: reverse(f"admin:providers_gate_{name}", args=[row.pk]) for name in self.actions_detail}
        buttons = [
            button(request, "Reset", address["reset"], right=Right.OPERATE),
            button(request, "Force open", address["force_open"], right=Right.LEAD),
            button(request, "Force closed", address["force_close"], right=Right.LEAD),
            button(request, "Set quota", address["set_quota"], right=Right.LEAD, is_dialog=False),
        ]
        if row.is_limited:
            buttons.append(button(request, "Remove quota", address["drop_quota"], right=Right.LEAD))
        history = {"history": _history(row), "may_audit": holds(request, Right.AUDIT)}
        return {"bar": bar(*buttons), **history, **live(row)}

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The part of a capability's page that refreshes itself."""
        return TemplateResponse(request, "console/provider_live.html", live(self.row(request, object_id)))


def _history(row: Gate) -> list[AuditEntry]:
    """What people did to it: its own part of the audit log, for all who may see it."""
    return list(AuditEntry.objects.filter(target=str(row)[:300]).order_by("-at", "-id")[:SHOWN])
