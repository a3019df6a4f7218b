"""Pipelines: what each is and how it is doing."""

from collections.abc import Iterator
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from unfold.decorators import action, display

from engines import pipelines
from engines.admin import links
from engines.admin.pausing import PausableColumns, PausedFilter
from engines.admin.pipeline_forms import NewPipelineForm, PipelineForm, TrialForm, values_of
from engines.core.errors import EngineError
from engines.core.explanation import span
from engines.models import Pipeline
from engines.reads import explain, pipelines as figures, status
from engines.reads.pipelines import Standing
from ergon_site.access import minutes
from ergon_site.access.buttons import bar, button
from ergon_site.access.core.roles import Right
from ergon_site.access.database.clock import database_time
from ergon_site.access.detail import DetailPage
from ergon_site.access.dialogs import dialog_action
from ergon_site.access.pages import ConsoleList, ReasonForm, actor, done, holds

MINUTES = 60
ENDS = {"ok": "succeeded", "bad": "failed"}
MANY = 100
UNKNOWN = "–"


class PipelineList(ConsoleList):
    """The rows of a page of the list, with how each is doing."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        found = figures.statuses([row.pk for row in rows], database_time())
        for row in rows:
            row.standing = found[row.pk]
        self.result_list = rows


class PipelineColumns(PausableColumns):
    """Each number leads to the transactions behind it."""

    @display(description="runs", ordering="task")
    def runs(self, row: Any) -> str:
        runs = row.task or f"executor {row.executor}"
        return format_html('<div class="ergon-cell">{}<div class="ergon-why">{}</div></div>', runs, row.direction)

    @display(description="waiting")
    def waiting(self, row: Any) -> str:
        return links.anchor(links.transactions(row.name, "pending"), row.standing.depth)

    @display(description="oldest")
    def oldest(self, row: Any) -> str:
        return age(row.standing)

    @display(description="running")
    def running(self, row: Any) -> str:
        return links.anchor(links.transactions(row.name, "running"), f"{row.standing.running:,}")

    @display(description="rate (1 h)")
    def rate(self, row: Any) -> str:
        return links.anchor(links.transactions(row.name, "succeeded"), per_minute(row.standing))

    @display(description="failure rate (1 h)")
    def failing(self, row: Any) -> str:
        told = share(row.standing)
        return told if row.standing.failing is None else links.anchor(links.transactions(row.name, "failed"), told)

    @display(description="policy", ordering="policy__name")
    def governed_by(self, row: Any) -> str:
        return links.anchor(links.policy(row.policy), f"{row.policy.name} v{row.policy.active.number}")


def age(standing: Standing) -> str:
    if standing.oldest_age is None:
        return UNKNOWN
    return span(standing.oldest_age) if standing.oldest_age >= 0 else f"due in {span(-standing.oldest_age)}"


def per_minute(standing: Standing) -> str:
    rate = standing.per_minute
    return f"{rate:,.0f} / min" if rate >= MANY else f"{rate:.3g} / min"


def share(standing: Standing) -> str:
    return UNKNOWN if standing.failing is None else f"{standing.failing:.1%}"


def live(row: Pipeline) -> dict[str, Any]:
    """The part of a pipeline's page that refreshes itself."""
    now = database_time()
    return {
        "figures": list(_figures(row, figures.statuses([row.pk], now)[row.pk])),
        "chart": minutes.minute_chart(status.series(MINUTES, row.pk, now=now), "Finished per minute", ENDS),
        "serving": explain.serving(row),
        "read_at": now,
    }


def _figures(row: Pipeline, standing: Standing) -> Iterator[dict[str, str]]:
    for title, value, state in (
        ("Waiting", standing.depth, "pending"),
        ("Oldest pending", age(standing), "pending"),
        ("Running", f"{standing.running:,}", "running"),
        ("Rate, last hour", per_minute(standing), "succeeded"),
        ("Failure rate, last hour", share(standing), "failed"),
    ):
        yield {
            "title": title,
            "value": value,
            "address": "" if value == UNKNOWN else links.transactions(row.name, state),
        }


PAUSE = {"title": "Pause the pipeline", "description": "No new transactions are started; running ones finish."}
RESUME = {"title": "Resume the pipeline", "description": "Pending transactions start again at once."}
TRY = {
    "submit_text": "Submit the test",
    "intro": "The test runs like any other transaction, with all effects of its task.",
}
CHANGE = {
    "submit_text": "Save",
    "intro": "Running consumers apply most changes at their next batch, the rest after a restart.",
}


