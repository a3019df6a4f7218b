"""Edit and replay: change a payload, see the difference, then send it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from engines.admin import parts
from engines.admin.forms import PayloadForm
from engines.core.errors import EngineError
from ergon_site.access.core import differences
from ergon_site.access.detail import DetailPage, sentence


@dataclass(frozen=True, slots=True)
class Subject:
    """A row that is edited: its payload, the address of its page, and the verb that runs the edited payload."""

    row: Model
    address: str
    payload: Any
    redacted: list[str]
    verb: Callable[[Any, str], str]


def view(page: DetailPage, request: HttpRequest, subject: Subject) -> HttpResponse:
    """The editor; a payload that is nested beyond all measure leads back."""
    try:
        return _editor(page, request, subject)
    except RecursionError:
        messages.error(request, "The payload is nested too deeply to be edited here.")
        return HttpResponseRedirect(subject.address)


def _editor(page: DetailPage, request: HttpRequest, subject: Subject) -> HttpResponse:
    """The form; once its content is valid also what differs, and only what was seen so is sent."""
    form = PayloadForm(subject.payload, subject.redacted, request.POST or None)
    changes = None
    if form.is_valid():
        changes = differences.changes(subject.payload, form.cleaned_data["payload"])
        is_seen = "send" in request.POST and form.cleaned_data["seen"] == form.digest()
        if is_seen and (answer := _send(request, form, subject)):
            return answer
        form.data = {**request.POST.dict(), "seen": form.digest()}
    told = None if changes is None else parts.changes(changes, subject.redacted)
    context = {"form": form, "subject": subject, "changes": told}
    return page.page(request, "console/edit_payload.html", f"Edit and replay {subject.row}", subject.row, **context)


def _send(request: HttpRequest, form: PayloadForm, subject: Subject) -> HttpResponse | None:
    try:
        address = subject.verb(form.cleaned_data["payload"], form.cleaned_data["reason"])
    except EngineError as error:
        form.add_error(None, sentence(error))
        return None
    messages.success(request, "Replayed with the edited payload: this is the new transaction.")
    return HttpResponseRedirect(address)
