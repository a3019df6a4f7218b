"""The rules of one execution: claim the request, pass the gate, call, settle, and again while it can help.

Written once for threads and asyncio: the rules yield what they want done and are sent what came of it.
"""

import random as chance
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from providers.core.breaker import Verdict, verdict_of
from providers.core.errors import (
    ProviderBadRequestError,
    ProviderCircuitOpenError,
    ProviderDependencyError,
    ProviderError,
    ProviderQuotaExceededError,
    ProviderRateLimitError,
    ProviderTimeoutError,
)
from providers.core.exchange import Attempt, Outcome, ProviderExecutionContext, ProviderExecutionResult
from providers.core.gate import NOTHING, Admission, Decision, Reservation
from providers.core.policy import ProviderPolicy
from providers.core.retry import Random, capped
from providers.core.steps import (
    Admit,
    Answered,
    Busy,
    Call,
    Claim,
    Failed,
    Refuse,
    Replay,
    Settle,
    Sleep,
    Steps,
    StoreLost,
    Taken,
)

LOOKS_EVERY = 0.2
# A spent quota is none of them: whoever runs out of it is told at once.
PAUSES = frozenset({"rate_limited", "circuit_open"})
REFUSALS: dict[Decision, tuple[type[ProviderError], str]] = {
    Decision.QUOTA: (ProviderQuotaExceededError, "the quota of this window is used up"),
    Decision.CIRCUIT: (ProviderCircuitOpenError, "the breaker is open"),
    Decision.COOLING: (ProviderRateLimitError, "the provider requested a pause"),
}


class Made(NamedTuple):
    """An attempt that was made: the time that it had, and the time that it took."""

    number: int
    admission: Admission
    timeout: float | None
    duration: float


@dataclass(slots=True)
class Execution:
    """The input of the rules, and the progress so far."""

    policy: ProviderPolicy
    context: ProviderExecutionContext
    clock: Callable[[], float]
    random: Random = chance.random
    is_guarded: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    reservation: Admission | None = None  # of the quota, for the whole execution
    has_left: bool = False  # some request may have reached the provider
    is_unkept: bool = False  # how it ended could not be written down
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def left(self) -> float | None:
        return self.context.left(self.clock())

    def timeout(self) -> float | None:
        """The time that an attempt has: its own, or what is left."""
        limits = [limit for limit in (self.policy.timeout, self.left()) if limit is not None]
        return min(limits, default=None)

    def unpaid(self) -> Reservation:
        """The reservations to give back: of requests that certainly never left."""
        held = self.reservation
        return NOTHING if held is None or self.has_left else Reservation(held.reserved, held.window_start)

    def end_of(self, error: ProviderError) -> Outcome:
        """The end of an execution whose failure is not tried again here."""
        wait, patience = error.retry_after or 0.0, self.context.patience
        # An end that nobody wrote down is none; a pause is waited for by whoever has the patience.
        is_pause = error.reason_code in PAUSES and (patience is None or wait < patience)
        if self.context.may_return and (self.is_unkept or error.is_passing or is_pause):
            return Outcome.RETRY
        return Outcome.FAILED if self.context.task_name is None else Outcome.DEAD_LETTER

    def result(
        self, error: ProviderError | None = None, payload: dict[str, object] | None = None, *, suppressed: bool = False
    ) -> ProviderExecutionResult:
        return ProviderExecutionResult(
            outcome=Outcome.SUCCESS if error is None else self.end_of(error),
            payload=payload,
            attempts=tuple(self.attempts),
            error=error,
            duration_ms=round((self.clock() - self.started) * 1000, 3),
            retry_after=None if error is None else error.retry_after,
            retry_suppressed=suppressed,
            correlation_id=self.context.correlation_id,
        )


def execute(execution: Execution) -> Steps[ProviderExecutionResult]:
    """An execution, from the claim of its key to its end."""
    if execution.is_guarded:
        earlier = yield from claim(execution)
        if earlier is not None:
            return earlier
    return (yield from attempts(execution))


def claim(execution: Execution) -> Steps[ProviderExecutionResult | None]:
    """Take the key; otherwise how the execution ends: replayed, refused, or after waiting for the first."""
    waits_until = execution.clock() + execution.policy.idempotency_wait
    while True:
        match (yield Claim()):
            case Replay(payload):
                return replace(execution.result(payload=payload), replayed=True)
            case Taken():
                error: ProviderError = ProviderBadRequestError("the idempotency key was used for another request")
                return (yield from refuse(execution, 1, error))
            case StoreLost():
                return execution.result(store_lost())
            case Busy(retry_after):
                now, left = execution.clock(), execution.left()
                if now + LOOKS_EVERY > waits_until or (left is not None and left <= LOOKS_EVERY):
                    message = "the same request is in progress"
                    error = ProviderDependencyError(message, retry_after=retry_after, is_passing=True)
                    return (yield from refuse(execution, 1, error))
                yield Sleep(LOOKS_EVERY)
            case _:
                return None


