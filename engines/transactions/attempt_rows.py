"""The rows of attempts as a statement takes them. What an error says is put into words once, and the error let go."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from engines.core import failures
from engines.core.attempt import AttemptRecord
from engines.core.errors import category_in
from engines.core.outcome import Failure, Success
from engines.core.states import CATEGORIES, STAGES, AttemptOutcome
from engines.transactions.leases import Lease

# So many attempts of a lease may wait as they are. Of more, each is put into words by whoever makes it.
FEW = 20


def add(lease: Lease, attempted: AttemptRecord, trace_id: str | None) -> None:
    """Keep an attempt until it is written down."""
    lease.attempts.append((attempted, trace_id))
    if len(lease.attempts) - lease.noted > FEW:
        put_into_words(lease, first=len(lease.attempts) - 1)


def put_into_words(lease: Lease, *, first: int | None = None, count: int | None = None) -> None:
    """Prepare attempts, from the first that the database does not know to the last, or up to a count.

    To format a traceback takes longer than to write it, and none of the database's time.
    """
    attempts = lease.attempts
    for place in _places(attempts, lease.noted if first is None else first, count):
        attempted, trace_id = attempts[place]
        if attempted.words is None and isinstance(attempted.outcome, Failure):
            attempts[place] = (_in_words(attempted, attempted.outcome), trace_id)


def mark_noted(lease: Lease, count: int) -> None:
    """Note that the database knows the first ones: they only count from now on."""
    attempts, before = lease.attempts, lease.noted
    lease.noted = max(before, count)
    for place in _places(attempts, before, count):
        attempted, trace_id = attempts[place]
        attempts[place] = (attempted.without_error()._replace(words=""), trace_id)


def rows_of(leases: Iterable[tuple[Lease, int | None]], now: float) -> str:
    """The rows that the database does not know yet, of each lease up to a count of its attempts."""
    rows = (
        _row(lease, attempted, trace_id, now)
        for lease, count in leases
        for attempted, trace_id in lease.attempts[lease.noted : count]
        if attempted.words != ""  # noted a moment ago
    )
    return f"[{','.join(rows)}]"


def _places(attempts: Sequence[Any], first: int, count: int | None) -> range:
    """Not beyond the end: an outcome that could not be written has left its attempts behind."""
    return range(first, len(attempts) if count is None else min(count, len(attempts)))


def _row(lease: Lease, attempted: AttemptRecord, trace_id: str | None, now: float) -> str:
    stage, number, of_total, started, duration, outcome, words = attempted
    head = (
        f'{{"id":{lease.id},"token":{lease.token},"step":{STAGES[stage]},"number":{number},"of_total":{of_total},'
        f'"age":{now - started:.6f},"duration":{duration:.6f},"policy_version":{lease.policy_version or "null"}'
    )
    trace = f',"trace_id":"{trace_id}"' if trace_id else ""
    if type(outcome) is Success:
        return f'{head},"outcome":0{trace}}}'
    if not isinstance(outcome, Failure):
        return f'{head},"outcome":{AttemptOutcome.CUT.value}{trace}}}'
    return f"{head},{words or _words(outcome)}{trace}}}"


def _in_words(attempted: AttemptRecord, failure: Failure) -> AttemptRecord:
    return attempted.without_error()._replace(words=_words(failure))


def _words(failure: Failure) -> str:
    """The columns of a failed attempt."""
    error = failure.error
    columns = {
        "outcome": AttemptOutcome.FAILURE.value,
        "category": CATEGORIES[category_in(error)],
        "error_type": failures.error_type(error),
        "message": failures.message_of(error),
        "traceback": failures.traceback_of(error),
    }
    return orjson.dumps(columns).decode()[1:-1]