class PipelineChanges(DetailPage):
    edit_right = Right.LEAD
    refused_by = (EngineError,)
    actions_detail = ("pause", "resume", "submit_test", "edit")

    def has_operate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return holds(request, Right.OPERATE)

    @dialog_action(description="Pause", url_path="pause", permissions=["operate"], dialog=PAUSE)
    def pause(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        name = self.row(request, object_id).name
        pipelines.pause(name, by=actor(request), reason=form.cleaned_data["reason"])
        messages.success(request, "Paused: no new transactions start until the pipeline is resumed.")
        return done(self.address(object_id))

    @dialog_action(description="Resume", url_path="resume", permissions=["operate"], dialog=RESUME)
    def resume(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        name = self.row(request, object_id).name
        pipelines.resume(name, by=actor(request), reason=form.cleaned_data["reason"])
        messages.success(request, "Resumed: pending transactions start again.")
        return done(self.address(object_id))

    @action(description="Submit a test", url_path="submit-test", permissions=["operate"])
    def submit_test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row, form = self.row(request, object_id), TrialForm(request.POST or None)
        submitted = self.attempt(form, lambda: self._submit(request, row, form.cleaned_data["payload"]))
        return submitted or self.page(request, "console/form.html", f"Test {row}", row, form=form, **TRY)

    @action(description="Edit", url_path="edit", permissions=["change"])
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row = self.row(request, object_id)
        form = PipelineForm(request.POST or None, initial=values_of(row))
        changed = self.attempt(form, lambda: self._amend(request, row, form))
        return changed or self.page(request, "console/form.html", f"Edit {row}", row, form=form, **CHANGE)

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = NewPipelineForm(request.POST or None)
        made = self.attempt(form, lambda: self._make(request, form))
        return made or self.page(request, "console/form.html", "New pipeline", form=form, submit_text="Create pipeline")

    def _submit(self, request: HttpRequest, row: Pipeline, payload: Any) -> HttpResponse:
        uid = pipelines.submit_test(row.name, payload, by=actor(request)).id
        messages.success(request, format_html("Submitted as {}.", links.anchor(links.transaction(uid), uid)))
        return redirect(self.address(row.pk))

    def _amend(self, request: HttpRequest, row: Pipeline, form: PipelineForm) -> HttpResponse:
        pipelines.amend(row.name, form.plan(), by=actor(request), reason=form.cleaned_data["reason"])
        messages.success(request, f"The pipeline {row} was changed.")
        return redirect(self.address(row.pk))

    def _make(self, request: HttpRequest, form: PipelineForm) -> HttpResponse:
        name, reason = form.cleaned_data["name"], form.cleaned_data["reason"]
        row = pipelines.create(name, form.plan(), by=actor(request), reason=reason)
        messages.success(request, f"The pipeline {row} was created.")
        return redirect(self.address(row.pk))


@admin.register(Pipeline)
class PipelinesPage(PipelineColumns, PipelineChanges):
    detail_template = "console/pipeline.html"
    new_title = "New pipeline"
    empty_text = "A pipeline connects a task or an executor to a connector and a policy."
    list_display = ("name", "runs", "waiting", "oldest", "running", "rate", "failing", "state", "governed_by")
    list_filter: ClassVar = [PausedFilter, "direction", "policy"]
    search_fields = ("name__startswith", "task__startswith")
    search_help_text = "Start of a name or task."
    export_fields = ("name", "task", "executor", "direction", "connector", "policy__name", "paused_at", "paused_by")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.live_view)
        return [path("<path:object_id>/live/", view, name="engines_pipeline_live"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pipeline]:
        rows: QuerySet[Pipeline] = super().get_queryset(request)
        return rows.select_related("policy__active")

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[PipelineList]:
        return PipelineList

    def details(self, request: HttpRequest, row: Pipeline) -> dict[str, Any]:
        verb = "resume" if row.is_paused else "pause"
        address = {name: reverse(f"admin:engines_pipeline_{name}", args=[row.pk]) for name in self.actions_detail}
        return {
            "bar": bar(
                button(request, verb.capitalize(), address[verb], right=Right.OPERATE),
                button(request, "Submit a test", address["submit_test"], right=Right.OPERATE, is_dialog=False),
                button(request, "Edit", address["edit"], right=Right.LEAD, is_dialog=False),
            ),
            "policy_address": links.policy(row.policy),
            "schedules": row.schedules.all(),
            **live(row),
        }

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The part of a pipeline's page that refreshes itself."""
        return TemplateResponse(request, "console/pipeline_live.html", live(self.row(request, object_id)))
