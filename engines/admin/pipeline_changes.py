"""What people do with pipelines: pause, resume, try, make, change."""

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

PAUSE = {"title": "Pause the pipeline", "description": "Nothing new is begun from now on; what runs is let end."}
RESUME = {"title": "Resume the pipeline", "description": "What waits is begun again at once."}
TRY = {
    "submit_text": "Submit the test",
    "intro": "The transaction is kept and run like every other one, with all that its task does.",
}
CHANGE = {
    "submit_text": "Save",
    "intro": "Running consumers see the change at their next batch, some of it only when they start anew.",
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
        messages.success(request, "Paused: nothing new is begun until somebody resumes it.")
        return done(self.address(object_id))

    @dialog_action(description="Resume", url_path="resume", permissions=["operate"], dialog=RESUME)
    def resume(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        name = self.row(request, object_id).name
        pipelines.resume(name, by=actor(request), reason=form.cleaned_data["reason"])
        messages.success(request, "Resumed: what waits is begun again.")
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
        return made or self.page(
            request, "console/form.html", "New pipeline", form=form, submit_text="Make the pipeline"
        )

    def _submit(self, request: HttpRequest, row: Pipeline, payload: Any) -> HttpResponse:
        uid = pipelines.submit_test(row.name, payload, by=actor(request)).id
        messages.success(request, format_html("Submitted as {}.", links.anchor(links.transaction(uid), uid)))
        return redirect(self.address(row.pk))

    def _amend(self, request: HttpRequest, row: Pipeline, form: PipelineForm) -> HttpResponse:
        pipelines.amend(row.name, form.plan(), by=actor(request), reason=form.cleaned_data["reason"])
        messages.success(request, f"The pipeline {row} is changed.")
        return redirect(self.address(row.pk))

    def _make(self, request: HttpRequest, form: PipelineForm) -> HttpResponse:
        name, reason = form.cleaned_data["name"], form.cleaned_data["reason"]
        row = pipelines.create(name, form.plan(), by=actor(request), reason=reason)
        messages.success(request, f"The pipeline {row} is made.")
        return redirect(self.address(row.pk))
