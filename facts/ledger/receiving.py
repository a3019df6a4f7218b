"""VERB: receive. Facts of a source enter the forward buffer once, and the frontier moves."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.models import F, Q
from django.db.models.functions import Now

from ergon_site.access.database.calls import retry_conflicts, short_transaction
from facts.core import gates
from facts.core.errors import AlarmError, FactError, UnreachableError
from facts.ledger import references, remembering
from facts.ledger.entries import Entry
from facts.models import Boundary, ForwardedFact


class Arrival(NamedTuple):
    """A fact of the source, and its offset there."""

    offset: int
    entry: Entry


class Received(NamedTuple):
    """The number of new facts, the frontier, the last valid offset, and why later ones are not valid."""

    new: int
    frontier: int
    last: int
    trouble: AlarmError | None


class NotHoldingError(FactError):
    """Another process hands this boundary over by now."""

    code = "not_holding"


@retry_conflicts
@short_transaction()
def receive(boundary_id: int, arrivals: Sequence[Arrival], *, cursor: int, holder: str) -> Received:
    """Put each into the forward buffer if it is absent, up to the first that cannot be true; advance the frontier.

    `cursor` is what the source takes for confirmed: an empty buffer begins after it.
    """
    boundary = Boundary.objects.select_for_update().get(pk=boundary_id)
    if boundary.held_by != holder:
        msg = f"another process forwards this boundary: {boundary.held_by}"
        raise NotHoldingError(msg)
    is_empty = boundary.frontier == -1 and not ForwardedFact.objects.filter(boundary=boundary).exists()
    if boundary.is_remote and is_empty and cursor > -1:
        boundary.frontier, boundary.first_offset = cursor, cursor + 1
    if cursor > boundary.frontier:
        msg = (
            f"the source has offset {cursor:,} as confirmed, but only {boundary.frontier:,} has arrived here:"
            " another process reads as this consumer"
        )
        trouble = AlarmError(msg, offset=boundary.frontier + 1, last=cursor)
        return Received(0, put(boundary, [], []), cursor, trouble)
    new, confirmed, doubt = _sort(boundary, arrivals)
    reached = put(boundary, new, confirmed)
    return Received(len(new), reached, confirmed[-1] if confirmed else cursor, doubt)


def put(boundary: Boundary, new: Sequence[Arrival], confirmed: Sequence[int]) -> int:
    """Write new facts into the forward buffer of a locked boundary; where its frontier is then."""
    ForwardedFact.objects.bulk_create(
        ForwardedFact(boundary_id=boundary.pk, offset=arrival.offset, **arrival.entry.fields) for arrival in new
    )
    if boundary.with_artifacts:
        # Protect the artifacts that were pulled for these facts.
        artifacts = references.lock([arrival.entry for arrival in new])
        wanted = (reference for arrival in new for reference in arrival.entry.references)
        if (missing := next((one for one in wanted if one.name not in artifacts), None)) is not None:
            msg = f"the artifact {missing.bucket}/{missing.key} was swept before its fact was received"
            raise UnreachableError(msg)
        references.keep(boundary.pk, new, artifacts)
    above = ForwardedFact.objects.filter(boundary=boundary, offset__gt=boundary.frontier)
    reached = gates.advance(boundary.frontier, [*confirmed, *above.values_list("offset", flat=True)])
    changes: dict[str, Any] = {"frontier": reached, "first_offset": boundary.first_offset}
    if new:
        changes["handed_over_at"] = Now()
    if boundary.is_remote:
        size = sum(arrival.entry.size for arrival in new)
        changes |= {"next_offset": reached + 1, "stored_bytes": F("stored_bytes") + size}
    Boundary.objects.filter(pk=boundary.pk).update(**changes)
    return reached


def _sort(boundary: Boundary, arrivals: Sequence[Arrival]) -> tuple[list[Arrival], list[int], AlarmError | None]:
    """The new facts, the offsets of all valid ones, and why the rest is not looked at."""
    ids, offsets = [one.entry.message_id for one in arrivals], [one.offset for one in arrivals]
    there = ForwardedFact.objects.filter(Q(message_id__in=ids) | Q(offset__in=offsets), boundary=boundary)
    rows = list(there.values_list("message_id", "offset", "digest"))
    known = {message_id: digest for message_id, (_, digest) in remembering.known(boundary, ids).items()}
    known |= {message_id: digest for message_id, _, digest in rows}
    taken = {offset: message_id for message_id, offset, _ in rows}
    unknown = [one.offset for one in arrivals if one.entry.message_id not in known]
    taken |= remembering.ids_at(boundary, [offset for offset in unknown if offset < boundary.first_offset])
    new: list[Arrival] = []
    confirmed: list[int] = []
    for arrival in arrivals:
        offset, entry = arrival
        if known.get(entry.message_id, entry.digest) != entry.digest:
            msg = f"the message {entry.message_id!r} at offset {offset:,} has arrived before with different content"
            return new, confirmed, AlarmError(msg, offset=offset)
        # Below the first offset it was here and its time is over, unless another is remembered there.
        if entry.message_id not in known and (offset >= boundary.first_offset or offset in taken):
            if offset in taken or offset <= boundary.frontier:
                before = repr(taken[offset]) if offset in taken else "another message"
                msg = f"the message {entry.message_id!r} comes at offset {offset:,}, where {before} has arrived before"
                return new, confirmed, AlarmError(msg, offset=offset)
            new.append(arrival)
            known[entry.message_id], taken[offset] = entry.digest, entry.message_id
        confirmed.append(offset)
    return new, confirmed, None
