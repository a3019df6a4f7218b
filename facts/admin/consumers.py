"""Consumers: who reads which boundary, and how far each is."""

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from unfold.decorators import display
from unfold.views import ChangeList

from ergon_site.access.core.roles import Right
from ergon_site.access.detail import DetailPage
from ergon_site.access.lists import two_lines, words
from ergon_site.access.pages import actor
from facts import provisioning, standing
from facts.admin import amounts, links
from facts.admin.fact_list import boundaries
from facts.admin.forms import ConsumerForm
from facts.core.errors import FactError
from facts.models import Boundary, Consumer

INTRO = "Its place is kept here: it fetches what comes after its cursor, and moves that by confirming."


class ConsumerList(ChangeList):
    """The rows of a page of the list, with how each stands."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = [row.pk for row in self.result_list]
        stands = {one.consumer.pk: one for one in standing.of_consumers(Consumer.objects.filter(pk__in=rows))}
        self.result_list = [stands[key].consumer for key in rows]
        for row in self.result_list:
            row.standing = stands[row.pk]


class ReadFilter(admin.SimpleListFilter):
    title = parameter_name = "boundary"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(one.pk), str(one)) for one in boundaries(request)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Consumer]) -> QuerySet[Consumer]:
        key = self.value()
        return queryset.filter(boundary=int(key) if key.isdecimal() else 0) if key else queryset


@admin.register(Consumer)
class ConsumersPage(DetailPage):
    edit_right = Right.LEAD
    refused_by = (FactError,)
    detail_template = "console/fact_consumer.html"
    new_title = "New consumer"
    empty_text = "A consumer reads a boundary in order and at its own pace. None is made by fetching: make it here."
    list_display = ("reader", "reads", "place", "backlog", "fetched", "confirmed")
    list_filter: ClassVar = [ReadFilter]
    search_fields = ("name__startswith",)
    search_help_text = "The beginning of a name."
    export_fields = ("name", "boundary__from_zone__name", "boundary__to_zone__name", "cursor", "confirmed_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Consumer]:
        rows: QuerySet[Consumer] = super().get_queryset(request)
        return rows.select_related("boundary__from_zone", "boundary__to_zone")

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ConsumerList]:
        return ConsumerList

    @display(description="name", ordering="name")
    def reader(self, row: Consumer) -> str:
        return words(row.name)

    @display(description="boundary", ordering="boundary")
    def reads(self, row: Consumer) -> str:
        return links.anchor(links.boundary(row.boundary), row.boundary)

    @display(description="cursor")
    def place(self, row: Any) -> str:
        return two_lines(f"{row.cursor:,}" if row.cursor >= 0 else "before the first", f"of {row.standing.newest:,}")

    @display(description="backlog")
    def backlog(self, row: Any) -> str:
        told = f"{row.standing.flow.backlog:,}"
        told = amounts.beyond(told) if row.standing.worries else told
        return links.anchor(links.facts(links.buffer(row.boundary), boundary=row.boundary_id), told)

    @display(description="last fetch", ordering="fetched_at", empty_value="never")
    def fetched(self, row: Consumer) -> Any:
        return row.fetched_at

    @display(description="last confirmation", ordering="confirmed_at", empty_value="never")
    def confirmed(self, row: Consumer) -> Any:
        return row.confirmed_at

    def details(self, request: HttpRequest, row: Consumer) -> dict[str, Any]:
        stand = standing.of_consumers(Consumer.objects.filter(pk=row.pk))[0]
        address = links.fact(links.buffer(row.boundary), row.boundary_id, row.cursor + 1)
        following = address if stand.flow.backlog else ""
        lag = amounts.span(stand.flow.lag)
        return {"consumer": row, "standing": stand, "following": following, "lag": lag, "boundary": row.boundary}

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = ConsumerForm(request.POST or None)
        made = self.attempt(form, lambda: self._make(request, form.cleaned_data))
        page: dict[str, Any] = {"form": form, "submit_text": "Make the consumer", "intro": INTRO}
        return made or self.page(request, "console/form.html", "New consumer", **page)

    def _make(self, request: HttpRequest, asked: dict[str, Any]) -> HttpResponse:
        boundary = Boundary.objects.select_related("from_zone", "to_zone").get(pk=asked["boundary"])
        zones = (boundary.from_zone.name, boundary.to_zone.name)
        start = asked["offset"] if asked["start"] == "offset" else asked["start"]
        why = {"by": actor(request), "reason": asked["reason"]}
        row = provisioning.create_consumer(asked["name"], *zones, start=start, **why)
        messages.success(request, f"The consumer {row} is made.")
        return redirect(self.address(row.pk))
