"""Facts in the store buffer and in the forward buffer: found by what they are called, read, and never changed."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.http import HttpRequest

from ergon_site.access.core.texts import is_key
from ergon_site.access.detail import DetailPage
from ergon_site.access.keyset import KeysetQuery
from ergon_site.access.lists import KeysetPage
from facts.admin import fact_page
from facts.admin.fact_list import FactColumns, boundaries
from facts.models import Fact, ForwardedFact, Written
from facts.reads import lists


class WrittenPage(FactColumns, KeysetPage, DetailPage):
    """A buffer. A row is addressed by its boundary and its offset."""

    detail_template = "console/fact.html"
    longest_value: ClassVar[int] = 2000

    def key_of(self, row: Written) -> str:
        return f"{row.boundary_id}-{row.offset}"

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        boundary, _, offset = object_id.partition("-")
        numbers = [int(part) if is_key(part) else -1 for part in (boundary, offset)]
        rows: Any = self.model._default_manager.select_related("boundary__from_zone", "boundary__to_zone")  # noqa: SLF001
        row = rows.filter(boundary_id=numbers[0], offset=numbers[1]).first()
        if row is not None:
            # The theme's breadcrumb would take the key of two columns for an address.
            row.page_address = self.address(self.key_of(row))
        return row

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        try:
            return lists.facts(self.model, wanted, boundaries(request))
        except lists.ListingError as error:
            raise IncorrectLookupParameters from error

    def decorate(self, request: HttpRequest, rows: list[Any]) -> list[Any]:
        known = {boundary.pk: boundary for boundary in boundaries(request)}
        for row in rows:
            row.boundary = known.get(row.boundary_id) or row.boundary
        return rows

    def details(self, request: HttpRequest, row: Written) -> dict[str, Any]:
        return fact_page.of(row, boundaries(request))


def shown(model: type[Written]) -> Callable[[type[WrittenPage]], type[WrittenPage]]:
    """Register a page. Django's own way refuses keys of two columns, since its pages could not address such rows."""

    def register(page: type[WrittenPage]) -> type[WrittenPage]:
        admin.site._registry[model] = page(model, admin.site)  # noqa: SLF001
        return page

    return register


@shown(Fact)
class FactsPage(WrittenPage):
    empty_text = "No facts yet: POST /api/v1/facts."


@shown(ForwardedFact)
class ForwardedFactsPage(WrittenPage):
    empty_text = "No facts handed over yet: manage.py forward does this."
