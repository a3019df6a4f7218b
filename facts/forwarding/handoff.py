"""A handoff: fetch, put into the forward buffer, advance the frontier, confirm to the source, in this order."""

from typing import NamedTuple

from ergon_site.access.deadlines import within
from facts.conf import settings
from facts.core.errors import UnreachableError
from facts.core.gates import Gate
from facts.forwarding import pulling
from facts.forwarding.sources import Batch, PeerSource, Source
from facts.ledger import gating, receiving
from facts.models import Boundary

AT_ONCE = 250


class Handed(NamedTuple):
    """The result of one handoff: facts fetched, new ones among them, frontier, backlog and gate."""

    fetched: int
    new: int
    frontier: int
    backlog: int
    gate: Gate


def hand_over(boundary: Boundary, source: Source, *, holder: str, wait: float = 0.0, at_once: int = AT_ONCE) -> Handed:
    """Hand over what comes next. An end anywhere in between is made up for by the next one.

    Raises `AlarmError` for what cannot be true, once what came before it is kept and confirmed. All that is asked of a
    peer has `ERGON_HANDOFF_TIMEOUT` seconds together, connecting included: a peer that swallows packets never refuses.
    """
    limit = settings().handoff_timeout
    with within(limit):
        batch = source.fetch(boundary, at_once, wait)
        if not boundary.with_artifacts or not isinstance(source, PeerSource):
            return _receive(boundary, source, batch, holder)
    # The time that artifacts take is their own.
    batch = pulling.pull(boundary, source, batch, holder=holder)
    with within(limit):
        return _receive(boundary, source, batch, holder)


def _receive(boundary: Boundary, source: Source, batch: Batch, holder: str) -> Handed:
    received = receiving.receive(boundary.pk, batch.arrivals, cursor=batch.cursor, holder=holder)
    trouble = received.trouble or batch.trouble
    # What cannot be true stays with the source, even where the buffer is further by now.
    reached = min(received.frontier, received.last) if trouble else received.frontier
    if reached > batch.cursor:
        source.confirm(reached)
    if trouble is not None:
        raise trouble
    if max(batch.offsets, default=received.frontier) > received.frontier:
        # It is asked again: what it leaves out may only be late.
        msg = f"the source skipped offset {received.frontier + 1:,}"
        raise UnreachableError(msg)
    head = newest = source.head()
    gate = gating.note_success(boundary.pk, head=head)
    if newest is None:
        newest = Boundary.objects.values_list("next_offset", flat=True).get(pk=boundary.pk) - 1
    # All may be known, from a handoff that ended before its confirmation.
    fetched = sum(offset > batch.cursor for offset in batch.offsets)
    return Handed(fetched, received.new, received.frontier, max(0, newest - received.frontier), gate)
