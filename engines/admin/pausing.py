"""What the pages of pipelines and schedules share: making one with a form, pausing and resuming it for a reason."""

from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.db.models import Case, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from unfold.decorators import display

from engines.admin.parts import Act
from engines.core.errors import EngineError
from engines.models import Pipeline, Schedule
from ergon_site.access.console.cells import tag, with_note
from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.pages import actor
from ergon_site.access.console.palette import Deed
from ergon_site.access.console.selection import EXPORT, BoxedPage, BulkAct
from ergon_site.access.console.states import choices
from ergon_site.access.core.roles import Right

PAUSE, RESUME = Act("Pause", "pause", Right.OPERATE), Act("Resume", "resume", Right.OPERATE)


BULK = (
    BulkAct(title="Pause", verb="pause", past="paused", meaning="Nothing new starts until they are resumed."),
    BulkAct(title="Resume", verb="resume", past="resumed", meaning="They go on at once."),
    EXPORT,
)


class PausedFilter(admin.SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        named = choices("pipeline", "paused", "active")
        return [("paused", named["paused"]), ("open", named["active"])]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(paused_at__isnull=self.value() == "open") if self.value() else queryset


def by_name(verb: Callable[..., object]) -> Callable[..., object]:
    return lambda row, **why: verb(row.name, **why)


def turn_of(row: Pipeline | Schedule) -> Act:
    """The one of the two that a row can do now."""
    return RESUME if row.paused_at else PAUSE


class PausablePage(BoxedPage, DetailPage):
    """A page of rows that people make by a name and a plan, and that they pause and resume."""

    edit_right = Right.LEAD
    refused_by = (EngineError,)
    bulk_acts = BULK
    new: Callable[..., Any]
    submit_text: ClassVar[str] = ""
    found_by = "name"
    found_mark = Case(When(paused_at=None, then=Value("active")), default=Value("paused"))
    deeds = (Deed("Pause", "pause", Right.OPERATE, "active"), Deed("Resume", "resume", Right.OPERATE, "paused"))

    @display(description="state", ordering="paused_at")
    def state(self, row: Pipeline | Schedule) -> str:
        """Active, or paused by whom and why."""
        if row.paused_at is None:
            return tag("active", "pipeline")
        return with_note(tag("paused", "pipeline"), f"by {row.paused_by}: {row.pause_reason}")

    def new_context(self, request: HttpRequest) -> dict[str, Any]:
        return {"submit_text": self.submit_text}

    def make(self, request: HttpRequest, form: Any) -> HttpResponse:
        name, reason = form.cleaned_data["name"], form.cleaned_data["reason"]
        row = self.new(name, form.plan(), by=actor(request), reason=reason)
        messages.success(request, f"The {self.opts.verbose_name} {row} was created.")
        return redirect(self.address(row.pk))
