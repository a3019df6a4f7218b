"""VERB: truncate. Removes what is old enough and what everybody has; nothing that somebody still needs, however old."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.db.models import F, QuerySet, Sum
from django.db.models.functions import Now

from ergon_site.access import audit
from ergon_site.access.database.calls import retry_conflicts, short_transaction
from facts.ledger import boundaries, remembering
from facts.ledger.reading import Octets, newest
from facts.models import Boundary, Consumer, Fact, ForwardedFact

AT_ONCE = 5000
THE_FORWARD_BUFFER = "the forward buffer"

Buffer = type[Fact] | type[ForwardedFact]
log = structlog.get_logger("ergon.facts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """The result of a truncation, and which readers hold back how many facts beyond their retention."""

    boundary: str
    first_offset: int
    removed: int
    held_back: int
    held_back_by: list[str]


def truncatable(from_zone: str, to_zone: str) -> int:
    """The number of facts that `truncate` would remove now."""
    boundary = boundaries.find(from_zone, to_zone)
    return _outlook(boundary)[0] - (boundary.removed_offset or 0)


def truncate(
    from_zone: str, to_zone: str, *, by: str, reason: str = "", progress: Callable[[int], None] = lambda _: None
) -> Truncated:
    """Remove the facts that are older than the boundary keeps them and that every consumer has confirmed.

    The forward buffer counts as a consumer of this database's own store buffer. What is over its time and held back is
    told in the log as well. Of each batch `progress` is told how many facts it removed.
    """
    boundary = boundaries.find(from_zone, to_zone)
    first, held_back, holders = _move(boundary.pk, str(boundary), by=by, reason=reason)
    removed, own = 0, _own(boundary)
    while count := _remove_some(boundary, own, first):
        # After the first batch, before many more follow it, and at the end.
        if not removed or count < AT_ONCE:
            remembering.analyze()
        removed += count
        progress(count)
    while own is Fact and _remove_some(boundary, ForwardedFact, first):
        pass
    if held_back:
        log.warning("retention_held_back", boundary=str(boundary), facts=held_back, by=holders)
    return Truncated(
        boundary=str(boundary), first_offset=first, removed=removed, held_back=held_back, held_back_by=holders
    )


@retry_conflicts
@short_transaction()
def _move(boundary_id: int, name: str, *, by: str, reason: str) -> tuple[int, int, list[str]]:
    """Advance the first offset before deleting, so that nobody reads facts that are being removed."""
    boundary = Boundary.objects.select_for_update().get(pk=boundary_id)
    first, held_back, holders = _outlook(boundary)
    if first > boundary.first_offset:
        Boundary.objects.filter(pk=boundary_id).update(first_offset=first)
        audit.record(
            actor=by,
            action="boundary.truncate",
            target=f"boundary {name}",
            reason=reason,
            before={"first_offset": boundary.first_offset},
            after={"first_offset": first},
        )
    return first, held_back, holders


def _outlook(boundary: Boundary) -> tuple[int, int, list[str]]:
    """The first offset that must stay, how many facts beyond their retention that holds back, and who needs them."""
    kept = _own(boundary).objects.filter(
        boundary=boundary,
        offset__gte=boundary.first_offset,
        written_at__gte=Now() - timedelta(days=boundary.keep_days),
    )
    young = kept.order_by("offset").values_list("offset", flat=True).first()
    outdated = newest(boundary) + 1 if young is None else young
    # The first offset that each of those who read still needs. Nobody reads what has been retired.
    readers = Consumer.objects.filter(boundary=boundary, retired_at__isnull=True)
    places = {f"consumer {name}": cursor + 1 for name, cursor in readers.values_list("name", "cursor")}
    if not boundary.is_remote and not boundary.is_retired:
        places[THE_FORWARD_BUFFER] = boundary.frontier + 1
    first = max(boundary.first_offset, min([outdated, *places.values()]))
    return first, max(0, outdated - first), sorted(one for one, place in places.items() if place < outdated)


@retry_conflicts
@short_transaction()
def _remove_some(boundary: Boundary, buffer: Buffer, first: int) -> int:
    # First of all: another truncation must not count the same facts, and no append may come between.
    Boundary.objects.select_for_update().get(pk=boundary.pk)
    rows: QuerySet[Fact] | QuerySet[ForwardedFact] = buffer.objects.filter(boundary=boundary, offset__lt=first)
    offsets = list(rows.order_by("offset").values_list("offset", flat=True)[:AT_ONCE])
    if not offsets:
        return 0
    some = rows.filter(offset__lte=offsets[-1])
    if buffer is _own(boundary):
        size = some.aggregate(size=Sum(Octets("content")))["size"]
        held = {"stored_bytes": F("stored_bytes") - size, "removed_offset": offsets[-1] + 1}
        Boundary.objects.filter(pk=boundary.pk).update(**held)
        remembering.remember(boundary, buffer, offsets[-1])
    some._raw_delete(some.db)  # noqa: SLF001 (nothing refers to them, and there are many)
    return len(offsets)


def _own(boundary: Boundary) -> Buffer:
    """The buffer that consumers read and that the boundary counts."""
    return ForwardedFact if boundary.is_remote else Fact
