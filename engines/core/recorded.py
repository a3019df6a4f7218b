"""The recorded attempts of finished transactions, each with the terms that it was made under."""

import math
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Self

from engines.core.errors import ExceptionType
from engines.core.lifecycle import SPENT, Plan, plan_of
from engines.core.outcome import TIMED_OUT, TRANSACTION
from engines.core.policy import ConsumerPolicy, ProducerPolicy, RetryPolicy
from engines.core.steps import WORK, Stage

# A gap between two attempts may be so much shorter than the policy's wait without the handler having asked for it.
RESOLUTION = 0.05
EXPIRED = f"{TRANSACTION} {TIMED_OUT} "


class Terms(NamedTuple):
    """The parts of a policy that decide about one transaction."""

    plan: Plan
    timeout: float | None  # of the transaction

    @classmethod
    def of(cls, policy: ConsumerPolicy | ProducerPolicy) -> Self:
        return cls(plan_of(policy)._replace(is_observed=False), policy.loop.transaction_timeout)

    def retry(self, stage: Stage) -> RetryPolicy:
        if stage in WORK:
            return self.plan.retry
        return self.plan.success if stage is Stage.SUCCESS else self.plan.exception


class Cause(StrEnum):
    """What ended an attempt, or the transaction, other than the task."""

    LIMIT = "limit"  # of the attempt
    EXPIRED = "expired"  # the transaction's time was up
    SPENT = "spent"  # a newer policy allowed fewer attempts than had been made
    FATAL = "fatal"  # no further attempt could help


class Tried(NamedTuple):
    """An attempt as it was recorded, and the terms that it was made under."""

    delivery: int
    stage: Stage
    number: int
    started: float
    duration: float
    category: ExceptionType | None  # None if it succeeded
    terms: Terms
    message: str = ""  # its beginning

    @property
    def cut_by(self) -> Cause | None:
        if self.category is ExceptionType.TIMEOUT:
            if self.message.startswith(EXPIRED):
                return Cause.EXPIRED
            if self.message.startswith(f"{self.stage.value} attempt {TIMED_OUT} "):
                return Cause.LIMIT
        return None

    @property
    def limit(self) -> float | None:
        return self.terms.retry(self.stage).timeout


class Past(NamedTuple):
    """An attempt, placed in the time of its transaction."""

    tried: Tried
    offset: float  # seconds since the first attempt began
    waited: float  # before the next attempt, as the policy says or the handler asked
    is_asked: bool
    ended_by: Cause | None = None  # why no attempt followed, where neither the count nor the task says so

    @property
    def left(self) -> float:
        """The time that its transaction had left as it began."""
        return left_of(self.tried.terms.timeout, self.offset)


class Record(NamedTuple):
    """A finished transaction: every attempt of one uninterrupted run."""

    uid: str
    is_failed: bool
    attempts: tuple[Past, ...]

    @property
    def waited(self) -> float:
        """The seconds that it waited between attempts."""
        total = 0.0
        for one, following in zip(self.attempts, (*self.attempts[1:], None), strict=True):
            if following is not None and following.tried.stage is one.tried.stage:
                total += one.waited
            elif one.ended_by is Cause.EXPIRED and one.tried.cut_by is not Cause.EXPIRED:
                total += min(one.waited, max(0.0, one.left - one.tried.duration))
        return total


def record(uid: str, *, is_failed: bool, message: str, attempts: Sequence[Tried]) -> Record | None:
    """The history of a transaction, from its attempts in order; None if they are not one whole run.

    `message` is the error that ended the transaction, if it failed.
    """
    if not _is_whole(attempts, is_failed=is_failed):
        return None
    begin = attempts[0].started
    pasts = [
        _past(one, attempts[index + 1] if index + 1 < len(attempts) else None, begin)
        for index, one in enumerate(attempts)
    ]
    if is_failed:
        index = max(index for index, one in enumerate(attempts) if one.stage is not Stage.EXCEPTION)
        # Last, so that the work's own reason stands where no exception handler was recorded.
        for at, why in ((-1, ""), (index, message)):
            pasts[at] = pasts[at]._replace(ended_by=_ended_by(attempts[at], why))
    return Record(uid, is_failed, tuple(pasts))


def _is_whole(attempts: Sequence[Tried], *, is_failed: bool) -> bool:
    stages = [one.stage for one in attempts]
    order = [stage for index, stage in enumerate(stages) if index == 0 or stage is not stages[index - 1]]
    if not order or order[0] not in WORK:
        return False
    if order[1:] not in ([], [Stage.SUCCESS], [Stage.EXCEPTION], [Stage.SUCCESS, Stage.EXCEPTION]):
        return False
    counted: Counter[Stage] = Counter()
    for one in attempts:
        counted[one.stage] += 1
        if one.number != counted[one.stage]:
            return False
    last = [one for one in attempts if one.stage is not Stage.EXCEPTION][-1]
    return (last.category is not None) is is_failed and (is_failed or Stage.EXCEPTION not in order)


def _past(one: Tried, following: Tried | None, begin: float) -> Past:
    waited, offset = one.terms.retry(one.stage).delay(one.number - 1), one.started - begin
    if following is None or following.stage is not one.stage or one.category is None:
        return Past(one, offset, waited, is_asked=False)
    gap = max(0.0, following.started - one.started - one.duration)
    # One that is put back although its policy's wait is short, or that comes back too early, has asked for that.
    is_put_back = following.delivery != one.delivery and waited <= one.terms.plan.park_after
    if not is_put_back and gap >= waited - RESOLUTION:
        return Past(one, offset, waited, is_asked=False)
    return Past(one, offset, min(gap, one.terms.plan.retry_after_ceiling), is_asked=True)


def _ended_by(last: Tried, message: str) -> Cause | None:
    if message.startswith(EXPIRED) and last.terms.timeout is not None:
        return Cause.EXPIRED
    is_over = last.number >= last.terms.retry(last.stage).max_attempts
    if is_over or last.category in (None, ExceptionType.BUSINESS):
        return None
    return Cause.SPENT if message.startswith(SPENT) else Cause.FATAL


def left_of(timeout: float | None, elapsed: float) -> float:
    """The seconds that are left of a transaction's time."""
    return math.inf if timeout is None else timeout - elapsed
