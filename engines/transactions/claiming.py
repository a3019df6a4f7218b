"""VERBS: claim, begin, heartbeat, release, rescue. A lease has an owner, an end and a fencing token."""

import time
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, NamedTuple

from engines import dead_letters, telemetry
from engines.conf import settings
from engines.connectors.freshness import Moment, now
from engines.core import failures
from engines.core.attempt import AttemptRecord
from engines.core.errors import POISON
from engines.core.lifecycle import ANEW, Resumed
from engines.core.states import State
from engines.transactions.counting import count_ends
from engines.transactions.leases import Lease, LeasedTransaction, lease_document
from engines.transactions.statements import statements
from ergon_site.access.database.calls import retry_conflicts, short_transaction

RESCUED_AT_ONCE = 500


class Rescue(NamedTuple):
    """The result of a rescue: how many run again (or not, as was requested), and how many are poison."""

    returned: int
    poison: int


@retry_conflicts
def claim(
    pipeline_id: int, count: int, worker: int, *, is_own: bool = False, is_oldest_first: bool = False
) -> list[LeasedTransaction]:
    """Lease the next ones of a pipeline: due, unpaused, by priority and then age. No two workers get the same.

    `is_own` says that this thread's connection serves for little else, and may be set up for claims. With
    `is_oldest_first` priorities do not count.
    """
    asked_at = now()
    rows = statements().claim(
        pipeline_id, count, worker, settings().lease, is_own=is_own, is_oldest_first=is_oldest_first
    )
    seconds = settings().lease
    return [_leased(pipeline_id, worker, seconds, asked_at, row) for row in rows]


@retry_conflicts
def begin(lease: Lease) -> bool:
    """Write down that one which a dead worker held is now really run; False if the lease is lost.

    A worker takes with it all that it holds, most of it never begun. Who is poison shows from the second time on: only
    what was begun counts as rescued again.
    """
    lease.is_begun = lease.rescues == 0 or lease.is_begun or statements().begin(lease.id, lease.token, lease.owner)
    return lease.is_begun


@retry_conflicts
def heartbeat(leases: Collection[Lease]) -> set[int]:
    """Renew leases; the ids of those that are still held."""
    asked_at = now()
    if not leases:
        return set()
    held: dict[int, bool] = statements().renew(lease_document(leases), settings().lease)
    for lease in leases:
        if lease.id in held:
            lease.confirmed_at = asked_at
            lease.is_cancelled = lease.is_cancelled or held[lease.id]
    return set(held)


@retry_conflicts
def release(leases: Collection[Lease]) -> int:
    """Give transactions back as they were: their attempt is not burnt. How many are to run again."""
    document = lease_document(leases)
    released: dict[int, int] = statements().release(document) if document != "[]" else {}
    return sum(state == State.PENDING for state in released.values())


def rescue(*, worker: int | None = None, sparing: Collection[int] = ()) -> Rescue:
    """Take back what lapsed, or everything of a worker that is known to be gone. A worker spares what it runs."""
    asked_at = time.monotonic()
    # Asked by every worker every second: a look takes no lock.
    return _rescue(worker, sparing, asked_at) if statements().is_any_to_rescue(worker) else Rescue(0, 0)


def is_any_lapsed() -> bool:
    """Whether there is a lease that nobody has renewed in time."""
    return bool(statements().is_any_to_rescue(None))


@retry_conflicts
@short_transaction()
def _rescue(worker: int | None, sparing: Collection[int], asked_at: float) -> Rescue:
    if worker is None and time.monotonic() - asked_at > settings().heartbeat / 2:
        return Rescue(0, 0)  # whoever kept us waiting has kept others from renewing, too
    rows = statements().rescue(RESCUED_AT_ONCE, POISON, worker, list(sparing))
    poison = [
        dead_letters.Poison(record_id, uid, pipeline_id, deliveries, version, owner)
        for record_id, uid, pipeline_id, state, deliveries, version, owner, *_ in rows
        if state == State.FAILED
    ]
    ended = Counter((pipeline_id, State(state)) for _, _, pipeline_id, state, *_ in rows if state != State.PENDING)
    for (pipeline_id, state), count in sorted(ended.items()):
        count_ends(pipeline_id, **{state.word: count})
    if poison:
        dead_letters.record_poison(poison)
    if rows:
        telemetry.rescued.add(len(rows))
    return Rescue(returned=len(rows) - len(poison), poison=len(poison))


def _leased(pipeline_id: int, worker: int, seconds: float, asked_at: Moment, row: list[Any]) -> LeasedTransaction:
    record_id, token, version, rescues, behind, uid, payload, metadata, *about = row
    correlation_id, parent_id, source, created_at, trace_context, is_cancelled = about
    resumed = ANEW if behind is None else _resumed(behind)
    lease = Lease(record_id, token, worker, pipeline_id, version, rescues, resumed)
    lease.seconds, lease.confirmed_at, lease.is_cancelled = seconds, asked_at, is_cancelled
    return LeasedTransaction(
        uid,
        payload,
        metadata,
        correlation_id=correlation_id,
        parent_id=parent_id,
        source=source,
        created_at=datetime.fromtimestamp(created_at, UTC),
        trace_context=trace_context or {},
        lease=lease,
    )


def _resumed(behind: dict[str, Any]) -> Resumed:
    """What `postpone` wrote down of a transaction when it was put back; less, if an earlier release did."""
    spent, left, timeout = behind.get("spent", 0), behind.get("time_left"), behind.get("timeout", 0.0)
    if not spent:
        return ANEW
    stage, failure = failures.restored(behind)
    return Resumed(
        spent=spent,
        last=AttemptRecord(stage, spent, behind.get("of", spent), 0.0, 0.0, failure),
        # A clock that was set back gives nobody more time than there was.
        ends_at=None if left is None else time.monotonic() + min(left, timeout),
        timeout=timeout,
        trace=behind.get("trace"),
    )
