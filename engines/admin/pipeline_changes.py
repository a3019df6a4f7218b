"""The actions on pipelines: pause, resume, test, create, change."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from unfold.decorators import action

from engines import pipelines
from engines.admin import links
from engines.admin.pipeline_forms import NewPipelineForm, PipelineForm, TrialForm, values_of
from engines.core.errors import EngineError
from engines.models import Pipeline
from ergon_site.access.core.roles import Right
from ergon_site.access.detail import DetailPage
from ergon_site.access.dialogs import dialog_action
from ergon_site.access.pages import ReasonForm, actor, done, holds

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
