"""The console's page of one version of a policy: what it says, what it changed, and putting it in force."""

import json
from typing import Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from ergon_site.access.console.buttons import bar
from ergon_site.access.console.cells import column
from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.dialogs import dialog_action
from ergon_site.access.console.pages import ReasonForm, actor, holds
from ergon_site.access.core.roles import Right
from ergon_site.access.policies import history
from ergon_site.access.policies.errors import PolicyRefusal
from ergon_site.access.policies.models import VersionRow

ACTIVE = {"active": "success"}


class ActivationForm(ReasonForm):
    """Asks why, and says what will change. `expected` is the version that was in force when the form was opened."""

    form_before_template = "console/activation.html"
    versions: ClassVar[QuerySet[Any]]

    expected = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.version = self.versions.get(pk=self.object_id)
        in_force = self.version.policy.active
        self.initial["expected"] = in_force.number if in_force else 0

    def get_before_template_context(self, request: HttpRequest, object_id: Any = None) -> dict[str, Any]:
        return {"version": self.version, **_beside_the_one_in_force(self.version)}


def activation(version_model: type[VersionRow], effect: str = "") -> Any:
    """The action that puts a version in force; `effect` says what becomes of it."""
    rows: QuerySet[Any] = version_model._default_manager.all()  # noqa: SLF001 (Django's own way)
    dialog = {
        "title": "Activate this version",
        "description": effect,
        "form_class": type("ActivationForm", (ActivationForm,), {"versions": rows.select_related("policy__active")}),
    }

    @dialog_action(description="Activate", url_path="activate", permissions=["activate"], dialog=dialog)
    def activate(page: "VersionPage", request: HttpRequest, form: ActivationForm, object_id: str) -> HttpResponse:
        version, policy = form.version, form.version.policy
        terms = {name: form.cleaned_data[name] for name in ("reason", "expected")}

        def put_in_force() -> str:
            page.verbs.activate(*policy.key, number=version.number, by=actor(request), **terms)
            return history.page(policy, "change", policy.pk)

        told = f"Version {version.number} of {policy} is now active."
        return page.carry_out(request, put_in_force, told, object_id)

    return activate


class VersionPage(DetailPage):
    """An app names its `verbs` (`Policies`, or functions alike) and its `activate`, an `activation`."""

    verbs: Any
    related = ("policy__active",)
    refused_by = (PolicyRefusal, ValueError)
    detail_template = "console/policy_version.html"
    list_display = ("__str__", "is_active", "author", "made", "reason")
    list_filter: ClassVar = ["policy"]
    search_help_text = "Start of a policy name or author"
    ordering = ("-id",)
    actions_detail = ("activate",)

    made = column("created", lambda one: one.created_at, ordering="created_at")
    is_active = column("active", lambda one: "active" if one.policy.active == one else None, label=ACTIVE)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        press = history.activation(request, row.policy, row)
        return {
            "bar": bar(*([press] if press else [])),
            "policy": row.policy,
            "policy_address": history.page(row.policy, "change", row.policy.pk),
            "says": json.dumps(row.policy.content(row).to_dict(), indent=2, ensure_ascii=False),
            **_beside_the_one_in_force(row),
        }

    def has_activate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return holds(request, Right.EDIT_POLICIES) and self.get_object(request, object_id or "") is not None


def _beside_the_one_in_force(version: VersionRow) -> dict[str, Any]:
    policy, in_force = version.policy, version.policy.active
    return {"in_force": in_force, "changes": history.between(policy, in_force, version) if in_force else []}
