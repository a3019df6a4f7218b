"""A handoff: fetch, put into the forward buffer, advance the frontier, confirm to the source, in this order.

Artifacts that follow their facts are pulled from the peer before the facts that refer to them are received.
"""

import time
from typing import NamedTuple

from ergon_site.access.deadlines import within
from facts import artifacts
from facts.artifacts import Announced
from facts.client import Download
from facts.conf import settings
from facts.core.drafts import Reference
from facts.core.errors import AlarmError, DigestMismatchError, FactError, ObjectConflictError, UnreachableError
from facts.core.gates import Gate
from facts.forwarding.sources import Batch, PeerSource, Source
from facts.ledger import gating, holding, receiving, references
from facts.ledger.receiving import Arrival, NotHoldingError
from facts.models import Boundary

AT_ONCE = 250
# Bytes a second: a download that is slower is given up.
SLOWEST = 16 * 1024


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
    batch = _pull_artifacts(boundary, source, batch, holder=holder)
    with within(limit):
        return _receive(boundary, source, batch, holder)


def _receive(boundary: Boundary, source: Source, batch: Batch, holder: str) -> Handed:
    received = receiving.receive(boundary.pk, batch.arrivals, cursor=batch.cursor, holder=holder)
    trouble = received.trouble or batch.trouble
    # What cannot be true stays with the source, even where the buffer is further by now; and so does what it has not
    # sent: after a failover it may have other facts at those offsets.
    reached = min(received.frontier, received.last if trouble else max(batch.offsets, default=batch.cursor))
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


class Held:
    """A download that takes long: while it goes on, the boundary stays with this process."""

    def __init__(self, download: Download, boundary: Boundary, holder: str) -> None:
        self._download, self._boundary, self._holder = download, boundary, holder
        self._keep_at = time.monotonic() + holding.TERM.total_seconds() / 3

    def read(self, size: int, /) -> bytes:
        if time.monotonic() >= self._keep_at:
            _keep(self._boundary, self._holder)
            self._keep_at = time.monotonic() + holding.TERM.total_seconds() / 3
        return self._download.read(size)


def _pull_artifacts(boundary: Boundary, source: PeerSource, batch: Batch, *, holder: str) -> Batch:
    """Pull what a batch refers to; what comes back is the batch up to the first fact whose artifacts are not here."""
    for place, arrival in enumerate(batch.arrivals):
        before = batch.arrivals[:place]
        try:
            _pull_for(arrival, boundary, source, holder)
        except AlarmError as trouble:
            return Batch(before, batch.cursor, trouble)
        except FactError as error:
            if not before or isinstance(error, NotHoldingError):
                raise
            return Batch(before, batch.cursor)  # the next handoff begins with it, and says why it fails
    return batch


def _keep(boundary: Boundary, holder: str) -> None:
    if not holding.keep(boundary, holder):
        msg = f"another process forwards {boundary}"
        raise NotHoldingError(msg)


def _pull_for(arrival: Arrival, boundary: Boundary, source: PeerSource, holder: str) -> None:
    wanted = arrival.entry.references
    there = references.find(reference.name for reference in wanted)
    for reference in wanted:
        match references.fault(reference, there.get(reference.name)):
            case None:
                continue
            case DigestMismatchError():
                raise _conflict(reference, arrival.offset)
        _keep(boundary, holder)
        # A large one may take long, as long as it does not stand still.
        limit = settings().handoff_timeout + reference.size / SLOWEST
        try:
            with within(limit), source.open_artifact(*reference.name) as download:
                artifacts.put(
                    *reference.name,
                    Held(download, boundary, holder),
                    by=f"peer {boundary.from_zone}"[:150],
                    media_type=download.media_type,
                    announced=Announced(reference.size, reference.digest),
                )
        except ObjectConflictError:
            raise _conflict(reference, arrival.offset) from None
        except FactError as error:
            name = f"{reference.bucket}/{reference.key}"
            error.message = f"the artifact {name} of offset {arrival.offset:,} cannot be pulled: {error.message}"
            raise


def _conflict(reference: Reference, offset: int) -> AlarmError:
    name = f"{reference.bucket}/{reference.key}"
    msg = f"the fact at offset {offset:,} refers to {name} with {reference.digest}; here it has other bytes"
    return AlarmError(msg, offset=offset)
