"""What the pages of pipelines and schedules share: making one with a form, pausing and resuming it for a reason."""

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from unfold.decorators import display

from engines.admin.parts import Act, RelatedPage
from engines.core.errors import EngineError
from engines.models import Pipeline, Schedule
from ergon_site.access.core.roles import Right
from ergon_site.access.lists import tag
from ergon_site.access.pages import actor, holds

PAUSE, RESUME = Act("Pause", "pause", Right.OPERATE), Act("Resume", "resume", Right.OPERATE)
KINDS = {"active": "good", "paused": "warning", "late": "warning"}


class PausedFilter(admin.SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("paused", "Paused"), ("open", "Not paused")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(paused_at__isnull=self.value() == "open") if self.value() else queryset


def by_name(verb: Callable[..., object]) -> Callable[..., object]:
    return lambda row, **why: verb(row.name, **why)


def turn_of(row: Pipeline | Schedule) -> Act:
    """The one of the two that a row can do now."""
    return RESUME if row.paused_at else PAUSE


class PausablePage(RelatedPage):
    """A page of rows that people make by a name and a plan, and that they pause and resume."""

    edit_right = Right.LEAD
    refused_by = (EngineError,)
    new: Callable[..., Any]
    new_form: ClassVar[type[forms.Form]]
    new_template: ClassVar[str] = "console/form.html"
    submit_text: ClassVar[str] = ""

    def has_operate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return holds(request, Right.OPERATE)

    @display(description="state", ordering="paused_at")
    def state(self, row: Pipeline | Schedule) -> str:
        """Active, or paused by whom and why."""
        if row.paused_at is None:
            return tag("active", KINDS)
        return format_html(
            '<div class="ergon-cell">{}<div class="ergon-why">by {}: {}</div></div>',
            tag("paused", KINDS),
            row.paused_by,
            row.pause_reason,
        )

    def new_context(self, request: HttpRequest) -> dict[str, Any]:
        """What the page of a new row shows besides its form."""
        return {"submit_text": self.submit_text}

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form: Any = self.new_form(request.POST or None)

        def make() -> HttpResponse:
            name, reason = form.cleaned_data["name"], form.cleaned_data["reason"]
            row = self.new(name, form.plan(), by=actor(request), reason=reason)
            messages.success(request, f"The {self.opts.verbose_name} {row} was created.")
            return redirect(self.address(row.pk))

        made = self.attempt(form, make)
        return made or self.page(request, self.new_template, self.new_title, form=form, **self.new_context(request))
