"""The console's list of the policies of an app, and the page of one: what it says, its next version, all versions."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import F, Max, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from ergon_site.access.console.cells import column
from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.pages import actor
from ergon_site.access.core import differences
from ergon_site.access.core.roles import Right, reason_missing
from ergon_site.access.core.texts import sentence
from ergon_site.access.models import AuditEntry
from ergon_site.access.policies import history
from ergon_site.access.policies.errors import PolicyRefusal, StalePolicyError
from ergon_site.access.policies.form import PolicyForm
from ergon_site.access.policies.sections import Layout, sections

NEW: dict[str, Any] = {
    "submit_text": "Create policy",
    "intro": "All fields start with their defaults. You set them on the next page.",
}


class Preset(NamedTuple):
    """Values that the form can be filled with, by their paths."""

    name: str
    title: str
    meaning: str
    values: Mapping[str, Any]


class PolicyPage(DetailPage):
    """An app names its `verbs` (`Policies`, or functions alike) and the `new_form`: the identity, and the reason.

    Offers the columns `version`, `changed_by` and `changed_at`; `last_by` and `last_at` can be exported.
    """

    edit_right = Right.EDIT_POLICIES
    new_title = "New policy"
    search_help_text = "Start of a name"

    related = ("active",)
    verbs: Any
    new_form: ClassVar[type[forms.Form]]
    new_terms = NEW
    # What becomes of a version that is put in force.
    effect: ClassVar[str] = ""
    refused_by: ClassVar[tuple[type[Exception], ...]] = (PolicyRefusal, ValueError)
    detail_template = "console/policy.html"

    version = column("version", lambda policy: f"v{policy.active.number}", ordering="active__number")
    changed_by = column("last changed by", lambda policy: str(policy.last_by), ordering="last_by")
    changed_at = column("last changed", lambda policy: policy.last_at, ordering="last_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With who changed each last: wrote or activated a version of it."""
        newest = AuditEntry.objects.filter(target=self.model.target_of_each()).order_by("-at", "-id")
        rows: QuerySet[Any] = super().get_queryset(request)
        last = {
            "last_by": Coalesce(Subquery(newest.values("actor")[:1]), F("active__author")),
            "last_at": Coalesce(Subquery(newest.values("at")[:1]), F("active__created_at")),
        }
        annotated: QuerySet[Any] = rows.annotate(**last)
        return annotated

    def layout(self, policy: Any) -> Layout:
        """The layout of the form."""
        return Layout()

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Further values for a template of the app."""
        return {}

    def first_body(self, new: dict[str, Any]) -> dict[str, Any]:
        """The first content of a policy that `new_form` asks for, where that is not the default."""
        return {}

    def get_urls(self) -> list[URLPattern]:
        view, name = self.admin_site.admin_view(self.preview_view), f"{self.opts.app_label}_{self.opts.model_name}"
        return [path("<path:object_id>/preview/", view, name=f"{name}_preview"), *super().get_urls()]

    def filled_form(self, request: HttpRequest) -> forms.Form:
        return self.new_form(request.POST or None, initial=request.GET.dict())

    def make(self, request: HttpRequest, form: forms.Form) -> HttpResponse:
        new = form.cleaned_data
        key = [new[column] for column in self.model.identity]
        terms = {name: value for name, value in new.items() if name not in self.model.identity}
        version = self.verbs.write(*key, body=self.first_body(new), by=actor(request), expected=0, **terms)
        messages.success(request, f"The policy {version.policy} was created. Set its fields here.")
        return redirect(self.address(version.policy_id))

    def presets(self, policy: Any) -> Sequence[Preset]:
        """Values that the form can be filled with."""
        return ()

    def review(self, request: HttpRequest, policy: Any, body: dict[str, Any]) -> dict[str, Any]:
        """What an app shows besides the changes, before they are saved."""
        return {}

    def change_view(self, request: HttpRequest, object_id: str, *_: Any, **__: Any) -> HttpResponse:
        policy, may_edit = self.row(request, object_id), self.has_change_permission(request)
        if request.method == "POST" and not may_edit:
            raise PermissionDenied
        sent, conflict = request.POST, None
        act = next((name for name in ("preset", "edit", "review") if name in sent), "save")
        form = PolicyForm(policy, sent or None, is_open=may_edit, is_draft=act != "save")
        if sent and act == "preset":
            return self._filled(request, policy, form)
        if sent and act != "edit" and form.is_changed():
            if act == "review":
                return self._review(request, policy, form)
            try:
                return self._saved(request, policy, form)
            except StalePolicyError:
                # The same input again, on top of the version that is in force by now; and what has changed meanwhile.
                policy = self.row(request, object_id)
                opened = policy.versions.filter(number=form.cleaned_data["expected"]).first()
                changes = history.between(policy, opened, policy.active) if opened else []
                conflict = {"version": policy.active, "changes": changes}
                form = PolicyForm(policy, {**sent.dict(), "expected": policy.active.number}, is_draft=True)
            except self.refused_by as error:
                form.add_error(None, sentence(error))
        if set(form.errors) == {"reason"}:
            return self._review(request, policy, form)
        return self._form(request, policy, form, conflict=conflict)

    def preview_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The previews of the form's present values."""
        policy = self.row(request, object_id)
        context = self._laid_out(PolicyForm(policy, request.POST or None, is_draft=True), policy)
        return TemplateResponse(request, "console/policy_preview.html", context)

    def _form(self, request: HttpRequest, policy: Any, form: PolicyForm, **shown: Any) -> HttpResponse:
        refusal = "" if self.has_change_permission(request) else reason_missing(Right.EDIT_POLICIES)
        context = {"form": form, "refusal": refusal, "presets": self.presets(policy), **shown}
        context |= self._laid_out(form, policy)
        context |= history.history_context(request, policy) | self.details(request, policy)
        return self.page(request, self.detail_template, str(policy), policy, **context)

    def _filled(self, request: HttpRequest, policy: Any, form: PolicyForm) -> HttpResponse:
        """The form with the values of a preset, and what those change in it."""
        preset = next((one for one in self.presets(policy) if one.name == request.POST["preset"]), None)
        if preset is None:
            raise Http404
        filled = PolicyForm(policy, form.with_values(preset.values), is_draft=True)
        changes: list[dict[str, str]] = []
        if filled.is_valid():
            changes = history.in_words(policy, differences.changes(filled.before, filled.body()))
        return self._form(request, policy, filled, preset={"title": preset.title, "changes": changes})

    def _review(self, request: HttpRequest, policy: Any, form: PolicyForm) -> HttpResponse:
        """What the form would change, before it is saved."""
        body = form.body()
        changes = history.in_words(policy, differences.changes(form.before, body))
        context = {"form": form, "changes": changes, "effect": self.effect, "next_number": self._next_number(policy)}
        context["form_address"] = self.address(policy.pk)
        context |= self.review(request, policy, body)
        return self.page(request, "console/policy_review.html", f"Review changes of {policy}", policy, **context)

    def _next_number(self, policy: Any) -> int:
        return int(policy.versions.aggregate(number=Max("number"))["number"]) + 1

    def _saved(self, request: HttpRequest, policy: Any, form: PolicyForm) -> HttpResponse:
        terms = {name: form.cleaned_data[name] for name in ("reason", "expected")}
        version = self.verbs.write(*policy.key, body=form.body(), by=actor(request), **terms)
        messages.success(request, f"Version {version.number} is active. {self.effect}".strip())
        return redirect(self.address(policy.pk))

    def _laid_out(self, form: PolicyForm, policy: Any) -> dict[str, Any]:
        layout = self.layout(policy)
        preview = history.page(policy, "preview", policy.pk) if layout.drawings else ""
        shown = list(sections(form, layout))
        return {
            "sections": [one for one in shown if "is_folded" not in one],
            "folded": [one for one in shown if "is_folded" in one],
            "preview_address": preview,
        }
