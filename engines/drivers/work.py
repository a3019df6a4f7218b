"""The input of a driver, and the state that both drivers keep while they run it."""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from types import AsyncGeneratorType, GeneratorType
from typing import Any, NamedTuple, TypeAlias

from engines.core.attempt import AttemptRecord
from engines.core.errors import FetchTimeoutException, LoopTimeout
from engines.core.lifecycle import Plan, lifecycle, plan_of
from engines.core.outcome import CUT, Failure, Outcome, Success, timed_out
from engines.core.policy import ConsumerPolicy, ProducerPolicy
from engines.core.steps import Call, Stage, Steps, Stop
from engines.drivers.limits import CANCEL_GRACE, Abandoned
from engines.drivers.slots import Share

PLAIN = (type(None), bool, int, float, str, dict, list, tuple)
UNRUN = (GeneratorType, AsyncGeneratorType)
# How long an exception handler may take that begins when its transaction's time is up, unless its policy says.
LAST_WORDS = 30.0


class Waiting(NamedTuple):
    """A transaction that waits for a place in an executor, as the driver sees it."""

    is_wanted: Callable[[], bool]
    aside: Callable[[], AbstractContextManager[bool]]  # its slot is another's meanwhile; False if too many wait so
    may_postpone: bool  # it can be put back until a later time


class Postponed(NamedTuple):
    """There is no place elsewhere: the transaction is to come back after so many seconds; `error` says why."""

    seconds: float
    error: Exception


