"""VERBS: settle, postpone, find_written, note, prepare, lock, make_ready. Outcomes and attempts in batches.

A lost lease changes nothing.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import orjson

from engines import dead_letters
from engines.conf import settings
from engines.core import failures
from engines.core.outcome import Cancelled, Failure, Later, Outcome, Success
from engines.core.states import CATEGORIES, State
from engines.models import TransactionRecord
from engines.transactions import attempt_rows, payloads
from engines.transactions.leases import Lease, LeasedTransaction, lease_document
from engines.transactions.statements import statements
from ergon_site.access.database import standbys
from ergon_site.access.database.calls import retry_conflicts, short_transaction

# Attempts that are noted at once. After an outage many may wait.
NOTED_AT_ONCE = 500


class Settlement(NamedTuple):
    """A transaction and how it came out."""

    transaction: LeasedTransaction
    outcome: Outcome


def lock(leases: Collection[Lease]) -> None:
    """Lock transactions in the order of a renewal. Whoever changes some of them and then others does this first."""
    statements().lock(sorted(lease.id for lease in leases))


def make_ready() -> None:
    """Connect, and prepare this thread's connection for settlements and claims."""
    statements().make_ready()


@retry_conflicts
def settle(
    settlements: Sequence[Settlement], *, worker: int | None = None, is_own: bool = False
) -> list[LeasedTransaction]:
    """Write down how transactions ended; those whose lease was lost, which keep whatever has become of them.

    `is_own` says that this thread's connection serves for little else, and is in no transaction.
    """
    if not settlements:
        return []
    now = time.monotonic()
    ordered = sorted(settlements, key=lambda one: one.transaction.lease.id)
    records = f"[{','.join(_record(one) for one in ordered)}]"
    attempts, is_noted = _attempts(ordered, now), _is_noted(ordered)
    if not any(isinstance(one.outcome, Failure) for one in ordered):
        settled = statements().settle(records, attempts, worker, is_noted=is_noted, is_own=is_own)
    else:
        with short_transaction():
            lock([one.transaction.lease for one in ordered])
            settled = statements().settle(records, attempts, worker, is_noted=is_noted)
            _mark_cancelled(ordered, settled)
            failed = [(one.transaction, one.outcome) for one in ordered if isinstance(one.outcome, Failure)]
            final = [one for one in failed if settled.get(one[0].lease.id) == State.FAILED]
            dead_letters.record_failed(final, worker=worker)
    return [one.transaction for one in ordered if one.transaction.lease.id not in settled]


@retry_conflicts
def postpone(settlements: Sequence[Settlement], *, worker: int | None = None) -> list[LeasedTransaction]:
    """Put back, until they are due, transactions that ask to be tried again later; those whose lease was lost.

    Where the end of one was requested, it is cancelled.
    """
    now = time.monotonic()
    ordered = sorted(settlements, key=lambda one: one.transaction.lease.id)
    records = []
    for one in ordered:
        lease, later = one.transaction.lease, cast("Later", one.outcome)
        record: dict[str, Any] = {"id": lease.id, "token": lease.token, "owner": lease.owner, "seconds": later.seconds}
        # One that only waited for a place was not delivered, and the delivery of one that is parked goes on later.
        undelivered = int(later.is_parked or later.spent == lease.resumed.spent)
        record |= {"error": _behind(lease, later), "time_left": later.time_left, "undelivered": undelivered}
        records.append(record)
    document, attempts = orjson.dumps(records).decode(), _attempts(ordered, now)
    postponed: dict[int, int] = statements().postpone(document, attempts, worker, is_noted=_is_noted(ordered))
    _mark_cancelled(ordered, postponed)
    return [one.transaction for one in ordered if one.transaction.lease.id not in postponed]


def _mark_cancelled(settlements: Iterable[Settlement], states: Mapping[int, int]) -> None:
    """Whoever counts outcomes asks the lease: a request may have come after its last renewal."""
    for one in settlements:
        if states.get(one.transaction.lease.id) == State.CANCELLED:
            one.transaction.lease.is_cancelled = True


def _behind(lease: Lease, later: Later) -> dict[str, Any]:
    """The record of a waiting transaction: the reason, the attempts so far, the time limit and the trace."""
    told = failures.summary(later.failure, lease.tried) | {"spent": later.spent}
    names = ("of", "is_parked", "timeout", "trace")
    return told | {name: value for name in names if (value := getattr(later, name))}


