"""Finds boundaries by their zones."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Q, QuerySet

from ergon_site.access.core.texts import is_storable
from facts.core.errors import NotAuthorizedError, UnknownBoundaryError, UnknownZoneError
from facts.models import Boundary, Zone


def find(from_zone: str, to_zone: str) -> Boundary:
    """The boundary between two zones; raises what is missing if there is none."""
    names = [name for name in (from_zone, to_zone) if is_storable(name)]
    named = Boundary.objects.filter(from_zone__name=from_zone, to_zone__name=to_zone)
    boundary = named.select_related("from_zone", "to_zone").first() if [from_zone, to_zone] == names else None
    if boundary is not None:
        return boundary
    known = set(Zone.objects.filter(name__in=names).values_list("name", flat=True))
    for field, name in (("from_zone", from_zone), ("to_zone", to_zone)):
        if name not in known:
            msg = f"there is no zone named {name!r}"
            raise UnknownZoneError(msg, f"/envelope/{field}")
    msg = f"there is no boundary from {from_zone!r} to {to_zone!r}"
    raise UnknownBoundaryError(msg, "/envelope/to_zone")


def find_open(from_zone: str, to_zone: str) -> Boundary:
    """A boundary that facts can be appended to."""
    boundary = find(from_zone, to_zone)
    if boundary.is_remote:
        # Where the peer is, is no producer's business.
        msg = (
            f"the facts of {boundary} are pulled from a peer: append them at the boundary of {boundary.from_zone},"
            " and they arrive here"
        )
        raise NotAuthorizedError(msg, "/envelope/from_zone")
    if boundary.is_retired:
        raise retired(boundary)
    return boundary


def in_use() -> QuerySet[Boundary]:
    """The boundaries that are not retired."""
    return Boundary.objects.filter(retired_at__isnull=True).select_related("from_zone", "to_zone")


def ids_in_use() -> set[int]:
    """The same by their ids, for whoever looks for new ones all the time."""
    return {number for (number,) in _rows("SELECT id FROM facts_boundary WHERE retired_at IS NULL")}


class Signs(NamedTuple):
    """What says whether a boundary may be handed over."""

    gate: str
    gate_by: str
    alarm: str
    source_url: str
    is_retired: bool


class Seen(NamedTuple):
    """A look at a boundary: its signs, whether facts wait in its store buffer, and whether no process holds it."""

    id: int
    signs: Signs
    has_facts: bool
    is_free: bool


def look_at(ids: Sequence[int]) -> Iterator[Seen]:
    """A look at many boundaries that costs next to nothing, for whoever looks all the time."""
    statement = f"""SELECT id, next_offset - 1 > frontier, held_until IS NULL OR held_until < CURRENT_TIMESTAMP,
      gate, gate_by, alarm, source_url, retired_at IS NOT NULL FROM facts_boundary
      WHERE id IN ({", ".join(map(str, ids))})"""  # noqa: S608 (numbers only)
    for number, has_facts, is_free, gate, gate_by, alarm, source, is_retired in _rows(statement):
        yield Seen(number, Signs(gate, gate_by, alarm, source, bool(is_retired)), bool(has_facts), bool(is_free))


def _rows(statement: str) -> list[tuple[Any, ...]]:
    """What a statement finds. Not by a cursor of Django's, which costs as much as the statement."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        return list(connection.connection.execute(statement).fetchall())


def signs_of(boundary: Boundary) -> Signs:
    return Signs(boundary.gate, boundary.gate_by, boundary.alarm, boundary.source_url, boundary.is_retired)


def retired(boundary: Boundary) -> UnknownBoundaryError:
    """Why a boundary takes nothing new."""
    msg = f"the boundary from {boundary.from_zone.name!r} to {boundary.to_zone.name!r} was retired"
    return UnknownBoundaryError(msg, "/envelope/to_zone")


def hold(pairs: Iterable[tuple[str, str]]) -> None:
    """Lock several boundaries until the caller's transaction ends: all of them first, in one order."""
    named = Q()
    for from_zone, to_zone in pairs:
        named |= Q(from_zone__name=from_zone, to_zone__name=to_zone)
    list(Boundary.objects.filter(named).select_for_update(of=("self",)).order_by("pk"))
