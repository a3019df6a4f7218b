"""The rules of one execution: claim the request, pass the gate, call, settle, and again while it can help.

Written once for threads and asyncio: the rules yield what they want done and are sent what came of it.
"""

import random as chance
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from providers.core.breaker import Verdict, verdict_of
from providers.core.errors import (
    ProviderBadRequestError,
    ProviderCancelledError,
    ProviderCircuitOpenError,
    ProviderDependencyError,
    ProviderError,
    ProviderQuotaExceededError,
    ProviderRateLimitError,
    ProviderTimeoutError,
    status_in,
)
from providers.core.exchange import Attempt, Outcome, ProviderExecutionContext, ProviderExecutionResult, Source
from providers.core.gate import NOTHING, Admission, Decision, Reservation
from providers.core.policy import ProviderPolicy
from providers.core.retry import Random, capped
from providers.core.steps import (
    Admit,
    Answered,
    Busy,
    Cached,
    Call,
    Claim,
    Failed,
    FallBack,
    GiveUp,
    Keep,
    LookUp,
    Refuse,
    Replay,
    Settle,
    Sleep,
    Spool,
    StandIn,
    Steps,
    StoppedError,
    StoreLost,
    Taken,
)

LOOKS_EVERY = 0.2
# Between two looks for a place in the bulkhead.
FIRST_LOOK, LAST_LOOK = 0.05, 0.5
# How long the rules wait before they ask a database that was away once more to keep an outcome.
SETTLES_AGAIN_AFTER = (0.1, 0.3, 1.0, 3.0)
# Seconds that a fallback has in any case, also after the deadline.
FALLBACK_HAS = 1.0
# What the provider says of a request or of our rights holds: an older answer must not contradict it.
FINAL_WORDS = frozenset({"bad_request", "auth_failed"})
# A spent quota is none of them: whoever runs out of it is told at once.
PAUSES = frozenset({"rate_limited", "circuit_open"})
REFUSALS: dict[Decision, tuple[type[ProviderError], str]] = {
    Decision.QUOTA: (ProviderQuotaExceededError, "the quota of this window is used up"),
    Decision.CIRCUIT: (ProviderCircuitOpenError, "the breaker is open"),
    Decision.COOLING: (ProviderRateLimitError, "the provider requested a pause"),
    Decision.RATE: (ProviderRateLimitError, "the rate limit is reached"),
    Decision.BULKHEAD: (ProviderRateLimitError, "as many calls run as may at once"),
}


class Made(NamedTuple):
    """An attempt that was made, as `Settle` begins: the time that it took, and the time that it had."""

    number: int
    admission: Admission
    duration: float
    timeout: float | None