def find_written(settlements: Collection[Settlement]) -> set[int]:
    """The leases whose outcomes are written already. Nothing else ends a lease but a rescue, which is counted."""
    expected = {
        one.transaction.lease.id: (one.transaction.lease.token, one.transaction.lease.rescues) for one in settlements
    }
    states = {one.transaction.lease.id: _states(one.outcome) for one in settlements}
    records = TransactionRecord.objects.filter(pk__in=expected, lease_owner=None)
    found = list(records.values_list("pk", "state", "fencing_token", "rescues"))
    written = {key: state for key, state, *known in found if tuple(known) == expected[key] and state in states[key]}
    _mark_cancelled(settlements, written)
    if written:
        standbys.wait_as_writer()
    return set(written)


def _states(outcome: Outcome) -> set[State]:
    """The states that an outcome may have led to: instead of what is no success, a request to cancel it is met."""
    match outcome:
        case Success():
            return {State.SUCCEEDED}
        case Later():
            return {State.PENDING, State.CANCELLED}
    return {State.FAILED, State.CANCELLED}


def prepare(leases: Collection[Lease], *, is_ending: bool = False) -> None:
    """Put into words what `note` writes down of these next, or, of those whose outcome comes, all that is left."""
    for lease, count in ((lease, None) for lease in leases) if is_ending else _failing(leases):
        attempt_rows.put_into_words(lease, count=count)


@retry_conflicts
def note(leases: Collection[Lease], *, worker: int | None = None, is_ending: bool = False) -> int:
    """Write down attempts of transactions that still run and have failed before; how many transactions.

    `is_ending` says that their outcomes are not sent before this is done.
    """
    failing = _failing(leases)
    for lease, _ in failing:
        lease.is_noted = True
    # Asked only now: an outcome that is on its way by then was told above that attempts may be known already.
    failing = [one for one in failing if is_ending or not one[0].is_settling]
    if not failing:
        return 0
    document = lease_document([lease for lease, _ in failing])
    held: set[int] = statements().note(document, attempt_rows.rows_of(failing, time.monotonic()), worker)
    for lease, count in failing:
        if lease.id in held:
            attempt_rows.mark_noted(lease, count)
    return len(held)


def _failing(leases: Collection[Lease]) -> list[tuple[Lease, int]]:
    """Those with a failed attempt of which the database does not know yet; up to which attempt it is told next."""
    failing = [
        lease for lease in leases if any(isinstance(one.outcome, Failure) for one, _ in lease.attempts[lease.noted :])
    ]
    share = max(1, NOTED_AT_ONCE // max(1, len(failing)))
    return [(lease, min(lease.noted + share, len(lease.attempts))) for lease in sorted(failing, key=lambda one: one.id)]


def _is_noted(settlements: Iterable[Settlement]) -> bool:
    return any(one.transaction.lease.is_noted for one in settlements)


def _record(settlement: Settlement) -> str:
    lease = settlement.transaction.lease
    head = f'{{"id":{lease.id},"token":{lease.token},"owner":{lease.owner}'
    match settlement.outcome:
        case Success(None):
            return f'{head},"state":2}}'
        case Success(value):
            return f'{head},"state":{State.SUCCEEDED.value}{_result(value)}}}'
        case Failure() as failure:
            error = orjson.dumps(failures.summary(failure, lease.tried)).decode()
            category = CATEGORIES[failures.category_of(failure)]
            return f'{head},"state":{State.FAILED.value},"error":{error},"category":{category}}}'
        case Cancelled(None):
            return f'{head},"state":{State.CANCELLED.value}}}'
        case Cancelled(Failure() as failure):
            error = orjson.dumps(failures.summary(failure, lease.tried)).decode()
            return f'{head},"state":{State.CANCELLED.value},"error":{error}}}'
    msg = f"a transaction that was cut is released, not settled: {settlement.transaction.id}"
    raise ValueError(msg)


def _result(value: Any) -> str:
    """The columns of a success. Where the result is not kept as it was, the column of errors says so."""
    text, note = payloads.encode_result(value, limit=settings().result_limit)
    result = "" if text is None else f',"result":{text}'
    if not note:
        return result
    told = {"type": "ResultNotKept" if text is None else "ResultChanged", "message": note, "category": None}
    return f'{result},"error":{orjson.dumps(told).decode()}'


def _attempts(settlements: Iterable[Settlement], now: float) -> str:
    return attempt_rows.rows_of(((one.transaction.lease, None) for one in settlements), now)