Hold: TypeAlias = Callable[[Any, Waiting], AbstractContextManager[bool | Postponed]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One loop, ready to run: its policy and rules, the task's handlers, the connector's functions."""

    task: str
    pipeline: str | None = None
    policy: ConsumerPolicy | ProducerPolicy
    loop: Callable[[Callable[[], Any]], Steps[Stop | Failure]]
    handlers: Mapping[Stage, Callable[..., Any]]
    silent: frozenset[Stage] = frozenset()  # stages whose handler the author left as it is
    timeout_error: type[LoopTimeout]
    abandoned_grace: float = 30.0
    cancel_grace: float = CANCEL_GRACE
    abandoned: Abandoned = field(default_factory=Abandoned)  # of the task, by all its loops
    policy_version: str | None = None
    fetch: Callable[[int], Any] | None = None
    # What a connector may offer besides.
    begin: Callable[[Any], Any] | None = None  # whether the next handler of a transaction may start
    is_lost: Callable[[Any], bool] | None = None  # whether another worker has a transaction that runs here
    on_lost: Callable[[Callable[[Sequence[Any]], None] | None], None] | None = None
    acknowledge: Callable[[Any, Outcome], Any] | None = None
    release: Callable[[list[Any]], Any] | None = None
    count: Callable[[], Any] | None = None
    flush: Callable[[], Any] | None = None
    note: Callable[[Any, AttemptRecord], None] | None = None
    on_arrival: Callable[[Callable[[], None] | None], None] | None = None
    policy_in_force: Callable[[], tuple[Any, str]] | None = None
    is_postponing: bool = False
    slots: Share | None = None  # where other loops run the same pipeline
    spent: Callable[[Any], int] | None = None  # attempts that a transaction has behind it
    # What a task offers whose work runs elsewhere: a place there for one attempt, and an end to all that runs.
    hold: Hold | None = None
    halt: Callable[[], None] | None = None
    halt_one: Callable[[Any], None] | None = None

    @property
    def plan(self) -> Plan:
        return plan_of(self.policy, is_postponing=self.is_postponing)

    def lifecycle(self, plan: Plan, transaction: Any) -> Steps[Outcome]:
        return lifecycle(plan, 0 if self.spent is None else self.spent(transaction))

    def renewed(self) -> "Work":
        """The same work under the policy that is in force by now."""
        if self.policy_in_force is None:
            return self
        policy, version = self.policy_in_force()
        return self if version == self.policy_version else replace(self, policy=policy, policy_version=version)

    def is_noted(self, stage: Stage, outcome: Outcome) -> bool:
        """Whether an attempt is worth writing down: not that a handler did nothing, which nobody has written."""
        return stage not in self.silent or not isinstance(outcome, Success)

    @property
    def concurrency(self) -> int:
        return self.policy.loop.concurrency.value

    @property
    def is_streaming(self) -> bool:
        return isinstance(self.policy, ConsumerPolicy) and self.policy.loop.streaming

    @property
    def is_worker(self) -> bool:
        """Whether it runs for ever, or for a pipeline: then another process can take its place."""
        return self.is_streaming or self.pipeline is not None


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

    def limit_of(self, call: Call) -> Limit | None:
        """The limit of a call. An exception handler that could not begin in the transaction's time has its own."""
        seconds, is_bounded = call.retry.timeout, call.is_bounded
        limit = self.limit(seconds, is_bounded=is_bounded)
        is_first = call.stage is Stage.EXCEPTION and call.attempt == 0
        if is_first and limit is not None and limit.scope is Scope.TRANSACTION and limit.seconds <= 0:
            is_bounded = False
        if call.stage is Stage.EXCEPTION and not is_bounded:
            return self.limit(LAST_WORDS if seconds is None else seconds, is_bounded=False)
        return limit

    def limit(self, seconds: float | None, *, is_bounded: bool) -> Limit | None:
        """The nearest of three limits that never add up: the step's own, the transaction's, the loop's."""
        nearest = None if seconds is None else Limit(seconds, Scope.ATTEMPT)
        if self.transaction is not None and is_bounded:
            nearest = _nearer(nearest, self.transaction, Scope.TRANSACTION)
        if self.loop is not None:
            nearest = _nearer(nearest, self.loop, Scope.LOOP)
        return nearest


def _nearer(limit: Limit | None, deadline: float, scope: Scope) -> Limit:
    left = max(0.0, deadline - time.monotonic())
    return limit if limit is not None and limit.seconds <= left else Limit(left, scope)


NO_DEADLINES = Deadlines(None, None)


class CurrentAttempt(NamedTuple):
    """The attempt that a handler runs in."""

    step: str
    number: int  # from 1, for people
    of: int
    ends_at: float | None = None
    asks_whether_lost: Callable[[], bool] = lambda: False

    @property
    def remaining(self) -> float | None:
        """Seconds until this attempt is given up, None if nothing limits it."""
        return None if self.ends_at is None else max(0.0, self.ends_at - time.monotonic())

    @property
    def is_lease_lost(self) -> bool:
        """Whether another worker has the transaction by now: whatever this attempt still does counts for nothing."""
        return self.asks_whether_lost()


# Outside an engine, as in a test of a handler, it is the first and only attempt.
_current = ContextVar("attempt", default=CurrentAttempt("process", 1, 1))  # noqa: B039 (immutable)


def current_attempt() -> CurrentAttempt:
    """The attempt that this code runs in; `remaining` and `is_lease_lost` let a handler stop by itself."""
    return _current.get()


def announce(work: Work, transaction: Any, call: Call, limit: Limit | None) -> None:
    """Tell the handler which attempt it is."""
    ends_at = None if limit is None else time.monotonic() + limit.seconds
    attempt = CurrentAttempt(call.stage.value, call.attempt + 1, call.retry.max_attempts, ends_at)
    if work.is_lost is not None:
        attempt = attempt._replace(asks_whether_lost=partial(work.is_lost, transaction))
    _current.set(attempt)


def checked_result(value: Any, stage: Stage, *, is_async: bool = False) -> Any:
    """The result of a handler; refused if it is a generator or coroutine, which is never run."""
    if type(value) in PLAIN or not (inspect.isawaitable(value) or isinstance(value, UNRUN)):
        return value
    if isinstance(value, UNRUN):
        msg = f"the {stage.value} handler returned a generator, which is never run; return its values instead"
        raise TypeError(msg)
    kind = type(value).__name__
    if inspect.iscoroutine(value):
        value.close()
        kind = "coroutine"
    if is_async:
        msg = f"the {stage.value} handler returned a {kind} that was not awaited"
    else:
        msg = f"the {stage.value} handler of a threaded task returned a {kind}; derive the task from an Async class"
    raise TypeError(msg)


def reached(limit: Limit, call: Call, deadlines: Deadlines, transaction_id: str | None) -> Outcome:
    """The error of a call that did not end within its limit."""
    if limit.scope is Scope.LOOP:
        return CUT
    if call.stage is Stage.FETCH:
        msg = f"the connector did not answer within {limit.seconds:g} s"
        return Failure(FetchTimeoutException(msg))
    if limit.scope is Scope.TRANSACTION:
        return expired(deadlines, transaction_id)
    return timed_out(f"{call.stage.value} attempt", limit.seconds, transaction_id=transaction_id)


def slept(limit: Limit | None, deadlines: Deadlines, transaction_id: str) -> Outcome | None:
    """What it means that a wait has ended: nothing, or that somebody's time is up."""
    match limit and limit.scope:
        case Scope.TRANSACTION:
            return expired(deadlines, transaction_id)
        case Scope.LOOP:
            return CUT
    return None


def expired(deadlines: Deadlines, transaction_id: str | None) -> Failure:
    seconds = deadlines.transaction_timeout
    return timed_out("the transaction", seconds, transaction_id=transaction_id, is_expired=True)
