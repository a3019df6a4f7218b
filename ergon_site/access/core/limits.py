"""Limits of callers: how often a login may fail, and how often a client may call."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Counter(StrEnum):
    """The key that failed logins are counted by."""

    PAIR = "account and address"
    ACCOUNT = "account"
    ADDRESS = "address"


# Many people may share an address, and nobody should be able to lock another person out with a few failures.
FACTORS: Mapping[Counter, int] = {Counter.PAIR: 1, Counter.ACCOUNT: 5, Counter.ADDRESS: 10}


class Count(NamedTuple):
    """Attempts that have not succeeded, this one included, and the seconds until they are forgotten."""

    counter: Counter
    attempts: int
    remaining: float


def wait(count: Count, failures: int) -> float:
    """The seconds until a login may be attempted; 0 if it may be now."""
    return count.remaining if count.attempts > failures * FACTORS[count.counter] else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a call may pass; `busy_until` is what to remember either way."""

    busy_until: float
    retry_after: float = 0.0

    @property
    def is_admitted(self) -> bool:
        return self.retry_after == 0


def admit(busy_until: float, now: float, per_second: float) -> Verdict:
    """The limit of a rate, with a burst of one second, kept as a single number.

    Each call keeps the client busy for 1/rate seconds; one that is busy for too long has to wait.
    """
    interval = 1 / per_second
    burst = max(1.0, interval)
    # Without the clock's large numbers: the rounding of a sum with them would refuse a first call now and then.
    ahead = max(busy_until - now, 0.0)
    excess = ahead + interval - burst
    if excess > 0:
        return Verdict(busy_until=busy_until, retry_after=excess)
    return Verdict(busy_until=now + ahead + interval)
