"""Policies: what each says, what its next version shall say, and which pipelines it governs."""

from dataclasses import fields
from typing import Any, ClassVar

from django import forms
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminSelectWidget

from engines import policies
from engines.admin import links
from engines.admin.forms import NameField
from engines.core import retry_preview
from engines.core.errors import EngineError
from engines.core.policy import RetryPolicy
from engines.models import KINDS, Policy, PolicyVersion
from ergon_site.access.console.cells import anchor, column
from ergon_site.access.console.fields import WhyField
from ergon_site.access.console.pages import registered
from ergon_site.access.core import ruled
from ergon_site.access.policies.page import PolicyPage
from ergon_site.access.policies.sections import Drawing, Layout
from ergon_site.access.policies.version_page import VersionPage, activation

HEADINGS = {"loop": "Limits", "steps.fetch": "Source"}


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
    audited = r"policy (?P<name>.+)"
    verbs = policies
    new_form = NewPolicyForm
    effect = EFFECT
    refused_by = (EngineError,)
    detail_template = "console/pipeline_policy.html"
    list_display = ("name", "kind", "version", "governed", "changed_by", "changed_at")
    list_filter: ClassVar = ["kind"]
    search_fields = ("name__startswith",)
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
            rest="Other",
            drawings={
                step: Drawing(
                    path=f"{step}.retry",
                    draw=lambda values: retry_preview.preview(RetryPolicy(**values)),
                    template="console/outlook.html",
                )
                for step in steps
            },
        )

    def details(self, request: HttpRequest, row: Policy) -> dict[str, Any]:
        return {"governed": row.pipelines.all()}


@registered(PolicyVersion)
class PolicyVersionsPage(VersionPage):
    verbs = policies
    detail_template = "console/pipeline_policy_version.html"
    search_fields = ("policy__name__startswith", "author__startswith")
    export_fields = ("policy__name", "number", "author", "created_at", "reason", "changes", "body")
    activate = activation(PolicyVersion, EFFECT)
