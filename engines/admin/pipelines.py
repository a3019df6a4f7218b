"""Pipelines: what each is and how it is doing."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from engines.admin import links
from engines.admin.pausing import PausedFilter
from engines.admin.pipeline_changes import PipelineChanges
from engines.admin.pipeline_parts import PipelineColumns, PipelineList, live
from engines.models import Pipeline
from ergon_site.access.buttons import bar, button
from ergon_site.access.core.roles import Right


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
