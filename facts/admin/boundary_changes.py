"""The actions on boundaries: open and close gates, skip alarms, set limits, create and retire."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from unfold.decorators import action

from ergon_site.access.core.roles import Right, reason_missing
from ergon_site.access.detail import DetailPage
from ergon_site.access.dialogs import dialog_action
from ergon_site.access.pages import ReasonForm, actor, done, holds
from facts import ledger, provisioning, retiring
from facts.admin.dialogs import Verbs
from facts.admin.forms import BoundaryForm, LimitsForm
from facts.core.errors import FactError
from facts.models import Boundary
from facts.provisioning import LARGEST

OPEN = {"title": "Open the gate", "description": "Handoff resumes, and the alarm is cleared."}
CLOSE = {
    "title": "Close the gate",
    "description": "Handoff stops until the gate is opened. Both sides keep working, and the backlog grows.",
}
SKIP = {
    "title": "Skip past the alarm",
    "description": "It will never be received here; consumers get a notice in its place. This cannot be undone.",
}
RETIRE_TEXT = "No facts are appended or handed over any more. Existing facts stay readable."
RETIRE = {"title": "Retire the boundary", "description": RETIRE_TEXT}
LIMIT: dict[str, Any] = {
    "submit_text": "Save",
    "intro": "At a limit new facts are refused until there is room; stored facts are never removed by it.",
}
NEW: dict[str, Any] = {
    "submit_text": "Create boundary",
    "intro": "Facts flow in one direction. Create two boundaries for both directions.",
}


class BoundaryChanges(Verbs, DetailPage):
    edit_right = Right.LEAD
    refused_by = (FactError,)
    actions_detail = ("open_gate", "close_gate", "skip", "limit", "retire")

    def has_operate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return holds(request, Right.OPERATE)

    def has_administer_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return holds(request, Right.ADMINISTER)

    @dialog_action(description="Open the gate", url_path="open", permissions=["operate"], dialog=OPEN)
    def open_gate(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        opened = provisioning.open_gate(*self._zones(request, object_id), **_why(request, form))
        messages.success(request, f"Open: the boundary is {opened.gate}.")
        return done(self.address(object_id))

    @dialog_action(description="Close the gate", url_path="close", permissions=["operate"], dialog=CLOSE)
    def close_gate(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        provisioning.close_gate(*self._zones(request, object_id), **_why(request, form))
        messages.success(request, "Closed: handoff stops until the gate is opened.")
        return done(self.address(object_id))

    @dialog_action(description="Skip", url_path="skip", permissions=["administer"], dialog=SKIP)
    def skip(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        row: Boundary = self.row(request, object_id)
        offset, why = row.alarm_offset or 0, _why(request, form)
        zones = row.from_zone.name, row.to_zone.name
        through = None if row.alarm_last is None else min(row.alarm_last, offset + ledger.MOST_AT_ONCE - 1)
        told = f"Skipped {skipped_words(offset, through)}: consumers get a notice in its place."
        return self.tried(request, lambda: ledger.skip(*zones, offset, through=through, **why), told, object_id)

    @dialog_action(description="Retire", url_path="retire", permissions=["change"], dialog=RETIRE)
    def retire(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        zones, why = self._zones(request, object_id), _why(request, form)
        told = "Retired: no facts are appended or handed over any more."
        return self.tried(request, lambda: retiring.retire_boundary(*zones, **why), told, object_id)

    @action(description="Limits and retention", url_path="limit", permissions=["change"])
    def limit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row = self.row(request, object_id)
        form = LimitsForm(request.POST or None, initial={name: getattr(row, name) for name in LARGEST})
        changed = self.attempt(form, lambda: self._limit(request, row, form))
        title = f"Limits and retention of {row}"
        return changed or self.page(request, "console/form.html", title, row, form=form, **LIMIT)

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        refusal = "" if holds(request, Right.ADMINISTER) else reason_missing(Right.ADMINISTER)
        form = BoundaryForm(request.POST or None, refusal=refusal)
        made = self.attempt(form, lambda: self._make(request, form))
        return made or self.page(request, "console/form.html", "New boundary", form=form, **NEW)

    def _zones(self, request: HttpRequest, object_id: str) -> tuple[str, str]:
        row: Boundary = self.row(request, object_id)
        return row.from_zone.name, row.to_zone.name

    def _limit(self, request: HttpRequest, row: Boundary, form: LimitsForm) -> HttpResponse:
        zones = (row.from_zone.name, row.to_zone.name)
        provisioning.limit(*zones, form.allowance(), **_why(request, form))
        messages.success(request, f"The limits of {row} were changed.")
        return redirect(self.address(row.pk))

    def _make(self, request: HttpRequest, form: BoundaryForm) -> HttpResponse:
        zones = (form.cleaned_data["from_zone"], form.cleaned_data["to_zone"])
        row = provisioning.create_boundary(*zones, **{**form.plan(), **_why(request, form)})
        messages.success(request, f"The boundary {row} was created.")
        return redirect(self.address(row.pk))


def skipped_words(first: int, last: int | None) -> str:
    return f"offset {first:,}" if last in {None, first} else f"the offsets {first:,} to {last:,}"


def _why(request: HttpRequest, form: Any) -> dict[str, Any]:
    return {"by": actor(request), "reason": form.cleaned_data["reason"]}
