"""The rules for one transaction: work, then exactly one of success or exception handler, each with its own retries.

Written once for consumers and producers, threads and asyncio: the lifecycle yields what it wants done and is sent what
came of it.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, cast

from engines.core.attempt import AttemptRecord
from engines.core.errors import (
    ExceptionType,
    FetchException,
    FetchTimeoutException,
    RetryLater,
    TransactionException,
    category_in,
    error_text,
    wrap,
    wrapped,
)
from engines.core.outcome import Cancelled, Cut, Failure, Later, Outcome, Success
from engines.core.policy import ConsumerPolicy, ProducerPolicy, RetryPolicy
from engines.core.steps import Call, Enter, Leave, Sleep, Stage, Steps


class Plan(NamedTuple):
    """The parts of a lifecycle that differ: the stage of the work, and the retry policy of each stage."""

    work: Stage
    retry: RetryPolicy
    success: RetryPolicy
    exception: RetryPolicy
    retry_after_ceiling: float = 3600.0
    is_postponing: bool = False  # a transaction can be put back until its next attempt
    park_after: float = math.inf  # the longest wait for which it is not, unless it asks for that
    is_observed: bool = True  # somebody wants to know when a stage begins and ends
    is_success_final: bool = False  # nobody handles a success


class Resumed(NamedTuple):
    """What a transaction has behind it that was put back until its next attempt."""

    spent: int
    last: AttemptRecord | None = None  # the attempt that failed last
    ends_at: float | None = None  # when its time is up, on the monotonic clock
    timeout: float = 0.0
    trace: Mapping[str, str] | None = None

    @property
    def failure(self) -> Failure | None:
        return self.last and cast("Failure", self.last.outcome)


ANEW = Resumed(0)
SPENT = "no attempts left"


def plan_of(policy: ConsumerPolicy | ProducerPolicy, *, is_postponing: bool = False) -> Plan:
    """The lifecycle of a transaction under a policy. A loop with a limit ends what it starts: it parks nothing."""
    if isinstance(policy, ConsumerPolicy):
        stage, work = Stage.PROCESS, policy.steps.process.retry
    else:
        stage, work = Stage.PRODUCE, policy.steps.produce.retry
    steps, park_after = policy.steps, policy.park_after
    return Plan(
        work=stage,
        retry=work,
        success=steps.success.retry,
        exception=steps.exception.retry,
        retry_after_ceiling=policy.retry_after_ceiling,
        is_postponing=is_postponing,
        park_after=math.inf if park_after is None or policy.loop.limit is not None else park_after,
    )


def lifecycle(plan: Plan, resumed: Resumed = ANEW, *, is_cancelled: bool = False) -> Steps[Outcome]:
    """Work; settle a success; handle a failure, once. Attempts that were made before it was put back count."""
    if is_cancelled:
        return Cancelled()
    if plan.is_observed:
        yield Enter(plan.work, plan.retry)
    outcome = yield from attempts(plan.work, plan.retry, resumed=resumed, plan=plan)
    if plan.is_observed:
        yield Leave(outcome)
    if isinstance(outcome, Success):
        if plan.is_success_final:
            return outcome
        is_system, settle = plan.work is Stage.PRODUCE, run_stage if plan.is_observed else attempts
        settled = yield from settle(Stage.SUCCESS, plan.success, outcome.value, is_system=is_system)
        if isinstance(settled, Success):
            return outcome
        outcome = settled
    if isinstance(outcome, Failure):
        return (yield from give_up(outcome, plan.exception))
    return outcome


def give_up(failure: Failure, retry: RetryPolicy) -> Steps[Outcome]:
    """Run the exception handler. If the transaction's time is up already, the handler has its own limit only."""
    handled = yield from run_stage(Stage.EXCEPTION, retry, failure.error, is_bounded=not failure.is_expired)
    match handled:
        case Success():
            return failure
        case Failure(error):
            _put_below(failure.error, error)
            return handled._replace(origin=failure)
    return handled


