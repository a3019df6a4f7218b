"""Consumers: who reads which boundary, and how far each is."""

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold.decorators import display
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget

from ergon_site.access.console.buttons import bar, button
from ergon_site.access.console.cells import anchor, beyond, column, tag, two_lines, words
from ergon_site.access.console.dialogs import dialog_action
from ergon_site.access.console.pages import ReasonForm, registered
from ergon_site.access.core.durations import span
from ergon_site.access.core.roles import Right
from ergon_site.access.core.texts import is_key
from facts import provisioning, retiring
from facts.admin import links
from facts.admin.dialogs import Verbs, why
from facts.admin.facts import all_boundaries
from facts.admin.forms import PLAIN
from facts.core.watching import Worry
from facts.ledger import boundaries
from facts.models import Boundary, Consumer
from facts.provisioning import LONGEST_CONSUMER
from facts.reads import health
from facts.reads.health import ConsumerStanding

STARTS = [("earliest", "the earliest fact"), ("latest", "new facts only"), ("offset", "an offset")]


def _boundaries() -> list[tuple[str, str]]:
    return [(str(one.pk), str(one)) for one in boundaries.in_use()]


class ConsumerForm(forms.Form):
    name = forms.CharField(
        max_length=LONGEST_CONSUMER, strip=False, widget=PLAIN, help_text="The reader fetches under this name."
    )
    boundary = forms.ChoiceField(choices=_boundaries, widget=UnfoldAdminSelectWidget)
    start = forms.ChoiceField(choices=STARTS, widget=UnfoldAdminSelectWidget, label="Start at")
    offset = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=2**63 - 1,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="Only with “an offset”.",
    )
    reason = ReasonForm.declared_fields["reason"]

    def clean(self) -> dict[str, Any]:
        asked = super().clean() or self.cleaned_data
        if asked.get("start") == "offset" and asked.get("offset") is None and "offset" not in self.errors:
            self.add_error("offset", "Enter the first offset.")
        return asked


class ReadFilter(admin.SimpleListFilter):
    title = parameter_name = "boundary"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(one.pk), str(one)) for one in all_boundaries(request)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Consumer]) -> QuerySet[Consumer]:
        key = self.value()
        return queryset.filter(boundary=int(key) if is_key(key) else 0) if key else queryset


RETIRE = {
    "title": "Retire the consumer",
    "description": "Nobody can read as it any more, and facts that only it has not confirmed may be truncated.",
    "keep": "Keep it",
}


@registered(Consumer)
class ConsumersPage(Verbs):
    related = ("boundary__from_zone", "boundary__to_zone")
    actions_detail = ("retire",)
    detail_template = "console/fact_consumer.html"
    new_title = "New consumer"
    new_form = ConsumerForm
    new_intro = "A consumer fetches the facts after its cursor and moves the cursor by confirming."
    empty_text = "A consumer reads a boundary in order, at its own pace. Create it here before its first fetch."
    list_display = ("reader", "state", "reads", "place", "backlog", "fetched", "confirmed")
    list_filter: ClassVar = [ReadFilter]
    search_fields = ("name__startswith",)
    found_by = "name"
    search_help_text = "Start of a name"
    export_fields = (
        *("name", "boundary__from_zone__name", "boundary__to_zone__name"),
        *("cursor", "confirmed_at", "retired_at"),
    )

    @display(description="name", ordering="name")
    def reader(self, row: Consumer) -> str:
        return words(row.name)

    state = column("state", lambda row: tag(_state(row.standing), "consumer"))
    reads = column("boundary", lambda row: anchor(links.boundary(row.boundary), row.boundary), ordering="boundary")

    @display(description="cursor")
    def place(self, row: Any) -> str:
        newest = row.standing.newest
        reached = f"{row.cursor:,}" if row.cursor >= 0 else "before the first"
        return two_lines(reached, f"of {newest:,}" if newest >= 0 else "no facts yet")

    @display(description="backlog")
    def backlog(self, row: Any) -> str:
        told = f"{row.standing.flow.backlog:,}"
        told = beyond(told) if row.standing.worries else told
        return anchor(links.facts(links.buffer(row.boundary), boundary=row.boundary_id), told)

    fetched = column("last fetch", lambda row: row.fetched_at, ordering="fetched_at", empty_value="never")
    confirmed = column("last confirmation", lambda row: row.confirmed_at, ordering="confirmed_at", empty_value="never")

    def decorate(self, request: HttpRequest, rows: Any) -> list[Consumer]:
        keys = [row.pk for row in rows]
        stands = {one.consumer.pk: one for one in health.of_consumers(Consumer.objects.filter(pk__in=keys))}
        shown: list[Any] = [stands[key].consumer for key in keys]
        for row in shown:
            row.standing = stands[row.pk]
        return shown

    def details(self, request: HttpRequest, row: Consumer) -> dict[str, Any]:
        stand = health.of_consumers(Consumer.objects.filter(pk=row.pk))[0]
        address = links.fact(links.buffer(row.boundary), row.boundary_id, row.cursor + 1)
        retire = button(request, "Retire", reverse("ergon:facts_consumer_retire", args=[row.pk]), right=Right.LEAD)
        return {
            "bar": bar(*([] if row.is_retired else [retire])),
            "overdue": span(stand.overdue) if Worry.HOLDING in stand.worries else "",
            "consumer": row,
            "standing": stand,
            "state": _state(stand),
            "following": address if stand.flow.backlog else "",
            "lag": span(stand.flow.lag),
            "boundary": row.boundary,
        }

    @dialog_action(description="Retire", url_path="retire", permissions=["change"], dialog=RETIRE)
    def retire(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        row: Consumer = self.row(request, object_id)
        told = f"Retired: nobody can read as {row} any more."
        return self.carry_out(
            request, lambda: retiring.retire_consumer(row.name, **why(request, form)), told, object_id
        )

    def make_row(self, asked: dict[str, Any], **why: str) -> Consumer:
        boundary = Boundary.objects.select_related("from_zone", "to_zone").get(pk=asked["boundary"])
        start = asked["offset"] if asked["start"] == "offset" else asked["start"]
        return provisioning.create_consumer(asked["name"], *boundary.zones, start=start, **why)


def _state(stand: ConsumerStanding) -> str:
    if stand.consumer.is_retired:
        return "retired"
    return "behind" if stand.worries else "current"
