"""Boundaries: gate, backlog, lag, frontier and fill of each, and what a person can do about them."""

from collections.abc import Iterator
from functools import partial
from shlex import quote
from typing import Any, ClassVar

from django.contrib import messages
from django.db.models import F, Value
from django.db.models.functions import Concat
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from unfold.decorators import action, display

from ergon_site.access.console.buttons import bar, button
from ergon_site.access.console.cells import (
    anchor,
    beyond,
    column,
    meter,
    note,
    percentage,
    size,
    tag,
    unbroken,
    with_note,
    words,
)
from ergon_site.access.console.dialogs import dialog_action
from ergon_site.access.console.pages import ReasonForm, holds, registered
from ergon_site.access.core.durations import span
from ergon_site.access.core.roles import Right, reason_missing
from ergon_site.access.database.clock import page_time
from facts import ledger, provisioning, retiring
from facts.admin import links
from facts.admin.dialogs import Verbs, why
from facts.admin.forms import BoundaryForm, EditLimitsForm, SkipForm, offsets_text
from facts.core.gates import Gate
from facts.core.watching import FILL, Worry
from facts.ledger import remembering
from facts.models import Boundary
from facts.reads import health
from facts.reads.health import BoundaryStanding

OPEN = {"title": "Open the gate", "description": "Handoff resumes, and the alarm is cleared."}
CLOSE = {
    "title": "Close the gate",
    "description": "Handoff stops until the gate is opened. Both sides keep working, and the backlog grows.",
    "keep": "Leave it open",
}
SKIP_TEXT = "What is skipped is never received here: consumers get a notice in its place. This cannot be undone."
SKIP = {
    "title": "Skip past the alarm",
    "description": SKIP_TEXT,
    "form_class": SkipForm,
    "keep": "Do not skip it",
}
RETIRE_TEXT = "No facts are appended or handed over any more. Existing facts stay readable."
RETIRE = {"title": "Retire the boundary", "description": RETIRE_TEXT, "keep": "Keep it"}
LIMIT: dict[str, Any] = {
    "submit_text": "Save",
    "intro": "At a limit new facts are refused until there is room; stored facts are never removed by it.",
}
SHOWN = 20


def _alarmed(row: Boundary) -> dict[str, str]:
    """The subject of an alarm, for the links to both sides of it."""
    if not row.alarm or row.alarm_offset is None:
        return {}
    shell = f"boundary skip {' '.join(map(quote, row.zones))} {row.alarm_offset}"
    more = f" --through {row.alarm_last}" if row.alarm_last != row.alarm_offset else ""
    return {"offset": f"{row.alarm_offset:,}", "command": f"{shell}{more} --reason '…'"}


def frontier(stand: BoundaryStanding) -> str:
    return "read, not handed over" if stand.is_read_only else offset(stand.boundary.frontier)


def _figures(stand: BoundaryStanding) -> Iterator[dict[str, str]]:
    buffer = links.buffer(stand.boundary)
    here = {"boundary": stand.boundary.pk}
    for title, value, address in (
        ("Backlog", f"{stand.flow.backlog:,}", links.facts(buffer, **here)),
        ("Lag", span(stand.flow.lag), ""),
        ("Frontier", frontier(stand), "" if stand.is_read_only else links.facts("forwardedfact", **here)),
        ("Newest", offset(stand.newest), links.facts(buffer, **here)),
    ):
        yield {"title": title, "value": value, "address": address}


def _meters(stand: BoundaryStanding) -> Iterator[dict[str, Any]]:
    ceilings = _ceilings(stand.boundary)
    held = {"Facts": f"{stand.rows:,}", "Bytes": size(stand.boundary.stored_bytes)}
    for title, percent in (("Facts", stand.row_percent), ("Bytes", stand.byte_percent)):
        value = held[title] if percent is None else f"{held[title]} of {ceilings[title]}"
        yield {"title": title, "value": value, "meter": _fill(percent)}


def _ceilings(row: Boundary) -> dict[str, str]:
    return {
        "Facts": f"{row.row_ceiling:,}" if row.row_ceiling else "no limit",
        "Bytes": size(row.byte_ceiling) if row.byte_ceiling else "no limit",
    }


