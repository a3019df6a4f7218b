"""Retries: the policy of a call, the budget of all calls, the pauses that providers ask for, and rescheduled tasks."""

import random as chance
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Generic, NamedTuple, TypeVar

from engines.core import backoff
from engines.core.rules import DURATION, WHOLE, Policy, means, rule
from providers.core.errors import ProviderError, canonical, seconds_in

T = TypeVar("T")
Random = Callable[[], float]
# The longest pause that a provider may ask for, where nothing else is said.
RETRY_AFTER_CEILING = 300.0
RATIO = rule("a number from 0 to 1", lambda value: backoff.is_duration(value) and value <= 1)

SHARE = rule("a number of at least 0", backoff.is_duration)
ATOM = rule("a number of at least 1", lambda value: backoff.is_duration(value) and value >= 1)
FIRST, LONGEST = 1.0, 60.0
SPREAD = 0.1


class Try(NamedTuple):
    """A try of a call: its number from 1, its duration, and its error, if any."""

    number: int
    duration: float
    error: ProviderError | None
    delay: float | None = None  # the wait that followed it


@dataclass(frozen=True, slots=True)
class Tries(Generic[T]):
    """The outcome of a call that was tried repeatedly."""

    value: T | None
    error: ProviderError | None
    attempts: tuple[Try, ...]

    @property
    def ok(self) -> bool:
        return self.error is None

    def raise_for_failure(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass(frozen=True, slots=True)
class RetryPolicy(Policy):
    """The attempts and delays of a call."""

    max_attempts: int = field(
        default=3, metadata=WHOLE | means("Maximum number of attempts, the first included.", "attempts")
    )
    base_delay_seconds: float = field(
        default=0.2, metadata=DURATION | means("Delay after the first failure; it doubles each time.", "seconds")
    )
    max_delay_seconds: float = field(default=5.0, metadata=DURATION | means("Longest delay, before jitter.", "seconds"))
    jitter_ratio: float = field(
        default=0.2, metadata=RATIO | means("How much jitter lengthens or shortens a delay.", "of the delay")
    )

    def delay(self, attempt: int, random: Random = chance.random) -> float:
        """The wait after this attempt, counted from 1: capped, then spread evenly to both sides by chance."""
        # A cap of 0 means no wait here; to the engines' backoff it would mean no cap.
        longest = self.max_delay_seconds
        base = min(self.base_delay_seconds, longest)
        delay = backoff.exponential(attempt - 1, backoff=base, multiplier=2.0, cap=longest)
        return min(delay * (1 + self.jitter_ratio * (2 * random() - 1)), backoff.LONGEST)

    def run(
        self,
        call: Callable[[], T],
        *,
        budget: float | None = None,
        retry_after_ceiling: float = RETRY_AFTER_CEILING,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
        random: Random = chance.random,
    ) -> Tries[T]:
        """Call until it succeeds, fails for good, or attempts or `budget` seconds run out; errors become ours."""
        ends_at = None if budget is None else clock() + budget
        tries: list[Try] = []
        while True:
            number, started = len(tries) + 1, clock()
            try:
                value = call()
            except Exception as error:  # noqa: BLE001 (whatever it is becomes one of ours)
                failure = canonical(error)
                failure.retry_after = capped(failure.retry_after, retry_after_ceiling)
            else:
                return Tries(value, None, (*tries, Try(number, clock() - started, None)))
            now = clock()
            delay = self.next_delay(failure, number, None if ends_at is None else ends_at - now, random)
            tries.append(Try(number, now - started, failure, delay))
            if delay is None:
                return Tries(None, failure, tuple(tries))
            sleep(delay)

    def next_delay(
        self, error: ProviderError, attempt: int, left: float | None, random: Random = chance.random
    ) -> float | None:
        """The wait before another attempt; None if there is to be none, or no time for it."""
        if not error.retryable or attempt >= self.max_attempts:
            return None
        delay = max(self.delay(attempt, random), error.retry_after or 0.0)
        # A wait that would use up all the time is not begun.
        return delay if left is None or delay < left else None


@dataclass(frozen=True, slots=True)
class RetryBudget(Policy):
    """The retries that a provider may be given beyond what its successes earn.

    In an outage, where nothing is earned, retries end by themselves.
    """

    capacity: float = field(
        default=50.0, metadata=ATOM | means("Maximum of the retry budget, which starts full.", "retries")
    )
    earned_by_success: float = field(
        default=0.2, metadata=SHARE | means("What each successful call adds to the budget.", "retries")
    )


def capped(pause: Any, ceiling: float) -> float | None:
    """A pause that a provider asks for, as far as it can be read and is granted."""
    seconds = seconds_in(pause)
    return None if seconds is None else min(seconds, ceiling)


def seconds_of(value: str | None, now: datetime) -> float | None:
    """The seconds that a Retry-After header asks for, as a number or a date; None if there is none to be read."""
    text = (value or "").strip()
    if not text:
        return None
    if text.replace(".", "", 1).isdecimal() and text.isascii():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # A date without a zone is taken as the standard wants all of them: in UTC.
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds())


def clock_of(date: Any, now: datetime) -> datetime:
    """The time by the provider's own clock, which a date in Retry-After goes by; by ours if it does not tell."""
    try:
        at = parsedate_to_datetime(date)
    except (TypeError, ValueError, OverflowError):
        return now
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def requested_pause(error: Any, now: datetime) -> float | None:
    """The pause that the answer behind a client library's error asks for; None if it asks for none."""
    answer = getattr(error, "response", None)
    look_up = getattr(getattr(error if answer is None else answer, "headers", None), "get", None)
    text = look_up("Retry-After") if callable(look_up) else None
    return seconds_of(text, clock_of(look_up("Date"), now)) if look_up and isinstance(text, str) else None


def countdown(wait: float | None, *, returns: int, longest: float, random: Random) -> float:
    """The seconds until a task comes back: as long as it was told to wait, or a little longer each time.

    Chance spreads those who wait for the same moment. Nobody stays away for longer than `longest`, after which a broker
    would take the task for lost: it comes back, and is sent away again.
    """
    if wait is None:
        wait = backoff.exponential(returns, backoff=FIRST, multiplier=2.0, cap=LONGEST)
    return min(max(wait, SPREAD), longest / (1 + SPREAD)) * (1 + SPREAD * random())
