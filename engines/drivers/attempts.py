"""An attempt of a handler: its time limits, what the handler sees of it, and the check of what it returns."""

import inspect
import time
from collections.abc import Callable
from contextvars import ContextVar
from enum import Enum, auto
from functools import lru_cache, partial
from types import AsyncGeneratorType, GeneratorType
from typing import Any, NamedTuple

from engines.connectors.base import AsyncConnector
from engines.core.errors import FetchTimeoutException
from engines.core.outcome import CUT, LONGEST_WAIT, TRANSACTION, Failure, Later, Outcome, timed_out
from engines.core.steps import Call, Stage

# How long an exception handler may take that begins when its transaction's time is up, unless its policy says.
LAST_WORDS = 30.0


class Scope(Enum):
    """Whose time is up."""

    ATTEMPT = auto()
    TRANSACTION = auto()
    LOOP = auto()


class Limit(NamedTuple):
    """The time limit of a step, and its scope."""

    seconds: float
    scope: Scope


class Deadlines(NamedTuple):
    """Until when a transaction and its loop may run, on the monotonic clock."""

    transaction: float | None
    loop: float | None
    transaction_timeout: float = 0.0

    def postponed(self, seconds: float) -> "Deadlines":
        """The same for a transaction that began so much later."""
        return self if self.transaction is None else self._replace(transaction=self.transaction + seconds)

    def parked(self, later: Later) -> Later:
        """The same wait, within the calendar and the transaction's time, which goes on counting meanwhile."""
        later = later._replace(seconds=min(later.seconds, LONGEST_WAIT))
        if self.transaction is None or not later.is_parked:
            return later
        left = max(0.0, self.transaction - time.monotonic())
        return later._replace(seconds=min(later.seconds, left), time_left=left, timeout=self.transaction_timeout)

    def limit_of(self, call: Call) -> Limit | None:
        """The limit of a call. An exception handler that could not begin in the transaction's time has its own."""
        seconds = call.retry.timeout
        if self is NO_DEADLINES and call.is_bounded:
            return None if seconds is None else _limit_of_attempt(seconds)
        limit = self.limit(seconds, is_bounded=call.is_bounded)
        if call.stage is not Stage.EXCEPTION:
            return limit
        is_too_late = limit is not None and limit.scope is Scope.TRANSACTION and limit.seconds <= 0
        if call.is_bounded and not (is_too_late and call.attempt == 0):
            return limit
        return self.limit(LAST_WORDS if seconds is None else seconds, is_bounded=False)

    def limit(self, seconds: float | None, *, is_bounded: bool) -> Limit | None:
        """The nearest of three limits that never add up: the step's own, the transaction's, the loop's."""
        nearest = None if seconds is None else _limit_of_attempt(seconds)
        if self.transaction is not None and is_bounded:
            nearest = _nearer(nearest, self.transaction, Scope.TRANSACTION)
        if self.loop is not None:
            nearest = _nearer(nearest, self.loop, Scope.LOOP)
        return nearest

    def reached(self, limit: Limit, call: Call, transaction_id: str | None) -> Outcome:
        """The outcome of a call that did not end within its limit."""
        if limit.scope is Scope.LOOP:
            return CUT
        if call.stage is Stage.FETCH:
            msg = f"the connector did not answer within {limit.seconds:g} s"
            return Failure(FetchTimeoutException(msg))
        if limit.scope is Scope.TRANSACTION:
            return self._expired(transaction_id)
        return timed_out(f"{call.stage.value} attempt", limit.seconds, transaction_id=transaction_id)

    def slept(self, limit: Limit | None, transaction_id: str) -> Outcome | None:
        """The outcome of a wait: none, unless the transaction's or the loop's time ended it."""
        match limit and limit.scope:
            case Scope.TRANSACTION:
                return self._expired(transaction_id)
            case Scope.LOOP:
                return CUT
        return None

    def _expired(self, transaction_id: str | None) -> Failure:
        seconds = self.transaction_timeout
        return timed_out(TRANSACTION, seconds, transaction_id=transaction_id, is_expired=True)


@lru_cache
def _limit_of_attempt(seconds: float) -> Limit:
    return Limit(seconds, Scope.ATTEMPT)


def _nearer(limit: Limit | None, deadline: float, scope: Scope) -> Limit:
    left = max(0.0, deadline - time.monotonic())
    return limit if limit is not None and limit.seconds < left else Limit(left, scope)


NO_DEADLINES = Deadlines(None, None)


# Types of results that need no closer look.
PLAIN = frozenset({type(None), bool, int, float, str, dict, list, tuple})
UNRUN = (GeneratorType, AsyncGeneratorType)


class CurrentAttempt(NamedTuple):
    """The attempt that a handler runs in."""

    step: str
    number: int  # from 1, for people
    of: int
    ends_at: float | None = None
    asks_whether_lost: Callable[[], bool] = bool
    transaction_id: str | None = None
    asks_whether_cancelled: Callable[[], bool] = bool

    @property
    def remaining(self) -> float | None:
        """Seconds until this attempt is given up, None if nothing limits it."""
        return None if self.ends_at is None else max(0.0, self.ends_at - time.monotonic())

    @property
    def is_lease_lost(self) -> bool:
        """Whether another worker has the transaction by now: whatever this attempt still does counts for nothing."""
        return self.asks_whether_lost()

    @property
    def is_cancelled(self) -> bool:
        """Whether the end of the transaction was requested: no other attempt follows. Its success counts."""
        return self.asks_whether_cancelled()


# What the current attempt is made of once somebody asks for it, which few handlers do.
_current: ContextVar[tuple[Call, float | None, AsyncConnector, Any] | None] = ContextVar("attempt", default=None)


def current_attempt() -> CurrentAttempt:
    """The attempt that this code runs in; `remaining`, `is_lease_lost`, `is_cancelled` let a handler stop by itself."""
    current = _current.get()
    if current is None:  # outside an engine, as in a test of a handler, it is the first and only one
        return CurrentAttempt("process", 1, 1)
    call, ends_at, connector, transaction = current
    number, of = call.attempt + 1, call.retry.max_attempts
    is_lost, is_cancelled = partial(connector.is_lost, transaction), partial(connector.is_cancelled, transaction)
    return CurrentAttempt(str(call.stage), number, of, ends_at, is_lost, transaction.id, is_cancelled)


def current_transaction() -> str | None:
    """The id of the transaction that this code runs for, if a handler does."""
    current = _current.get()
    return None if current is None else current[3].id


def announce(call: Call, limit: Limit | None, connector: AsyncConnector, transaction: Any) -> None:
    """Set the current attempt, for the handler that is called next."""
    _current.set((call, None if limit is None else time.monotonic() + limit.seconds, connector, transaction))


def refusal_of(value: Any, stage: Stage, *, is_async: bool) -> TypeError | None:
    """Why the result of a handler cannot be taken: a generator or coroutine is never run. None if it can."""
    if not (inspect.isawaitable(value) or isinstance(value, UNRUN)):
        return None
    if isinstance(value, UNRUN):
        msg = f"the {stage.value} handler returned a generator, which is never run; return its values instead"
        return TypeError(msg)
    kind = type(value).__name__
    if inspect.iscoroutine(value):
        value.close()
        kind = "coroutine"
    if is_async:
        return TypeError(f"the {stage.value} handler returned a {kind} that was not awaited")
    msg = f"the {stage.value} handler of a threaded task returned a {kind}; derive the task from an Async class"
    return TypeError(msg)