def offset(number: int) -> str:
    return f"{number:,}" if number >= 0 else "none yet"


@registered(Boundary)
class BoundariesPage(Verbs):
    related = ("from_zone", "to_zone")
    actions_detail = ("open_gate", "close_gate", "skip", "limit", "retire")
    new_intro = "Facts flow in one direction. Create two boundaries for both directions."
    detail_template = "console/boundary.html"
    live_template = "console/boundary_live.html"
    new_title = "New boundary"
    empty_text = "A boundary connects two zones: create the zones first."
    list_display = ("pair", "gate_word", "backlog", "lag", "reached", "head", "fill")
    list_filter: ClassVar = ["gate"]
    search_fields = ("from_zone__name__startswith", "to_zone__name__startswith")
    found_by = Concat("from_zone__name", Value(" → "), "to_zone__name")
    found_mark = F("gate")
    search_help_text = "Start of either zone's name"
    export_fields = (
        *("from_zone__name", "to_zone__name", "gate", "gate_by", "gate_reason", "alarm", "failures", "source_url"),
        *("first_offset", "next_offset", "frontier", "stored_bytes", "row_ceiling", "byte_ceiling", "keep_days"),
        *("dedupe_days", "handed_over_at", "heard_at", "alarm_offset", "retired_at"),
    )

    pair = column("boundary", lambda row: words(str(row)), ordering="from_zone__name")

    @display(description="gate", ordering="gate")
    def gate_word(self, row: Boundary) -> str:
        """Its gate, who closed it and why, and whether it raised an alarm."""
        parts = [tag(row.gate, "boundary")] + ([tag("alarm", "boundary")] if row.alarm else [])
        if row.is_retired:
            parts = [tag("retired", "boundary")]
        why = (
            row.retired_reason
            or row.alarm
            or (f"by {row.gate_by}: {row.gate_reason}" if row.gate_by else row.gate_reason)
        )
        both = format_html("{} {}", parts[0], parts[-1] if len(parts) > 1 else "")
        return with_note(both, why)

    @display(description="backlog")
    def backlog(self, row: Any) -> str:
        told = _warned(f"{row.standing.flow.backlog:,}", is_beyond=Worry.BACKLOG in row.standing.worries)
        return anchor(links.facts("fact", boundary=row.pk), told)

    lag = column("lag", lambda row: _warned(span(row.standing.flow.lag), is_beyond=Worry.LAG in row.standing.worries))

    @display(description="frontier")
    def reached(self, row: Any) -> str:
        return words(frontier(row.standing)) if row.standing.is_read_only else unbroken(frontier(row.standing))

    head = column("newest", lambda row: unbroken(offset(row.standing.newest)))
    fill = column("fill", lambda row: _fill(row.standing.fill))

    def decorate(self, request: HttpRequest, rows: Any) -> list[Boundary]:
        shown = list(rows)
        found = health.of_boundaries(Boundary.objects.filter(pk__in=[row.pk for row in shown]))
        stands = {one.boundary.pk: one for one in found}
        for row in shown:
            row.standing = stands[row.pk]
        return shown

    def details(self, request: HttpRequest, row: Boundary) -> dict[str, Any]:
        address = {name: reverse(f"ergon:facts_boundary_{name}", args=[row.pk]) for name in self.actions_detail}
        is_open = row.gate == Gate.NORMAL and not row.alarm
        opening = button(request, "Open the gate", address["open_gate"], right=Right.OPERATE)
        closing = button(request, "Close the gate", address["close_gate"], right=Right.OPERATE)
        limits = button(request, "Limits and retention", address["limit"], right=Right.LEAD, is_dialog=False)
        skipped = f"Skip {offsets_text(row.alarm_offset or 0, row.alarm_last)}"
        skip = button(request, skipped, address["skip"], right=Right.ADMINISTER)
        retire = button(request, "Retire", address["retire"], right=Right.LEAD)
        shown = [closing] if is_open else [opening] if row.gate == Gate.AUTONOMOUS else [opening, closing]
        shown += [skip] if row.alarm and row.alarm_offset is not None else []
        shown = [] if row.is_retired else [*shown, limits, retire]
        buffers = {buffer: links.facts(buffer, boundary=row.pk) for buffer in ("fact", "forwardedfact")}
        return {
            "bar": bar(*shown),
            "buffers": buffers,
            "consumers_address": links.consumers(row),
            **self.live(request, row),
        }

    def live(self, request: HttpRequest, row: Boundary) -> dict[str, Any]:
        stand = health.of_boundaries(Boundary.objects.filter(pk=row.pk))[0]
        return {
            "boundary": stand.boundary,
            "standing": stand,
            "gate": tag("retired" if row.is_retired else stand.boundary.gate, "boundary"),
            "figures": list(_figures(stand)),
            "meters": list(_meters(stand)),
            "ceilings": _ceilings(stand.boundary),
            "consumers": stand.readers,
            "skipped": [
                {"one": one, "address": links.fact("forwardedfact", row.pk, one.offset)}
                for one in row.skipped.order_by("-offset")[:SHOWN]
            ],
            "unheard": span(stand.unheard) if stand.unheard else "",
            "dedupe_days": remembering.dedupe_days(row),
            "arrived_address": links.facts("forwardedfact", boundary=row.pk),
            "alarmed": _alarmed(stand.boundary),
            "read_at": page_time(),
        }

    @dialog_action(description="Open the gate", url_path="open", permissions=["operate"], dialog=OPEN)
    def open_gate(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        open_it = partial(provisioning.open_gate, *self.row(request, object_id).zones, **why(request, form))
        return self.carry_out(request, open_it, lambda row: f"Open: the boundary is {row.gate}.", object_id)

    @dialog_action(description="Close the gate", url_path="close", permissions=["operate"], dialog=CLOSE)
    def close_gate(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        close = partial(provisioning.close_gate, *self.row(request, object_id).zones, **why(request, form))
        return self.carry_out(request, close, "Closed: handoff stops until the gate is opened.", object_id)

    @dialog_action(description="Skip", url_path="skip", permissions=["administer"], dialog=SKIP)
    def skip(self, request: HttpRequest, form: SkipForm, object_id: str) -> HttpResponse:
        row: Boundary = self.row(request, object_id)
        offset, through = form.cleaned_data["offset"], form.cleaned_data["through"]
        told = f"Skipped {offsets_text(offset, through)}: consumers get a notice in its place."
        skip = partial(ledger.skip, *row.zones, offset, through=through, **why(request, form))
        return self.carry_out(request, skip, told, object_id)

    @dialog_action(description="Retire", url_path="retire", permissions=["change"], dialog=RETIRE)
    def retire(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        zones, told = self.row(request, object_id).zones, "Retired: no facts are appended or handed over any more."
        return self.carry_out(request, lambda: retiring.retire_boundary(*zones, **why(request, form)), told, object_id)

    @action(description="Limits and retention", url_path="limit", permissions=["change"])
    def limit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row: Boundary = self.row(request, object_id)
        form = EditLimitsForm(request.POST or None, row)

        def change() -> HttpResponse:
            provisioning.limit(*row.zones, form.allowance(), **why(request, form))
            messages.success(request, f"The limits of {row} were changed.")
            return redirect(self.address(row.pk))

        title = f"Limits and retention of {row}"
        return self.attempt(form, change) or self.page(request, "console/form.html", title, row, form=form, **LIMIT)

    def filled_form(self, request: HttpRequest) -> BoundaryForm:
        refusal = "" if holds(request, Right.ADMINISTER) else reason_missing(Right.ADMINISTER)
        return BoundaryForm(request.POST or None, refusal=refusal)

    def make_row(self, asked: dict[str, Any], **why: str) -> Boundary:
        return provisioning.create_boundary(asked["from_zone"], asked["to_zone"], **BoundaryForm.plan(asked), **why)


def _warned(text: str, *, is_beyond: bool) -> str:
    return beyond(text) if is_beyond else unbroken(text)


def _fill(number: float | None) -> str:
    """How full a buffer is, as a bar and a number."""
    return note("no limit") if number is None else meter(number, percentage(number), warning=FILL)
