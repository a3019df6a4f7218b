"""What the pages of pipelines and schedules share: making one with a form, pausing and resuming it for a reason."""

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from unfold.decorators import display

from engines.admin import parts
from engines.admin.parts import Act, RelatedPage
from engines.core.errors import EngineError
from engines.models import Pipeline, Schedule
from ergon_site.access.console.cells import tag, with_note
from ergon_site.access.console.pages import actor, holds
from ergon_site.access.core.roles import Right

KINDS = {"active": "good", "paused": "warning", "late": "warning"}


class PausedFilter(admin.SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("paused", "Paused"), ("open", "Not paused")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(paused_at__isnull=self.value() == "open") if self.value() else queryset


def pausing(name: str, dialog: dict[str, Any], verb: Callable[..., object], success: str) -> Any:
    """The action that pauses or resumes a row by its name."""
    return parts.decision(name, dialog, lambda row, **why: verb(row.name, **why), success)


def turn_of(row: Pipeline | Schedule) -> Act:
    """The one of the two that a row can do now."""
    verb = "resume" if row.paused_at else "pause"
    return Act(verb.capitalize(), verb, Right.OPERATE)


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
        return with_note(tag("paused", KINDS), f"by {row.paused_by}: {row.pause_reason}")

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