@dataclass(slots=True)
class Execution:
    """The input of the rules, and the progress so far."""

    policy: ProviderPolicy
    context: ProviderExecutionContext
    clock: Callable[[], float]
    random: Random = chance.random
    key: str = ""  # of the request
    is_guarded: bool = False
    has_fallback: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    number: int = field(init=False)  # of the attempt that is made or refused next
    calling: Admission | None = None  # of the attempt that is being made, until it is settled
    called_at: float = 0.0
    reservation: Admission | None = None  # of the quota, for the whole execution
    is_claimed: bool = False
    is_anothers: bool = False  # somebody else makes the request, or has the key for another one
    has_left: bool = False  # some request may have reached the provider
    is_unkept: bool = False  # how it ended could not be written down
    is_shut_out: bool = False  # nothing passes for a while after its failure, and it comes back when that is over
    waited: float = 0.0  # for its turn
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started, self.number = self.clock(), self.context.attempts_made + 1

    def left(self) -> float | None:
        return self.context.left(self.clock())

    def timeout(self) -> float | None:
        """The time that an attempt has: its own, or what is left."""
        limits = [limit for limit in (self.policy.timeout, self.left()) if limit is not None]
        return min(limits, default=None)

    def has_time(self, wait: float = 0.0) -> bool:
        """Whether there is time left after so long a wait."""
        left = self.left()
        return left is None or wait < left

    def can_wait(self, seconds: float) -> bool:
        """Whether somebody who comes back by itself has the patience for so long a pause."""
        return self.context.patience is None or seconds < self.context.patience

    def turn_in(self, refused: Admission) -> float | None:
        """The wait before a call that we hold back asks again; None if there is to be none, or no time for it."""
        if not refused.decision.is_own_limit:
            return None
        rest, left = self.policy.max_wait - self.waited, self.left()
        wait = refused.retry_after
        if wait is None:
            # Nobody knows when a place will be free: the longer it has waited, the less often it looks.
            longest = min(max(FIRST_LOOK, self.waited), LAST_LOOK)
            wait = min(longest * (0.5 + self.random()), rest)
        is_possible = 0 < wait <= rest and (left is None or wait < left)
        return wait if is_possible else None

    def unpaid(self) -> Reservation:
        """The reservations to give back: of requests that certainly never left."""
        held = self.reservation
        return NOTHING if held is None or self.has_left else held.reservation

    def owed(self) -> Reservation:
        """What is given back if no further attempt is made. Where each has its own, it was settled with its attempt."""
        return NOTHING if self.policy.quota_per_attempt else self.unpaid()

    def end_of(self, error: ProviderError) -> Outcome:
        """The end of an execution whose failure is not tried again here."""
        if isinstance(error, ProviderCancelledError):
            return Outcome.FAILED
        # An end that nobody wrote down is none; a pause is waited for by whoever has the patience, and attempts left
        # unless it was refused without one.
        is_pause = error.reason_code in PAUSES or (error.retryable and error.retry_after is not None)
        has_attempts = error.never_left or self.number < self.policy.retry.max_attempts
        is_waited_for = is_pause and has_attempts and self.can_wait(error.retry_after or 0.0)
        if self.context.may_return and (self.is_unkept or self.is_shut_out or error.is_passing or is_waited_for):
            return Outcome.RETRY
        return Outcome.FAILED if self.context.task_name is None else Outcome.DEAD_LETTER

    @property
    def may_stand_in(self) -> bool:
        """Whether there may be an answer instead of the provider's."""
        return not self.is_anothers and (self.has_fallback or self.policy.stale_for is not None)

    def settled_as(self, end: Outcome) -> Outcome:
        """How a failure is written down: as a dead letter only after nothing has stood in."""
        return Outcome.FAILED if end is Outcome.DEAD_LETTER and self.may_stand_in else end

    def refused_as(self, error: ProviderError) -> Outcome:
        """How an attempt that was not made is written down: as failed, or as dead if nobody makes it again."""
        end = self.settled_as(self.end_of(error))
        return Outcome.FAILED if end is Outcome.RETRY else end

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
            is_kept=not self.is_unkept,
            correlation_id=self.context.correlation_id,
            idempotency_key=self.key,
        )


def execute(execution: Execution) -> Steps[ProviderExecutionResult]:
    """An execution, from the claim of its key to its end."""
    policy = execution.policy
    try:
        if execution.is_guarded:
            earlier = yield from claim(execution)
            if earlier is not None:
                return (yield from stand_in(execution, earlier))
        # After the claim: a key that has an answer keeps it, whatever was kept since.
        if policy.cache_for and (cached := (yield LookUp(policy.cache_for))) is not None:
            hit = StandIn(execution.number, Source.CACHE, cached.payload)
            return (yield from serve(execution, hit, age=cached.age))
        result = yield from attempts(execution)
    except StoppedError:
        return (yield from break_off(execution))
    if not result.ok:
        return (yield from stand_in(execution, result))
    is_fresh = result.is_kept and not result.replayed
    if policy.cache_for is not None and result.payload is not None and is_fresh:
        with suppress(StoppedError):  # it has succeeded and is settled
            yield Keep(result.payload)
    return result


def claim(execution: Execution, failure: ProviderError | None = None) -> Steps[ProviderExecutionResult | None]:
    """Take the key; otherwise how the execution ends: replayed, refused, or after waiting for the first.

    Before another attempt, after a `failure`, it is taken anew: its lease may have ended while the process stood still.
    """
    waits_until = execution.clock() + execution.policy.idempotency_wait
    while True:
        match (yield Claim()):
            case Replay(payload):
                return replace(execution.result(payload=payload), replayed=True)
            case Taken():
                execution.is_anothers = True
                error: ProviderError = ProviderBadRequestError("the idempotency key was used for another request")
                return (yield from refuse(execution, error))
            case StoreLost():
                execution.is_unkept = failure is not None
                return execution.result(failure or store_lost())
            case Busy(retry_after):
                now, left = execution.clock(), execution.left()
                if now + LOOKS_EVERY > waits_until or (left is not None and left <= LOOKS_EVERY):
                    execution.is_anothers = True
                    message = "the same request is in progress"
                    error = ProviderDependencyError(message, retry_after=retry_after, is_passing=True)
                    return (yield from refuse(execution, error))
                yield Sleep(LOOKS_EVERY)
            case _:
                execution.is_claimed = True
                return None


