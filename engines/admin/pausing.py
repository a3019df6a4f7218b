"""Pause and resume, with a reason: shared by the pages of pipelines and schedules."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from unfold.decorators import display

from engines.models import Pipeline, Schedule


class PausedFilter(admin.SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("paused", "Paused"), ("open", "Not paused")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(paused_at__isnull=self.value() == "open") if self.value() else queryset


class PausableColumns:
    @display(description="state", ordering="paused_at")
    def state(self, row: Pipeline | Schedule) -> str:
        """Active, or paused by whom and why."""
        if row.paused_at is None:
            return tag("active", "good")
        return format_html(
            '<div class="ergon-cell">{}<div class="ergon-why">by {}: {}</div></div>',
            tag("paused", "warning"),
            row.paused_by,
            row.pause_reason,
        )


def tag(word: str, kind: str) -> str:
    return format_html('<span class="ergon-tag ergon-tag-{}">{}</span>', kind, word)
