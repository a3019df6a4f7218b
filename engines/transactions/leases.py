"""Leases: the right to run a transaction once, and until when this process knows that it still has it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

from engines.connectors.freshness import Moment, age
from engines.core.attempt import AttemptRecord
from engines.core.lifecycle import ANEW, Resumed
from engines.tasks.transaction import Transaction

# The part of a lease in which nobody need be asked whether it is still ours: a handler needs a moment to start.
TRUSTED = 0.9


@dataclass(slots=True, eq=False)
class Lease:
    """The right to run a transaction once, and what has been tried under it."""

    id: int
    token: int
    owner: int
    pipeline_id: int
    policy_version: int | None
    rescues: int = 0
    resumed: Resumed = ANEW  # what was tried under earlier leases
    attempts: list[tuple[AttemptRecord, str | None]] = field(default_factory=list)
    seconds: float = 0.0
    confirmed_at: Moment | None = None  # before the database was asked
    is_begun: bool = False  # the database knows that it is really run
    is_settling: bool = False  # its outcome, or that it is given back, is on its way to the database
    noted: int = 0  # attempts that the database knows of while the transaction still runs
    is_noted: bool = False  # it may know of some
    is_lost: bool = False  # somebody else has the transaction, or has ended it
    is_cancelled: bool = False  # its end was requested

    @property
    def is_confirmed(self) -> bool:
        """Whether it is ours without asking the database."""
        if self.is_lost or self.confirmed_at is None:
            return False
        return age(self.confirmed_at) < self.seconds * TRUSTED

    @property
    def tried(self) -> list[AttemptRecord]:
        """The attempts under this lease, and before them the last that failed under an earlier one."""
        made = [attempted for attempted, _ in self.attempts]
        return made if self.resumed.last is None else [self.resumed.last, *made]


def lease_document(leases: Iterable[Lease]) -> str:
    """Leases as a statement takes them: in order of their ids, so that two statements never wait for each other."""
    ordered = sorted(leases, key=lambda lease: lease.id)
    return orjson.dumps([{"id": one.id, "token": one.token, "owner": one.owner} for one in ordered]).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedTransaction(Transaction):
    """A transaction that somebody runs."""

    lease: Lease

    def __post_init__(self) -> None:
        """Its fields were checked when it was submitted."""
