"""Zones: the names that facts come from and go to."""

from typing import Any

from django import forms
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold.decorators import display

from ergon_site.access.console.buttons import bar, button
from ergon_site.access.console.cells import column, tag, words
from ergon_site.access.console.dialogs import dialog_action
from ergon_site.access.console.pages import ReasonForm, registered
from ergon_site.access.core.roles import Right
from facts import provisioning, retiring
from facts.admin.dialogs import Verbs, why
from facts.admin.forms import PLAIN
from facts.conf import settings
from facts.models import Boundary, Zone
from facts.provisioning import LONGEST_ZONE
from facts.reads import health

RETIRE = {
    "title": "Retire the zone",
    "description": "No boundary can be created from or to this zone any more. Existing facts are unchanged.",
    "keep": "Keep it",
}


class ZoneForm(forms.Form):
    # As it is typed: a zone's name is matched exactly, and blanks around it are told, not removed.
    name = forms.CharField(max_length=LONGEST_ZONE, strip=False, widget=PLAIN, help_text="Such as Plant A.")
    reason = ReasonForm.declared_fields["reason"]


@registered(Zone)
class ZonesPage(Verbs):
    actions_detail = ("retire",)
    detail_template = "console/zone.html"
    new_title = "New zone"
    new_form = ZoneForm
    new_intro = "Names are case-sensitive and cannot be changed, because facts carry them."
    empty_text = "Facts flow between zones. Create two zones, then a boundary between them."
    list_display = ("zone", "state", "is_here", "made")
    search_fields = ("name__startswith",)
    found_by = "name"
    search_help_text = "Start of a name"
    export_fields = ("name", "created_at", "retired_at")

    @display(description="name", ordering="name")
    def zone(self, row: Zone) -> str:
        return words(row.name)

    state = column("state", lambda row: tag("retired" if row.is_retired else "active", "zone"), ordering="retired_at")
    made = column("created", lambda row: row.created_at, ordering="created_at")
    is_here = column("this deployment", lambda row: "yes" if row.name == settings().zone else "no")

    def details(self, request: HttpRequest, row: Zone) -> dict[str, Any]:
        beside = Boundary.objects.filter(Q(from_zone=row) | Q(to_zone=row))
        retire = button(request, "Retire", reverse("ergon:facts_zone_retire", args=[row.pk]), right=Right.LEAD)
        is_here = row.name == settings().zone
        shown = [] if row.is_retired or is_here else [retire]
        told = {"zone": row, "is_here": is_here, "bar": bar(*shown)}
        return {**told, "standings": health.of_boundaries(beside)}

    @dialog_action(description="Retire", url_path="retire", permissions=["change"], dialog=RETIRE)
    def retire(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        row: Zone = self.row(request, object_id)
        told = "Retired: no boundary can be created from or to it."
        return self.carry_out(request, lambda: retiring.retire_zone(row.name, **why(request, form)), told, object_id)

    def make_row(self, asked: dict[str, Any], **why: str) -> Zone:
        return provisioning.create_zone(asked["name"], **why)
