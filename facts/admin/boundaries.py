"""Boundaries: gate, backlog, lag, frontier and fill of each, and what a person can do about them."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from ergon_site.access.buttons import bar, button
from ergon_site.access.core.roles import Right
from facts.admin import links
from facts.admin.boundary_changes import BoundaryChanges, skipped_words
from facts.admin.boundary_list import BoundaryColumns, BoundaryList
from facts.admin.boundary_page import live
from facts.core.gates import Gate
from facts.models import Boundary


@admin.register(Boundary)
class BoundariesPage(BoundaryColumns, BoundaryChanges):
    detail_template = "console/boundary.html"
    new_title = "New boundary"
    empty_text = "A boundary connects two zones: create the zones first."
    list_display = ("pair", "gate_word", "backlog", "lag", "reached", "head", "fill")
    list_filter: ClassVar = ["gate"]
    search_fields = ("from_zone__name__startswith", "to_zone__name__startswith")
    search_help_text = "Start of either zone's name."
    export_fields = (
        *("from_zone__name", "to_zone__name", "gate", "gate_by", "gate_reason", "alarm", "failures", "source_url"),
        *("first_offset", "next_offset", "frontier", "stored_bytes", "row_ceiling", "byte_ceiling", "keep_days"),
        *("dedupe_days", "handed_over_at", "heard_at", "alarm_offset", "retired_at"),
    )

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.live_view)
        return [path("<path:object_id>/live/", view, name="facts_boundary_live"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Boundary]:
        rows: QuerySet[Boundary] = super().get_queryset(request)
        return rows.select_related("from_zone", "to_zone")

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[BoundaryList]:
        return BoundaryList

    def details(self, request: HttpRequest, row: Boundary) -> dict[str, Any]:
        address = {name: reverse(f"admin:facts_boundary_{name}", args=[row.pk]) for name in self.actions_detail}
        is_open = row.gate == Gate.NORMAL and not row.alarm
        opening = button(request, "Open the gate", address["open_gate"], right=Right.OPERATE)
        closing = button(request, "Close the gate", address["close_gate"], right=Right.OPERATE)
        limits = button(request, "Limits and retention", address["limit"], right=Right.LEAD, is_dialog=False)
        skip = button(request, _skip_title(row), address["skip"], right=Right.ADMINISTER)
        retire = button(request, "Retire", address["retire"], right=Right.LEAD)
        shown = [closing] if is_open else [opening] if row.gate == Gate.AUTONOMOUS else [opening, closing]
        shown += [skip] if row.alarm and row.alarm_offset is not None else []
        shown = [] if row.is_retired else [*shown, limits, retire]
        buffers = {buffer: links.facts(buffer, boundary=row.pk) for buffer in ("fact", "forwardedfact")}
        return {"bar": bar(*shown), "buffers": buffers, "consumers_address": links.consumers(row), **live(row)}

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The part of a boundary's page that refreshes itself."""
        return TemplateResponse(request, "console/boundary_live.html", live(self.row(request, object_id)))


def _skip_title(row: Boundary) -> str:
    return f"Skip {skipped_words(row.alarm_offset or 0, row.alarm_last)}"
