"""One version of a policy: what it says, what it changed, and putting it in force."""

import json
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.decorators import action, display

from engines import policies
from engines.admin import links
from engines.admin.policy_history import activation, between
from engines.models import PolicyVersion
from ergon_site.access.buttons import bar
from ergon_site.access.core.roles import Right
from ergon_site.access.detail import DetailPage
from ergon_site.access.pages import ReasonForm, actor, done, holds


class ActivationForm(ReasonForm):
    """Asks why, and says what will change."""

    form_before_template = "console/activation.html"

    def get_before_template_context(self, request: HttpRequest, object_id: Any = None) -> dict[str, Any]:
        version = PolicyVersion.objects.select_related("policy__active").get(pk=object_id)
        in_force = version.policy.active
        changes = between(in_force, version, version.policy.kind) if in_force else []
        return {"version": version, "in_force": in_force, "changes": changes}


ACTIVATION = {
    "title": "Put this version in force",
    "description": "Running engines pick it up at their next batch.",
    "form_class": ActivationForm,
    "form_submit_text": "Confirm",
}


@admin.register(PolicyVersion)
class PolicyVersionsPage(DetailPage):
    detail_template = "console/policy_version.html"
    list_display = ("__str__", "is_active", "author", "created_at", "reason")
    list_filter: ClassVar = ["policy"]
    search_fields = ("policy__name__startswith", "author__startswith")
    search_help_text = "The beginning of a policy's name or of an author."
    ordering = ("-id",)
    actions_detail = ("activate",)
    export_fields = ("policy__name", "number", "author", "created_at", "reason", "changes", "body")

    def get_queryset(self, request: HttpRequest) -> QuerySet[PolicyVersion]:
        rows: QuerySet[PolicyVersion] = super().get_queryset(request)
        return rows.select_related("policy__active")

    @display(description="in force", label={"in force": "success"})
    def is_active(self, version: PolicyVersion) -> str | None:
        return "in force" if version.policy.active == version else None

    def details(self, request: HttpRequest, row: PolicyVersion) -> dict[str, Any]:
        in_force, press = row.policy.active, activation(request, row.policy, row)
        return {
            "bar": bar(*([press] if press else [])),
            "policy": row.policy,
            "policy_address": links.policy(row.policy),
            "differing": between(in_force, row, row.policy.kind) if in_force else [],
            "says": json.dumps(policies.read(row.policy.kind, row.body).to_dict(), indent=2, ensure_ascii=False),
        }

    def has_activate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return holds(request, Right.EDIT_POLICIES) and self.get_object(request, object_id or "") is not None

    @action(description="Activate", url_path="activate", permissions=["activate"], dialog=ACTIVATION)
    def activate(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        version = self.row(request, object_id)
        policies.activate(version.policy.name, version.number, by=actor(request), reason=form.cleaned_data["reason"])
        messages.success(request, f"Version {version.number} of {version.policy.name} is in force now.")
        return done(links.policy(version.policy))
