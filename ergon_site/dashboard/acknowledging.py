"""The dialogs that acknowledge an attention item and take that back."""

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import UnfoldAdminSelectWidget

from ergon_site.access import acknowledgements
from ergon_site.access.acknowledgements import AcknowledgementError
from ergon_site.access.console.pages import ReasonForm, actor, done, holds
from ergon_site.access.core.roles import Right
from ergon_site.access.core.texts import sentence
from ergon_site.access.database.clock import page_time
from ergon_site.dashboard import badges, reading

HOURS = {"1": "1 hour", "4": "4 hours", "24": "1 day", "72": "3 days", "168": "1 week"}


class AcknowledgeForm(ReasonForm):
    hours = forms.ChoiceField(label="For", choices=list(HOURS.items()), initial="4", widget=UnfoldAdminSelectWidget)
    field_order = ("hours", "reason")


ACKNOWLEDGE: dict[str, Any] = {
    "title": "Acknowledge the item",
    "description": "It is folded away with its consequences, and comes back when the time is over or it gets worse.",
    "submit": "Acknowledge",
    "form_class": AcknowledgeForm,
}
WITHDRAW: dict[str, Any] = {
    "title": "Show the item again",
    "description": "The acknowledgement is withdrawn.",
    "submit": "Show again",
    "form_class": ReasonForm,
}


def acknowledge(request: HttpRequest, shared: dict[str, Any]) -> HttpResponse:
    """Acknowledge the item whose key the address has, as it is now."""
    key = request.GET.get("key", "")

    def act(form: Any) -> str:
        found = reading.read(page_time(), is_administrator=holds(request, Right.ADMINISTER))
        lasting = timedelta(hours=int(form.cleaned_data["hours"]))
        why = {"by": actor(request), "reason": form.cleaned_data["reason"]}
        word = acknowledgements.acknowledge(found.board.find(key), key, lasting, **why)
        return f"Acknowledged until {word.until:%Y-%m-%d %H:%M} UTC."

    return _ask(request, shared, ACKNOWLEDGE, act)


def withdraw(request: HttpRequest, shared: dict[str, Any]) -> HttpResponse:
    def act(form: Any) -> str:
        why = {"by": actor(request), "reason": form.cleaned_data["reason"]}
        acknowledgements.withdraw(request.GET.get("key", ""), **why)
        return "The item is shown again."

    return _ask(request, shared, WITHDRAW, act)


def _ask(request: HttpRequest, shared: dict[str, Any], dialog: dict[str, Any], act: Any) -> HttpResponse:
    if not holds(request, Right.OPERATE):
        raise PermissionDenied
    form = dialog["form_class"](data=request.POST or None, request=request)
    address, is_scripted = reverse("ergon:index"), "HX-Request" in request.headers
    if form.is_valid():
        try:
            messages.success(request, act(form))
        except AcknowledgementError as error:
            messages.error(request, sentence(error))
        badges.forget()
        return done(address) if is_scripted else HttpResponseRedirect(address)
    context = {"dialog": dialog, "form": form, "address": address}
    if is_scripted:
        return TemplateResponse(request, "console/dialog.html", context)
    return TemplateResponse(request, "console/dialog_page.html", {**shared, "title": dialog["title"], **context})
