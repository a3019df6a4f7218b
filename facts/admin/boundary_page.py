"""The context of a boundary's page, and of the part that refreshes itself."""

from collections.abc import Iterator
from shlex import quote
from typing import Any

from django.utils import timezone

from ergon_site.access.lists import tag
from facts.admin import amounts, links
from facts.ledger import remembering
from facts.models import Boundary
from facts.reads import health
from facts.reads.health import BoundaryStanding

SHOWN = 20
KINDS = {"normal": "good", "autonomous": "bad", "reconciling": "warning", "alarm": "bad"}


def live(row: Boundary) -> dict[str, Any]:
    """The part of a boundary's page that refreshes itself."""
    stand = health.of_boundaries(Boundary.objects.filter(pk=row.pk))[0]
    return {
        "boundary": stand.boundary,
        "standing": stand,
        "gate": tag("retired" if row.is_retired else stand.boundary.gate, KINDS),
        "figures": list(_figures(stand)),
        "meters": list(_meters(stand)),
        "ceilings": _ceilings(stand.boundary),
        "consumers": stand.readers,
        "skipped": _skipped(row),
        "unheard": amounts.span(stand.unheard) if stand.unheard else "",
        "dedupe_days": remembering.dedupe_days(row),
        "arrived_address": links.facts("forwardedfact", boundary=row.pk),
        "alarmed": _alarmed(stand.boundary),
        "read_at": timezone.now(),
    }


def _skipped(row: Boundary) -> list[dict[str, Any]]:
    newest = row.skipped.order_by("-offset")[:SHOWN]
    return [{"one": one, "address": links.fact("forwardedfact", row.pk, one.offset)} for one in newest]


def _alarmed(row: Boundary) -> dict[str, str]:
    """What an alarm is about, for the links to both sides of it."""
    if not row.alarm or row.alarm_offset is None:
        return {}
    shell = f"manage.py boundary skip {quote(row.from_zone.name)} {quote(row.to_zone.name)} {row.alarm_offset}"
    more = f" --through {row.alarm_last}" if row.alarm_last != row.alarm_offset else ""
    return {"offset": f"{row.alarm_offset:,}", "command": f"{shell}{more} --reason '…'"}


def frontier(stand: BoundaryStanding) -> str:
    return "read, not handed over" if stand.is_read_only else offset(stand.boundary.frontier)


def _figures(stand: BoundaryStanding) -> Iterator[dict[str, str]]:
    buffer = links.buffer(stand.boundary)
    here = {"boundary": stand.boundary.pk}
    for title, value, address in (
        ("Backlog", f"{stand.flow.backlog:,}", links.facts(buffer, **here)),
        ("Lag", amounts.span(stand.flow.lag), ""),
        ("Frontier", frontier(stand), "" if stand.is_read_only else links.facts("forwardedfact", **here)),
        ("Newest", offset(stand.newest), links.facts(buffer, **here)),
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
        "Facts": f"{row.row_ceiling:,}" if row.row_ceiling else "no limit",
        "Bytes": amounts.size(row.byte_ceiling) if row.byte_ceiling else "no limit",
    }


def offset(number: int) -> str:
    return f"{number:,}" if number >= 0 else "none yet"
