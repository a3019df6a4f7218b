"""The rule of the login lockout: failures by account and address, by account, and by address."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Counter(StrEnum):
    """The key that failures are counted by."""

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
    """The seconds until an attempt may be made; 0 if it may be made now."""
    return count.remaining if count.attempts > failures * FACTORS[count.counter] else 0.0