def attempts(execution: Execution) -> Steps[ProviderExecutionResult]:
    """Try until it succeeds, fails for good, or nothing allows another attempt. Each attempt passes the gate."""
    policy, failure = execution.policy, None
    while True:
        if not execution.has_time():
            # Hardly any but the first attempt comes here: a wait that would reach the deadline is not begun.
            return (yield from refuse(execution, failure or too_late()))
        is_paid = bool(execution.attempts) and not policy.quota_per_attempt
        admission = yield Admit(execution.number, 0 if is_paid else policy.cost)
        if isinstance(admission, StoreLost):
            execution.is_unkept = failure is not None
            return execution.result(failure or store_lost())
        wait = execution.turn_in(admission)
        if wait is not None:
            execution.waited += wait
            yield Sleep(wait)
            continue
        if not admission.decision.is_admission:
            kind, message = REFUSALS[admission.decision]
            if admission.is_refused_by_account:
                message += ", for all that share the account"
            is_ours = admission.decision.is_own_limit
            refused = kind(message, retry_after=admission.retry_after, never_left=True, is_passing=is_ours)
            if failure is not None and is_ours:
                execution.is_shut_out, failure.retry_after = True, refused.retry_after
            return (yield from refuse(execution, refused, failure))
        if admission.reservation.is_held:
            execution.reservation = admission
        if not execution.has_time():
            return (yield from turn_back(execution, admission, failure or too_late()))
        timeout = execution.timeout()
        execution.calling, execution.called_at = admission, execution.clock()
        answer: Answered | Failed = yield Call(execution.number, timeout)
        made = Made(execution.number, admission, execution.clock() - execution.called_at, timeout)
        if isinstance(answer, Answered):
            # A success is never thrown away, however late it comes.
            payload, status = answer
            told = Attempt(made.number, milliseconds(made.duration), Outcome.SUCCESS, http_status=status)
            execution.attempts.append(told)
            settlement = Settle(*made, Verdict.SUCCESS, Outcome.SUCCESS, payload=payload, http_status=status)
            yield from settle(execution, settlement)
            return execution.result(payload=payload)
        failure = answer.error
        delay, decision = yield from fail(execution, made, failure)
        if decision is not Decision.RETRY:
            return execution.result(failure, suppressed=decision is Decision.SUPPRESSED)
        execution.number += 1
        if not execution.has_time(delay):  # any more: it was settled as one that is tried again
            return (yield from refuse(execution, failure))
        yield Sleep(delay)
        if execution.is_claimed and (earlier := (yield from claim(execution, failure))) is not None:
            return earlier


def fail(execution: Execution, made: Made, error: ProviderError) -> Steps[tuple[float, Decision]]:
    """Settle an attempt that failed; the wait before the next one, and whether there is to be one."""
    policy = execution.policy
    error.retry_after, error.http_status = (
        capped(error.retry_after, policy.retry_after_ceiling),
        status_in(error.http_status),
    )
    left = execution.left()
    delay = policy.retry.next_delay(error, made.number, left, execution.random)
    execution.has_left = not error.never_left or (execution.has_left and not policy.quota_per_attempt)
    end = execution.end_of(error)
    settlement = Settle(
        *made,
        verdict=verdict_of(error, count_rate_limited=policy.count_rate_limited),
        outcome=execution.settled_as(end),
        # Somebody who comes back by itself is not kept waiting through a pause.
        wants_retry=delay is not None and end is not Outcome.RETRY,
        error=error,
        http_status=error.http_status,
        refund=execution.unpaid(),
        # A reservation for all attempts is still needed if another one follows.
        refunds_retry=policy.quota_per_attempt,
        cooldown=error.retry_after,
        lasts=max(left or 0.0, (delay or 0.0) + (policy.timeout or 0.0) + policy.max_wait),
        returns_if_shut=execution.context.may_return and execution.can_wait(policy.breaker.open_cooldown_seconds),
    )
    decision = yield from settle(execution, settlement)
    if decision is Decision.SHUT and settlement.returns_if_shut:
        execution.is_shut_out = True
        error.retry_after = max(error.retry_after or 0.0, policy.breaker.open_cooldown_seconds)
    outcome = Outcome.RETRY if decision is Decision.RETRY else execution.settled_as(execution.end_of(error))
    told = Attempt(made.number, milliseconds(made.duration), outcome, error.reason_code, error.http_status)
    execution.attempts.append(told)
    return delay or 0.0, decision


def turn_back(execution: Execution, admission: Admission, error: ProviderError) -> Steps[ProviderExecutionResult]:
    """Give back what an attempt was let through with: that took so long that no time is left for the call."""
    execution.has_left = execution.has_left and not execution.policy.quota_per_attempt
    made, outcome = Made(execution.number, admission, 0.0, 0.0), execution.refused_as(error)
    yield from settle(execution, Settle(*made, Verdict.NEUTRAL, outcome, error=error, refund=execution.unpaid()))
    return execution.result(error)