def _put_below(original: BaseException, error: BaseException) -> None:
    """Chain the original error below the one of the exception handler."""
    seen = {id(original)}
    while error.__cause__ is not None and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__
    if id(error) not in seen and error.__context__ is None:
        error.__context__ = original


def run_stage(
    stage: Stage, retry: RetryPolicy, argument: Any = None, *, is_bounded: bool = True, is_system: bool = False
) -> Steps[Outcome]:
    """All attempts of one stage, as one."""
    yield Enter(stage, retry)
    outcome = yield from attempts(stage, retry, argument, is_bounded=is_bounded, is_system=is_system)
    yield Leave(outcome)
    return outcome


def attempts(  # noqa: PLR0913 (what its calls are made of)
    stage: Stage,
    retry: RetryPolicy,
    argument: Any = None,
    *,
    is_bounded: bool = True,
    is_system: bool = False,
    resumed: Resumed = ANEW,
    plan: Plan | None = None,
) -> Steps[Outcome]:
    """Try until it succeeds, is final, or the attempts run out; wait in between."""
    attempt: int = resumed.spent
    previous: Failure | None = None
    if attempt:  # its time may have come to an end while it waited
        previous = resumed.failure
        interruption: Failure | Cut | None = yield Sleep(0.0, is_bounded)
        if interruption is not None:
            return _after(previous, interruption)
    if attempt >= retry.max_attempts:  # the policy allowed more when the last of them was made
        return Failure(_spent(attempt, retry, previous))
    last = retry.max_attempts - 1
    while True:
        outcome: Outcome = yield Call(stage, attempt, retry, argument, is_bounded, is_system)
        if not isinstance(outcome, Failure):
            return outcome
        if attempt >= last or outcome.is_final:
            return _after(previous, outcome)
        seconds = _wait_after(outcome, retry.delay(attempt), plan)
        if plan is not None and plan.is_postponing:
            is_asked = isinstance(outcome.error, RetryLater)
            if is_asked or seconds > plan.park_after:
                return Later(seconds, attempt + 1, outcome, retry.max_attempts, is_parked=not is_asked)
        interruption = yield Sleep(seconds, is_bounded)
        if interruption is not None:
            return _after(outcome, interruption)
        attempt, previous = attempt + 1, outcome


def classify(error: BaseException, call: Call, transaction_id: str | None = None) -> Failure:
    """Classifies an error that a handler raised."""
    if isinstance(error, TransactionException) and category_in(error) in _categories(call):
        return Failure(error)
    return Failure(wrapped(error, transaction_id=transaction_id))


def _categories(call: Call) -> Collection[ExceptionType]:
    """The categories that a handler's error may name; an error with another one is wrapped as SYSTEM."""
    if call.stage is not Stage.SUCCESS:
        return set(ExceptionType)
    return {ExceptionType.SYSTEM} if call.is_system else {ExceptionType.SYSTEM, ExceptionType.BUSINESS}


def classify_fetch(error: BaseException) -> Failure:
    """Classifies an error of a connector's fetch."""
    if isinstance(error, FetchException):
        return Failure(error)
    kind = FetchTimeoutException if isinstance(error, TimeoutError) else FetchException
    return Failure(wrap(kind(error_text(error)), error))


def _wait_after(failure: Failure, delay: float, plan: Plan | None) -> float:
    """The delay that the handler asks for, within bounds; otherwise the policy's."""
    asked = getattr(failure.error, "after", None) if isinstance(failure.error, RetryLater) else None
    return delay if asked is None or plan is None else min(max(0.0, asked), plan.retry_after_ceiling)


def _spent(attempts_made: int, retry: RetryPolicy, previous: Failure | None) -> TransactionException:
    error = TransactionException(f"{SPENT}: {attempts_made} of {retry.max_attempts} were made")
    error.__cause__ = None if previous is None else previous.error
    return error


def _after(previous: Failure | None, outcome: Outcome) -> Outcome:
    """A transaction whose time is up names the failure that went before."""
    if previous is not None and isinstance(outcome, Failure) and outcome.is_expired:
        outcome.error.__cause__ = previous.error
    return outcome
