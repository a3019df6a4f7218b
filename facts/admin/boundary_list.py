"""The list of boundaries: its columns, and how each row stands."""

from typing import Any

from django.http import HttpRequest
from django.utils.html import format_html
from unfold.decorators import display

from ergon_site.access.lists import tag, unbroken, words
from ergon_site.access.pages import ConsoleList
from facts.admin import amounts, links
from facts.admin.boundary_page import KINDS, frontier, offset
from facts.core.watching import Worry
from facts.models import Boundary
from facts.reads import health


class BoundaryList(ConsoleList):
    """The rows of a page of the list, with how each stands."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        found = health.of_boundaries(Boundary.objects.filter(pk__in=[row.pk for row in rows]))
        stands = {one.boundary.pk: one for one in found}
        for row in rows:
            row.standing = stands[row.pk]
        self.result_list = rows


class BoundaryColumns:
    @display(description="boundary", ordering="from_zone__name")
    def pair(self, row: Boundary) -> str:
        return words(str(row))

    @display(description="gate", ordering="gate")
    def gate_word(self, row: Boundary) -> str:
        """Its gate, who closed it and why, and whether it raised an alarm."""
        parts = [tag(row.gate, KINDS)] + ([tag("alarm", KINDS)] if row.alarm else [])
        if row.is_retired:
            parts = [tag("retired", KINDS)]
        why = (
            row.retired_reason
            or row.alarm
            or (f"by {row.gate_by}: {row.gate_reason}" if row.gate_by else row.gate_reason)
        )
        both = format_html("{} {}", parts[0], parts[-1] if len(parts) > 1 else "")
        return format_html('<div class="ergon-cell">{}<div class="ergon-why">{}</div></div>', both, why)

    @display(description="backlog")
    def backlog(self, row: Any) -> str:
        told = _warned(f"{row.standing.flow.backlog:,}", is_beyond=Worry.BACKLOG in row.standing.worries)
        return links.anchor(links.facts("fact", boundary=row.pk), told)

    @display(description="lag")
    def lag(self, row: Any) -> str:
        return _warned(amounts.span(row.standing.flow.lag), is_beyond=Worry.LAG in row.standing.worries)

    @display(description="frontier")
    def reached(self, row: Any) -> str:
        return words(frontier(row.standing)) if row.standing.is_read_only else unbroken(frontier(row.standing))

    @display(description="newest")
    def head(self, row: Any) -> str:
        return unbroken(offset(row.standing.newest))

    @display(description="fill")
    def fill(self, row: Any) -> str:
        return amounts.meter(row.standing.fill)


def _warned(text: str, *, is_beyond: bool) -> str:
    return amounts.beyond(text) if is_beyond else unbroken(text)
