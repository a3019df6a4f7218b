"""Policies: what each says, what its next version shall say, and the versions that there were."""

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import CharField, Count, F, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Concat
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from unfold.decorators import display

from engines import policies
from engines.admin import links
from engines.admin.policy_form import NewPolicyForm, PolicyForm
from engines.admin.policy_history import conflict, history
from engines.core.errors import EngineError
from engines.models import Policy
from engines.policies import StalePolicyError
from ergon_site.access.core.roles import Right, reason_missing
from ergon_site.access.detail import DetailPage
from ergon_site.access.models import AuditEntry
from ergon_site.access.pages import actor

NEW: dict[str, Any] = {
    "submit_text": "Make the policy",
    "intro": "Every field begins with its default. You set them on the next page.",
}


@admin.register(Policy)
class PoliciesPage(DetailPage):
    edit_right = Right.EDIT_POLICIES
    refused_by = (EngineError,)
    detail_template = "console/policy.html"
    new_title = "New policy"
    list_display = ("name", "kind", "version", "governed", "changed_by", "changed_at")
    list_filter: ClassVar = ["kind"]
    search_fields = ("name__startswith",)
    search_help_text = "The beginning of a name."
    export_fields = ("name", "kind", "active__number", "governed_count", "last_by", "last_at")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.preview_view)
        return [path("<path:object_id>/preview/", view, name="engines_policy_preview"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Policy]:
        """With who changed each last: wrote or activated a version of it."""
        target = Concat(Value("policy "), OuterRef("name"), output_field=CharField())
        newest = AuditEntry.objects.filter(target=target).order_by("-at", "-id")
        rows: QuerySet[Policy] = super().get_queryset(request).select_related("active")
        return rows.annotate(
            governed_count=Count("pipelines"),
            last_by=Coalesce(Subquery(newest.values("actor")[:1]), F("active__author")),
            last_at=Coalesce(Subquery(newest.values("at")[:1]), F("active__created_at")),
        )

    @display(description="version", ordering="active__number")
    def version(self, policy: Any) -> str:
        return f"v{policy.active.number}"

    @display(description="pipelines governed", ordering="governed_count")
    def governed(self, policy: Any) -> str:
        return links.anchor(links.governed(policy), policy.governed_count)

    @display(description="last changed by", ordering="last_by")
    def changed_by(self, policy: Any) -> str:
        return str(policy.last_by)

    @display(description="last changed", ordering="last_at")
    def changed_at(self, policy: Any) -> Any:
        return policy.last_at

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = NewPolicyForm(request.POST or None)
        made = self.attempt(form, lambda: self._begin(request, form.cleaned_data))
        return made or self.page(request, "console/form.html", "New policy", form=form, **NEW)

    def change_view(self, request: HttpRequest, object_id: str, *_: Any, **__: Any) -> HttpResponse:
        policy, may_edit = self.row(request, object_id), self.has_change_permission(request)
        if request.method == "POST" and not may_edit:
            raise PermissionDenied
        form, quicker = PolicyForm(policy, request.POST or None, is_open=may_edit), None
        if form.is_valid():
            try:
                return self._write(request, policy, form)
            except StalePolicyError:
                policy = self.row(request, object_id)
                quicker = conflict(policy, form.cleaned_data["expected"])
                form = form.reopened(policy, request.POST)
        refusal = "" if may_edit else reason_missing(Right.EDIT_POLICIES)
        context = {"form": form, "conflict": quicker, "refusal": refusal, "governed": policy.pipelines.all()}
        return self.page(request, self.detail_template, policy.name, policy, **context, **history(request, policy))

    def preview_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The drawings of the steps, as the form has it now."""
        form = PolicyForm(self.row(request, object_id), request.POST or None)
        return TemplateResponse(request, "console/policy_preview.html", {"sections": form.sections()})

    def _begin(self, request: HttpRequest, new: dict[str, Any]) -> HttpResponse:
        terms = {"kind": new["kind"], "reason": new["reason"], "expected": 0}
        version = policies.write(new["name"], {}, by=actor(request), **terms)
        messages.success(request, f"The policy {new['name']} is made. Set its fields here.")
        return redirect(self.address(version.policy_id))

    def _write(self, request: HttpRequest, policy: Policy, form: PolicyForm) -> HttpResponse:
        terms = {"reason": form.cleaned_data["reason"], "expected": form.cleaned_data["expected"]}
        version = policies.write(policy.name, form.body(), by=actor(request), **terms)
        messages.success(
            request, f"Version {version.number} is in force. Running engines pick it up at their next batch."
        )
        return redirect(self.address(policy.pk))
