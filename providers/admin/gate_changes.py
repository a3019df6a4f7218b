"""The actions on capabilities: reset and force breakers, set and remove quotas."""

from functools import partial
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from unfold.decorators import action

from ergon_site.access.core.roles import Right
from ergon_site.access.dialogs import dialog_action
from ergon_site.access.pages import ReasonForm, actor, done, holds
from providers import calls
from providers.admin.forms import ForceForm, NewQuotaForm, QuotaForm
from providers.admin.lists import KeysetDetailPage
from providers.calls import OrderError
from providers.core.exchange import Who
from providers.models import Gate

RESET = {
    "title": "Reset the breaker",
    "description": "Closes the breaker, ends overrides and pauses and refills the retry budget, in all processes.",
}
OPEN = {
    "title": "Force the breaker open",
    "description": "All calls are blocked, whatever the state of the breaker.",
    "form_class": ForceForm,
}
CLOSE = {
    "title": "Force the breaker closed",
    "description": "Calls are allowed, whatever the state of the breaker. Quotas and pauses still apply.",
    "form_class": ForceForm,
}
DROP = {"title": "Remove quota", "description": "Calls are no longer limited. Recorded usage is kept."}
SET: dict[str, Any] = {
    "submit_text": "Set quota",
    "intro": "Usage of the current window is kept. A different window length starts a new window.",
}


class GateChanges(KeysetDetailPage):
    edit_right = Right.LEAD
    refused_by = (OrderError,)
    actions_detail = ("reset", "force_open", "force_close", "set_quota", "drop_quota")

    @dialog_action(description="Reset", url_path="reset", permissions=["operate"], dialog=RESET)
    def reset(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        return self._change(request, form, object_id, calls.reset, "Reset: the breaker is closed.")

    @dialog_action(description="Force open", url_path="force-open", permissions=["lead"], dialog=OPEN)
    def force_open(self, request: HttpRequest, form: ForceForm, object_id: str) -> HttpResponse:
        force = partial(calls.force_open, lasting=form.lasting)
        return self._change(request, form, object_id, force, "Forced open: all calls are blocked.")

    @dialog_action(description="Force closed", url_path="force-close", permissions=["lead"], dialog=CLOSE)
    def force_close(self, request: HttpRequest, form: ForceForm, object_id: str) -> HttpResponse:
        force = partial(calls.force_closed, lasting=form.lasting)
        text = "Forced closed: calls are allowed, whatever the state of the breaker."
        return self._change(request, form, object_id, force, text)

    @action(description="Set quota", url_path="quota", permissions=["lead"])
    def set_quota(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row: Gate = self.row(request, object_id)
        initial = {"limit": row.quota_limit, "window": f"{row.quota_window:g}"} if row.is_limited else {}
        form = QuotaForm(request.POST or None, initial=initial)
        changed = self.attempt(form, lambda: self._set(request, row.who, form.terms()))
        return changed or self.page(request, "console/form.html", f"The quota of {row}", row, form=form, **SET)

    @dialog_action(description="Remove quota", url_path="drop-quota", permissions=["lead"], dialog=DROP)
    def drop_quota(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        return self._change(request, form, object_id, calls.drop_quota, "Quota removed.")

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        if not holds(request, Right.LEAD):
            raise PermissionDenied
        form = NewQuotaForm(request.POST or None)
        made = self.attempt(form, lambda: self._set(request, form.who(), form.terms()))
        return made or self.page(request, "console/form.html", self.new_title, form=form, **SET)

    def _set(self, request: HttpRequest, who: Who, terms: dict[str, Any]) -> HttpResponse:
        calls.set_quota(who, by=actor(request), **terms)
        messages.success(request, f"Set: {terms['limit']:,} calls in every {terms['window']:g} seconds.")
        return redirect(self.address(Gate.objects.values_list("pk", flat=True).get(**who._asdict())))

    def _change(self, request: HttpRequest, form: Any, object_id: str, verb: Any, text: str) -> HttpResponse:
        verb(self.row(request, object_id).who, by=actor(request), reason=form.cleaned_data["reason"])
        messages.success(request, text)
        return done(self.address(object_id))
