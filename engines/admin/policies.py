"""Policies: what each says, what its next version shall say, and which pipelines it governs."""

from dataclasses import fields
from datetime import timedelta
from http import HTTPStatus
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import BadRequest
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.dateparse import parse_datetime
from unfold.widgets import UnfoldAdminSelectWidget

from engines import policies, rehearsals
from engines.admin import links
from engines.admin.forms import NameField
from engines.core import rehearsal_report, retry_preview
from engines.core.errors import EngineError
from engines.core.policy import RetryPolicy
from engines.core.presets import PRESETS
from engines.core.rehearsal import Rehearsal
from engines.models import KINDS, Policy, PolicyRehearsal, PolicyVersion
from engines.rehearsals import RehearsalUnknownError
from ergon_site.access.console.cells import anchor, column
from ergon_site.access.console.fields import WhyField
from ergon_site.access.console.pages import actor, registered
from ergon_site.access.core import ruled
from ergon_site.access.database.clock import database_time
from ergon_site.access.parameters import instant
from ergon_site.access.policies.page import PolicyPage, Preset
from ergon_site.access.policies.sections import Drawing, Layout
from ergon_site.access.policies.version_page import VersionPage, activation

HEADINGS = {"loop": "Limits", "steps.fetch": "Source"}
FIRST = {
    "Load": {
        "loop.concurrency.value": "Concurrency",
        "loop.batch.size": "Batch size",
        "loop.transaction_timeout": "Transaction timeout",
    }
}
REHEARSAL = "engines_policy_rehearsal"
# Maintenance looks for work every second.
LATE = timedelta(seconds=10)
EXAMPLES = {"dead_letters": "Would have become dead letters", "unknown": "End unknown"}
EFFECT = "Running engines apply it from their next batch on."


class NewPolicyForm(forms.Form):
    """A policy that begins with every default."""

    name = NameField("policy", Policy)
    kind = forms.ChoiceField(
        choices=KINDS,
        widget=UnfoldAdminSelectWidget,
        help_text="Consumer policies are for inbound pipelines, producer policies for outbound ones.",
    )
    reason = WhyField()


@registered(Policy)
class PoliciesPage(PolicyPage):
    verbs = policies
    new_form = NewPolicyForm
    effect = EFFECT
    refused_by = (EngineError,)
    detail_template = "console/pipeline_policy.html"
    list_display = ("name", "kind", "version", "governed", "changed_by", "changed_at")
    list_filter: ClassVar = ["kind"]
    search_fields = ("name__startswith",)
    found_by = "name"
    export_fields = ("name", "kind", "active__number", "governed_count", "last_by", "last_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Policy]:
        rows: QuerySet[Policy] = super().get_queryset(request)
        return rows.annotate(governed_count=Count("pipelines"))

    governed = column(
        "pipelines",
        lambda policy: anchor(links.rows("pipeline", policy__id__exact=policy.pk), policy.governed_count),
        ordering="governed_count",
    )

    def layout(self, policy: Policy) -> Layout:
        steps = [f"steps.{step.name}" for step in fields(ruled.rule(policy.value_class, "steps")["kind"])]
        return Layout(
            sections=("loop", *steps),
            headings=HEADINGS,
            drawings={
                step: Drawing(
                    path=f"{step}.retry",
                    draw=lambda values: retry_preview.preview(RetryPolicy(**values)),
                    template="console/outlook.html",
                )
                for step in steps
            },
            first=FIRST,
            unfolded=frozenset({"steps.process", "steps.produce"}),
        )

    def presets(self, policy: Policy) -> list[Preset]:
        return [Preset(one.name, one.title, one.meaning, one.body(policy.kind)) for one in PRESETS]

    def details(self, request: HttpRequest, row: Policy) -> dict[str, Any]:
        return {"governed": row.pipelines.all()}

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.rehearsal_view)
        return [path("<path:object_id>/rehearsal/<int:number>/", view, name=REHEARSAL), *super().get_urls()]

    def review(self, request: HttpRequest, policy: Policy, body: dict[str, Any]) -> dict[str, Any]:
        asked = rehearsals.begin(policy, body, by=actor(request))
        return {"review_template": "console/rehearsal.html", **rehearsed(asked)}

    def rehearsal_view(self, request: HttpRequest, object_id: str, number: int) -> HttpResponse:
        """A rehearsal as it is now, a part of the page that waits for it; a POST says that this page was left."""
        try:
            asked = rehearsals.find(self.row(request, object_id), number)
        except RehearsalUnknownError as error:
            raise Http404 from error
        if request.method == "POST":
            try:
                asked_at = instant(request.POST.get("asked_at"))
            except ValueError as error:
                raise BadRequest(str(error)) from error
            rehearsals.leave(asked, by=actor(request), asked_at=asked_at)
            return HttpResponse(status=HTTPStatus.NO_CONTENT)
        return TemplateResponse(request, "console/rehearsal.html", rehearsed(asked))


def rehearsed(asked: PolicyRehearsal) -> dict[str, Any]:
    """A rehearsal, its figures if it is done, and examples with links."""
    shown: dict[str, Any] = {"rehearsal": asked, "is_late": database_time() - asked.created_at > LATE}
    shown["rehearsal_address"] = reverse(f"ergon:{REHEARSAL}", args=[asked.policy_id, asked.pk])
    if asked.result is None:
        return shown
    return shown | {
        "figures": rehearsal_report.figures(Rehearsal.from_dict(asked.result["total"])),
        "size": rehearsal_report.size(asked.result),
        "notes": rehearsal_report.notes(asked.result),
        "pipelines": [
            {
                "name": one["name"],
                "is_capped": one["is_capped"],
                "oldest": parse_datetime(one["oldest"] or ""),
                "figures": rehearsal_report.figures(Rehearsal.from_dict(one["figures"])),
                "sample": one["figures"]["transactions"],
            }
            for one in asked.result["pipelines"]
        ],
        "examples": [
            {"title": EXAMPLES[name], "rows": [(uid, links.rows("transactionrecord", q=uid)) for uid in uids]}
            for name, uids in asked.result["examples"].items()
            if uids
        ],
    }


@registered(PolicyVersion)
class PolicyVersionsPage(VersionPage):
    verbs = policies
    detail_template = "console/pipeline_policy_version.html"
    search_fields = ("policy__name__startswith", "author__startswith")
    export_fields = ("policy__name", "number", "author", "created_at", "reason", "changes", "body")
    activate = activation(PolicyVersion, EFFECT)

    def details(self, request: HttpRequest, row: PolicyVersion) -> dict[str, Any]:
        kept = row.rehearsals.order_by("-id").first()
        return super().details(request, row) | (rehearsed(kept) if kept else {})