def attempts(execution: Execution) -> Steps[ProviderExecutionResult]:
    """Try until it succeeds, fails for good, or nothing allows another attempt. Each attempt passes the gate."""
    policy, number, failure = execution.policy, 1, None
    while True:
        timeout = execution.timeout()
        if timeout is not None and timeout <= 0:
            # Only the first attempt can come here: a wait that would reach the deadline is not begun.
            late = failure or ProviderTimeoutError("the deadline had passed before the call", never_left=True)
            return (yield from refuse(execution, number, late))
        admission = yield Admit(number, policy.cost if number == 1 or policy.quota_per_attempt else 0)
        if isinstance(admission, StoreLost):
            execution.is_unkept = failure is not None
            return execution.result(failure or store_lost())
        if not admission.decision.is_admission:
            kind, message = REFUSALS[admission.decision]
            refused = kind(message, retry_after=admission.retry_after, never_left=True)
            return (yield from refuse(execution, number, refused, failure))
        if admission.reserved:
            execution.reservation = admission
        began = execution.clock()
        answer: Answered | Failed = yield Call(number, timeout)
        duration = execution.clock() - began
        made = Made(number, admission, timeout, duration)
        if isinstance(answer, Answered):
            return (yield from succeed(execution, made, answer))
        failure = answer.error
        delay, decision = yield from fail(execution, made, failure)
        if decision is not Decision.RETRY:
            return execution.result(failure, suppressed=decision is Decision.SUPPRESSED)
        yield Sleep(delay)
        number += 1


def succeed(execution: Execution, made: Made, answer: Answered) -> Steps[ProviderExecutionResult]:
    """A success is never thrown away, however late it comes."""
    payload, status = answer
    told = Attempt(made.number, milliseconds(made.duration), Outcome.SUCCESS, http_status=status)
    execution.attempts.append(told)
    yield Settle(
        attempt=made.number,
        admission=made.admission,
        duration=made.duration,
        budget=made.timeout,
        verdict=Verdict.SUCCESS,
        outcome=Outcome.SUCCESS,
        payload=payload,
        http_status=status,
    )
    return execution.result(payload=payload)


def fail(execution: Execution, made: Made, error: ProviderError) -> Steps[tuple[float, Decision]]:
    """Settle an attempt that failed; the wait before the next one, and whether there is to be one."""
    policy = execution.policy
    error.retry_after = capped(error.retry_after, policy.retry_after_ceiling)
    left = execution.left()
    delay = policy.retry.next_delay(error, made.number, left, execution.random)
    execution.has_left = not error.never_left or (execution.has_left and not policy.quota_per_attempt)
    end = execution.end_of(error)
    decision: Decision | StoreLost = yield Settle(
        attempt=made.number,
        admission=made.admission,
        duration=made.duration,
        budget=made.timeout,
        verdict=verdict_of(error, count_rate_limited=policy.count_rate_limited),
        outcome=end,
        # Somebody who comes back by itself is not kept waiting through a pause.
        wants_retry=delay is not None and end is not Outcome.RETRY,
        error=error,
        http_status=error.http_status,
        refund=execution.unpaid(),
        # A reservation for all attempts is still needed if another one follows.
        refunds_retry=policy.quota_per_attempt,
        cooldown=error.retry_after,
        lasts=max(left or 0.0, (delay or 0.0) + (policy.timeout or 0.0)),
    )
    if isinstance(decision, StoreLost):
        execution.is_unkept, decision = True, Decision.ENDED
        end = execution.end_of(error)
    outcome = Outcome.RETRY if decision is Decision.RETRY else end
    told = Attempt(made.number, milliseconds(made.duration), outcome, error.reason_code, error.http_status)
    execution.attempts.append(told)
    return delay or 0.0, decision


def refuse(
    execution: Execution, number: int, error: ProviderError, original: ProviderError | None = None
) -> Steps[ProviderExecutionResult]:
    """An attempt that was not made. If others were, the reason stays the one that made them fail."""
    # Whoever refused, a refused call has failed; only one that nobody will make again is a dead letter.
    end = execution.end_of(original or error)
    # With a reservation for each attempt, that of the last one was settled with it.
    refund = NOTHING if execution.policy.quota_per_attempt else execution.unpaid()
    kept = yield Refuse(number, error, Outcome.FAILED if end is Outcome.RETRY else end, refund)
    execution.is_unkept = isinstance(kept, StoreLost)
    return execution.result(original or error)


def store_lost() -> ProviderError:
    message = "the database with quotas and breakers is not available"
    return ProviderDependencyError(message, never_left=True, is_passing=True)


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
