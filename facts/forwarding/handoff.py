"""One handoff: fetch, put into the forward buffer, advance the frontier, confirm to the source. In this order."""

from typing import NamedTuple

from facts.core.errors import AlarmError, UnreachableError
from facts.core.gates import Gate
from facts.forwarding import pulling
from facts.forwarding.sources import Batch, PeerSource, Source
from facts.ledger import gating, receiving
from facts.models import Boundary

AT_ONCE = 250


class Handed(NamedTuple):
    """How many facts came, how many were new, how far the buffer is complete, how many are left, and the gate."""

    fetched: int
    new: int
    frontier: int
    backlog: int
    gate: Gate


def hand_over(boundary: Boundary, source: Source, *, holder: str, wait: float = 0.0) -> Handed:
    """Hand over what comes next. An end anywhere in between is made up for by the next one.

    Raises `AlarmError` for what cannot be true, once what came before it is kept and confirmed.
    """
    batch = source.fetch(boundary, AT_ONCE, wait)
    if boundary.with_artifacts and isinstance(source, PeerSource):
        batch = pulling.pull(boundary, source, batch, holder=holder)
    received = receiving.receive(boundary.pk, batch.arrivals, cursor=batch.cursor, holder=holder)
    trouble = received.trouble or batch.trouble
    # What cannot be true stays with the source, even where the buffer is further by now.
    reached = min(received.frontier, received.last) if trouble else received.frontier
    if reached > batch.cursor:
        source.confirm(reached)
    if trouble is not None:
        raise AlarmError(trouble.message)
    _check_for_gaps(batch.arrivals, received.frontier)
    head = source.head()
    gate = gating.note_success(boundary.pk, head=head)
    newest = _newest(boundary, head)
    backlog = max(0, newest - received.frontier)
    return Handed(_fetched(batch), received.new, received.frontier, backlog, gate)


def _fetched(batch: Batch) -> int:
    """Those after the cursor. They may all be known: of a handoff that ended before the source was told."""
    return sum(arrival.offset > batch.cursor for arrival in batch.arrivals)


def _check_for_gaps(arrivals: list[receiving.Arrival], frontier: int) -> None:
    """A source that leaves something out is asked again: what it leaves out may only be late."""
    if arrivals and max(arrival.offset for arrival in arrivals) > frontier:
        msg = f"the source has left out offset {frontier + 1:,}"
        raise UnreachableError(msg)


def _newest(boundary: Boundary, head: int | None) -> int:
    if head is not None:
        return head
    return Boundary.objects.values_list("next_offset", flat=True).get(pk=boundary.pk) - 1
