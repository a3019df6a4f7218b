"""Parts of the boundary pages: the columns of the list, and what changes by itself on a page."""

from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from unfold.decorators import display
from unfold.views import ChangeList

from ergon_site.access.lists import tag, unbroken, words
from facts import standing
from facts.admin import amounts, links
from facts.core.watching import Worry
from facts.models import Boundary
from facts.standing import BoundaryStanding

KINDS = {"normal": "good", "autonomous": "bad", "reconciling": "warning", "alarm": "bad"}


class BoundaryList(ChangeList):
    """The rows of a page of the list, with how each stands."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        found = standing.of_boundaries(Boundary.objects.filter(pk__in=[row.pk for row in rows]))
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
        why = row.alarm or (f"by {row.gate_by}: {row.gate_reason}" if row.gate_by else row.gate_reason)
        both = format_html("{} {}", parts[0], parts[1] if row.alarm else "")
        return format_html('<div class="ergon-cell">{}<div class="ergon-why">{}</div></div>', both, why)

    @display(description="backlog")
    def backlog(self, row: Any) -> str:
        return _warned(f"{row.standing.flow.backlog:,}", is_beyond=Worry.BACKLOG in row.standing.worries)

    @display(description="lag")
    def lag(self, row: Any) -> str:
        return _warned(amounts.span(row.standing.flow.lag), is_beyond=Worry.LAG in row.standing.worries)

    @display(description="frontier")
    def reached(self, row: Any) -> str:
        return words(frontier(row.standing)) if row.standing.is_read_only else unbroken(frontier(row.standing))

    @display(description="newest")
    def head(self, row: Any) -> str:
        return unbroken(_offset(row.standing.newest))

    @display(description="fill")
    def fill(self, row: Any) -> str:
        return amounts.meter(row.standing.fill)


def frontier(stand: BoundaryStanding) -> str:
    return "read, not handed over" if stand.is_read_only else _offset(stand.boundary.frontier)


def live(row: Boundary) -> dict[str, Any]:
    """What changes by itself on a boundary's page."""
    stand = standing.of_boundaries(Boundary.objects.filter(pk=row.pk))[0]
    return {
        "boundary": stand.boundary,
        "standing": stand,
        "gate": tag(stand.boundary.gate, KINDS),
        "figures": list(_figures(stand)),
        "meters": list(_meters(stand)),
        "ceilings": _ceilings(stand.boundary),
        "consumers": stand.readers,
        "read_at": timezone.now(),
    }


def _figures(stand: BoundaryStanding) -> Iterator[dict[str, str]]:
    buffer = "forwardedfact" if stand.boundary.is_remote else "fact"
    here = {"boundary": stand.boundary.pk}
    for title, value, address in (
        ("Backlog", f"{stand.flow.backlog:,}", links.facts(buffer, **here)),
        ("Lag", amounts.span(stand.flow.lag), ""),
        ("Frontier", frontier(stand), "" if stand.is_read_only else links.facts("forwardedfact", **here)),
        ("Newest", _offset(stand.newest), links.facts(buffer, **here)),
    ):
        yield {"title": title, "value": value, "address": address}


def _meters(stand: BoundaryStanding) -> Iterator[dict[str, Any]]:
    ceilings = _ceilings(stand.boundary)
    held = {"Facts": f"{stand.rows:,}", "Bytes": amounts.size(stand.boundary.stored_bytes)}
    for title, percent in (("Facts", stand.row_percent), ("Bytes", stand.byte_percent)):
        value = held[title] if percent is None else f"{held[title]} of {ceilings[title]}"
        yield {"title": title, "value": value, "meter": amounts.meter(percent)}


def _ceilings(row: Boundary) -> dict[str, str]:
    return {
        "Facts": f"{row.row_ceiling:,}" if row.row_ceiling else "no ceiling",
        "Bytes": amounts.size(row.byte_ceiling) if row.byte_ceiling else "no ceiling",
    }


def _offset(number: int) -> str:
    return f"{number:,}" if number >= 0 else "none yet"


def _warned(text: str, *, is_beyond: bool) -> str:
    return amounts.beyond(text) if is_beyond else unbroken(text)
