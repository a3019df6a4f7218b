"""Zones: the names that facts come from and go to."""

from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from unfold.decorators import display

from ergon_site.access.core.roles import Right
from ergon_site.access.detail import DetailPage
from ergon_site.access.lists import words
from ergon_site.access.pages import actor
from facts import provisioning, standing
from facts.admin.forms import ZoneForm
from facts.core.errors import FactError
from facts.models import Boundary, Zone

INTRO = "A name is matched exactly: capitals and blanks count. It stays as it is, since facts carry it."


@admin.register(Zone)
class ZonesPage(DetailPage):
    edit_right = Right.LEAD
    refused_by = (FactError,)
    detail_template = "console/zone.html"
    new_title = "New zone"
    empty_text = "Facts go from one zone to another. Name the two, then make a boundary between them."
    list_display = ("zone", "is_here", "created_at")
    search_fields = ("name__startswith",)
    search_help_text = "The beginning of a name."
    export_fields = ("name", "created_at")

    @display(description="name", ordering="name")
    def zone(self, row: Zone) -> str:
        return words(row.name)

    @display(description="this deployment")
    def is_here(self, row: Zone) -> str:
        return "yes" if row.name == settings.ERGON_ZONE else ""

    def details(self, request: HttpRequest, row: Zone) -> dict[str, Any]:
        beside = Boundary.objects.filter(Q(from_zone=row) | Q(to_zone=row))
        return {"zone": row, "is_here": self.is_here(row), "standings": standing.of_boundaries(beside)}

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = ZoneForm(request.POST or None)
        made = self.attempt(form, lambda: self._make(request, form))
        page: dict[str, Any] = {"form": form, "submit_text": "Make the zone", "intro": INTRO}
        return made or self.page(request, "console/form.html", "New zone", **page)

    def _make(self, request: HttpRequest, form: ZoneForm) -> HttpResponse:
        asked = form.cleaned_data
        row = provisioning.create_zone(asked["name"], by=actor(request), reason=asked["reason"])
        messages.success(request, f"The zone {row} is made.")
        return redirect(self.address(row.pk))
