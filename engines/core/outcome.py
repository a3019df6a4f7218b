"""The outcome of a step, and of a transaction."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from engines.core.errors import ExceptionType, TransactionException, category_in

# Ten years: a wait without an end for people, and within every calendar.
LONGEST_WAIT = 10 * 365 * 86_400.0


class Success(NamedTuple):
    """A step returned a value."""

    value: Any


class Failure(NamedTuple):
    """A step failed. `origin` is the failure that called for the handler that then failed as well."""

    error: Any
    is_expired: bool = False
    origin: "Failure | None" = None
    is_unwanted: bool = False  # the end of the transaction was requested

    @property
    def is_final(self) -> bool:
        """Whether no other attempt follows: the task decided, nothing can help, the time is up, or nobody wants it."""
        is_decided = category_in(self.error) is ExceptionType.BUSINESS
        return self.is_expired or self.is_unwanted or is_decided or getattr(self.error, "is_fatal", False)


class Later(NamedTuple):
    """A transaction is to be tried again after so many seconds, by any worker; `failure` is why.

    One that is parked waits as its policy says, without a slot: it is the same delivery, and its time goes on counting.
    """

    seconds: float
    spent: int  # attempts so far
    failure: Failure
    of: int = 0  # attempts in all
    is_parked: bool = False
    time_left: float | None = None  # of the transaction
    timeout: float = 0.0  # of which that is left
    trace: Mapping[str, str] | None = None  # in which it ran so far


class Cancelled(NamedTuple):
    """A transaction ended because that was requested: before an attempt, or with one that failed."""

    failure: Failure | None = None


class Cut(NamedTuple):
    """A step was ended from outside, through no fault of the task: the transaction is given back as it was."""


CUT = Cut()
DONE = Success(None)  # most handlers return nothing
TRANSACTION, TIMED_OUT = "the transaction", "timed out after"
Outcome: TypeAlias = Success | Failure | Later | Cancelled | Cut


def timed_out(what: str, limit: float, *, transaction_id: str | None = None, is_expired: bool = False) -> Failure:
    """A limit of the engine's was reached: of an attempt, or (`is_expired`) of the whole transaction."""
    message = f"{what} {TIMED_OUT} {limit:g} s"
    return Failure(TransactionException(message, ExceptionType.TIMEOUT, transaction_id=transaction_id), is_expired)
