"""The list of consumers: its columns, its filter, and the standing of each row."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from ergon_site.access.core.texts import is_key
from ergon_site.access.lists import two_lines, words
from ergon_site.access.pages import ConsoleList
from facts.admin import amounts, links
from facts.admin.fact_list import boundaries
from facts.models import Consumer
from facts.reads import health


class ConsumerList(ConsoleList):
    """The rows of a page of the list, with how each stands."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = [row.pk for row in self.result_list]
        stands = {one.consumer.pk: one for one in health.of_consumers(Consumer.objects.filter(pk__in=rows))}
        self.result_list = [stands[key].consumer for key in rows]
        for row in self.result_list:
            row.standing = stands[row.pk]


class ReadFilter(admin.SimpleListFilter):
    title = parameter_name = "boundary"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(one.pk), str(one)) for one in boundaries(request)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Consumer]) -> QuerySet[Consumer]:
        key = self.value()
        return queryset.filter(boundary=int(key) if is_key(key) else 0) if key else queryset


class ConsumerColumns:
    @display(description="name", ordering="name")
    def reader(self, row: Consumer) -> str:
        return two_lines(row.name, "retired") if row.is_retired else words(row.name)

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
