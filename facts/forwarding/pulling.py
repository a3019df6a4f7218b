"""Artifacts that follow their facts: pulled from the peer before the facts that refer to them are received."""

import time

from ergon_site.access.deadlines import within
from facts import artifacts
from facts.artifacts import Announced
from facts.client import Download
from facts.conf import settings
from facts.core.drafts import Reference
from facts.core.errors import AlarmError, DigestMismatchError, FactError, ObjectConflictError
from facts.forwarding.sources import Batch, PeerSource
from facts.ledger import holding, references
from facts.ledger.receiving import Arrival, NotHoldingError
from facts.models import Boundary

# Bytes a second: a download that is slower is given up.
SLOWEST = 16 * 1024


class Held:
    """A download that takes long: while it goes on, the boundary stays with this process."""

    def __init__(self, download: Download, boundary: Boundary, holder: str) -> None:
        self._download, self._boundary, self._holder = download, boundary, holder
        self._keep_at = time.monotonic() + holding.TERM.total_seconds() / 3

    def read(self, size: int, /) -> bytes:
        if time.monotonic() >= self._keep_at:
            keep(self._boundary, self._holder)
            self._keep_at = time.monotonic() + holding.TERM.total_seconds() / 3
        return self._download.read(size)


def pull(boundary: Boundary, source: PeerSource, batch: Batch, *, holder: str) -> Batch:
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


def keep(boundary: Boundary, holder: str) -> None:
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
        keep(boundary, holder)
        _pull(reference, arrival.offset, boundary, source, holder)


def _pull(reference: Reference, offset: int, boundary: Boundary, source: PeerSource, holder: str) -> None:
    try:
        # A large one may take long, as long as it does not stand still.
        limit = settings().handoff_timeout + reference.size / SLOWEST
        with within(limit), source.open_artifact(reference.bucket, reference.key) as download:
            artifacts.put(
                reference.bucket,
                reference.key,
                Held(download, boundary, holder),
                by=f"peer {boundary.from_zone}"[:150],
                media_type=download.media_type,
                announced=Announced(reference.size, reference.digest),
            )
    except ObjectConflictError:
        raise _conflict(reference, offset) from None
    except FactError as error:
        name = f"{reference.bucket}/{reference.key}"
        error.message = f"the artifact {name} of offset {offset:,} cannot be pulled: {error.message}"
        raise


def _conflict(reference: Reference, offset: int) -> AlarmError:
    name = f"{reference.bucket}/{reference.key}"
    msg = f"the fact at offset {offset:,} refers to {name} with {reference.digest}; here it has other bytes"
    return AlarmError(msg, offset=offset)
