"""Leases: the right to run a transaction once, and until when this process knows that it still has it."""

import time
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from engines.core.journal import Attempted
from engines.transaction import Transaction

# Linux: it also runs while the machine is suspended, which the monotonic clock does not.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# The part of a lease before its end in which nothing is begun: a handler needs a moment to start.
MARGIN = 0.1


class Confirmation(NamedTuple):
    """Until when a lease is known to be ours, counted from before the database was asked.

    On two clocks: where a paused virtual machine has stopped the first one too, the wall clock tells when it is set
    right. A wall clock that jumps ahead for another reason costs one question to the database.
    """

    until: float
    until_by_the_wall: float

    @classmethod
    def for_lease(cls, seconds: float) -> Self:
        known = seconds * (1 - MARGIN)
        return cls(time.clock_gettime(_CLOCK) + known, time.time() + known)

    @property
    def is_valid(self) -> bool:
        return time.clock_gettime(_CLOCK) < self.until and time.time() < self.until_by_the_wall


UNCONFIRMED = Confirmation(0.0, 0.0)


@dataclass(slots=True, eq=False)
class Lease:
    """The right to run a transaction once, and what has been tried under it."""

    id: int
    token: int
    owner: int
    pipeline_id: int
    policy_version: int | None
    rescues: int = 0
    spent: int = 0  # attempts under earlier leases, of one that asked to be tried again later
    attempts: list[tuple[Attempted, str | None]] = field(default_factory=list)
    confirmation: Confirmation = UNCONFIRMED
    is_begun: bool = False  # the database knows that it is really run
    is_settling: bool = False  # its outcome, or that it is given back, is on its way to the database
    is_lost: bool = False  # somebody else has the transaction, or has ended it

    @property
    def is_confirmed(self) -> bool:
        """Whether it is ours without asking the database."""
        return not self.is_lost and self.confirmation.is_valid


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedTransaction(Transaction):
    """A transaction that somebody runs."""

    lease: Lease

    def __post_init__(self) -> None:
        """Its fields were checked when it was submitted."""