def settle(execution: Execution, settlement: Settle, waits: Sequence[float] = SETTLES_AGAIN_AFTER) -> Steps[Decision]:
    """Write down how an attempt ended; a database that is away is asked for a while, and then the journal keeps it."""
    try:
        kept: Decision | StoreLost = yield settlement
        for wait in waits:
            left = execution.left()
            if not isinstance(kept, StoreLost) or kept.is_local or (left is not None and left <= wait):
                break
            yield Sleep(wait)
            kept = yield settlement._replace(is_repeat=True)
    except StoppedError:
        yield from spool(execution, settlement)
        raise
    if not isinstance(kept, StoreLost):
        execution.calling = None
        return kept
    yield from spool(execution, settlement, is_local=kept.is_local)
    return Decision.ENDED


def spool(execution: Execution, settlement: Settle, *, is_local: bool = False) -> Steps[None]:
    """Keep an outcome in the journal, which also ends the claim later. What was called without both is not kept."""
    execution.calling, execution.reservation, execution.is_claimed, execution.is_unkept = None, None, False, True
    if execution.is_guarded or not is_local:
        end = settlement.outcome if settlement.error is None else execution.end_of(settlement.error)
        yield Spool(settlement._replace(outcome=end, wants_retry=False))


def break_off(execution: Execution) -> Steps[ProviderExecutionResult]:
    """The end of an execution that its caller does not wait for any more: nothing stays open."""
    error = ProviderCancelledError()
    if execution.calling is not None:
        duration = execution.clock() - execution.called_at
        made = Made(execution.number, execution.calling, duration, execution.timeout())
        yield from settle(execution, Settle(*made, Verdict.NEUTRAL, Outcome.FAILED, error=error), waits=())
    elif execution.is_claimed or execution.owed().is_held:
        return (yield from refuse(execution, error))
    return execution.result(error)


def refuse(
    execution: Execution, error: ProviderError, original: ProviderError | None = None
) -> Steps[ProviderExecutionResult]:
    """An attempt that was not made. If others were, the reason stays the one that made them fail."""
    refund, execution.reservation = execution.owed(), None
    outcome = execution.refused_as(original or error)
    kept = yield Refuse(execution.number, error, outcome, refund, ends_execution=bool(execution.attempts))
    execution.is_unkept = isinstance(kept, StoreLost)
    return execution.result(original or error)


def serve(execution: Execution, step: StandIn, age: float | None = None) -> Steps[ProviderExecutionResult]:
    """The end with an answer that is not the provider's."""
    kept = yield step
    execution.is_unkept = execution.is_unkept or isinstance(kept, StoreLost)
    ended = execution.result(payload=step.payload)
    return replace(ended, source=step.source, age=age, original_error=step.error)


def stand_in(execution: Execution, result: ProviderExecutionResult) -> Steps[ProviderExecutionResult]:
    """An answer instead of the provider's, once nobody will get one from it any more; else the failure as it is."""
    error, is_dead = result.error, result.outcome is Outcome.DEAD_LETTER
    # Nobody wants the answer, somebody comes back for it, or its dead letter waits in the journal.
    is_over = isinstance(error, ProviderCancelledError) or (is_dead and not result.is_kept)
    if error is None or is_over or result.outcome is Outcome.RETRY or not execution.may_stand_in:
        return result
    try:
        instead = yield from answer_instead(execution, error)
    except StoppedError:
        instead = None
    if instead is not None:
        return replace(instead, retry_after=result.retry_after, retry_suppressed=result.retry_suppressed)
    if is_dead:
        made = execution.context.attempts_made + len(execution.attempts)
        kept = yield GiveUp(execution.number, error, made)
        execution.is_unkept = isinstance(kept, StoreLost)
        return replace(result, outcome=execution.end_of(error), is_kept=not execution.is_unkept)
    return result


def answer_instead(execution: Execution, error: ProviderError) -> Steps[ProviderExecutionResult | None]:
    """What stands in: an answer that the provider gave before, or else what its class makes up."""
    policy = execution.policy
    if policy.stale_for is not None and error.reason_code not in FINAL_WORDS:
        cached: Cached | None = yield LookUp(policy.useful_for)
        if cached is not None:
            step = StandIn(execution.number, Source.STALE, cached.payload, error)
            return (yield from serve(execution, step, age=cached.age))
    if execution.has_fallback:
        limit, started = execution.timeout(), execution.clock()
        payload = yield FallBack(error, None if limit is None else max(limit, FALLBACK_HAS))
        if payload is not None:
            duration = execution.clock() - started
            return (yield from serve(execution, StandIn(execution.number, Source.FALLBACK, payload, error, duration)))
    return None


def too_late() -> ProviderError:
    return ProviderTimeoutError("the deadline had passed before the call", never_left=True)


def store_lost() -> ProviderError:
    message = "the database with quotas and breakers is not available"
    return ProviderDependencyError(message, never_left=True, is_passing=True)


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
