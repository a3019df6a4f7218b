"""The gate before a provider: its decisions, and the windows of quotas.

Breaker, quota, cooldown, limits of our own, retry budget and an operator's word are decided together, by one statement
of `providers.database` on one row; or on two, where tenants share an account that has a gate of its own.
"""

from datetime import UTC, datetime
from enum import StrEnum
from math import floor
from typing import NamedTuple

from providers.core.breaker import BreakerPolicy, Permit
from providers.core.limits import RateLimit

# The capability of an account's gate, and how its name begins in the place of a tenant's.
EVERY = "*"
# Seconds. What a row says of a time further ahead than any wait for its lock was written before the clock was set back.
SET_BACK = 60.0
# Whatever the time zone in which it is shown.
LAST = datetime(9999, 12, 31, tzinfo=UTC)


class Decision(StrEnum):
    """The gate's answer to a call that wants to pass, and to one that comes back."""

    ADMITTED = "admitted"
    PROBE = "probe"
    QUOTA = "quota"
    CIRCUIT = "circuit"
    COOLING = "cooling"
    RATE = "rate"  # no token in the bucket
    BULKHEAD = "bulkhead"  # as many calls run as may
    RETRY = "retry"
    SUPPRESSED = "suppressed"
    ENDED = "ended"
    SHUT = "shut"  # a retry was wanted, and the breaker has opened
    ELSEWHERE = "elsewhere"  # nothing here refuses the call, but the other of its two gates does

    @property
    def is_admission(self) -> bool:
        return self in {Decision.ADMITTED, Decision.PROBE}

    @property
    def is_own_limit(self) -> bool:
        """Whether we hold the call back ourselves, for a short time, whatever the provider could do."""
        return self in {Decision.RATE, Decision.BULKHEAD}


class Scope(StrEnum):
    """Whose calls a breaker counts, or a pause stops: one tenant's, or those of all that share its account."""

    TENANT = "tenant"
    ACCOUNT = "account"
    BOTH = "both"

    @property
    def has_tenant(self) -> bool:
        return self is not Scope.ACCOUNT

    @property
    def has_account(self) -> bool:
        return self is not Scope.TENANT


class Reservation(NamedTuple):
    """Reserved units of a quota, and the start of their window; of the tenant, and of its account."""

    amount: int = 0
    window_start: float | None = None
    account: "Reservation | None" = None

    @property
    def is_held(self) -> bool:
        return self.amount > 0 or (self.account is not None and self.account.amount > 0)


NOTHING = Reservation()


class Admission(NamedTuple):
    """The gate's answer to a call: the right to make it, or why not and for how long.

    `account` is the answer of the account's gate, where there is one; `place` is what it holds of the fleet's bulkhead.
    """

    decision: Decision
    permit: Permit = Permit(0)
    window_start: float | None = None
    reserved: int = 0
    retry_after: float | None = None
    account: "Admission | None" = None
    place: str | None = None

    @property
    def is_probe(self) -> bool:
        """Whether the call probes a gate that is half open, its own or its account's."""
        return self.permit.probe is not None or (self.account is not None and self.account.permit.probe is not None)

    @property
    def is_refused_by_account(self) -> bool:
        return self.account is not None and self.account.decision is self.decision and not self.decision.is_admission

    @property
    def reservation(self) -> Reservation:
        return Reservation(self.reserved, self.window_start, self.account and self.account.reservation)


class Asked(NamedTuple):
    """The needs of a call: units of the quota (0 if reserved already), the time of a probe, whose gates it passes."""

    breaker: BreakerPolicy
    cost: int = 1
    probe_lease: float = 60.0
    breaker_scope: Scope = Scope.TENANT
    pause_scope: Scope = Scope.TENANT
    account: str = EVERY
    max_concurrent: int | None = None  # of the whole fleet
    call_lease: float = 60.0
    rate_limit: RateLimit = RateLimit()

    @property
    def is_throttled(self) -> bool:
        return self.max_concurrent is not None or self.rate_limit.per_second is not None

    @property
    def of_account(self) -> "Asked":
        """What the account's gate is asked for: limits of our own are the tenant's."""
        return self._replace(max_concurrent=None, rate_limit=RateLimit())

    @property
    def is_shared(self) -> bool:
        return self.breaker_scope.has_account or self.pause_scope.has_account


class Window(NamedTuple):
    """A window of a quota, and what is used of it."""

    start: float
    end: float
    used: int = 0

    def at(self, now: float, length: float) -> "Window":
        """The window of this time, which nothing is used of if it is a new one. They go back only as clocks do."""
        if self.start - SET_BACK <= now < self.end:
            return self
        fresh = aligned(now, length)
        return fresh if now < self.end else fresh._replace(start=max(fresh.start, self.end))


def moment(seconds: float) -> datetime:
    """A time of the gate as a datetime; a later one than any calendar knows is the last that they know."""
    return datetime.fromtimestamp(min(seconds, LAST.timestamp()), UTC)


def aligned(now: float, length: float) -> Window:
    """The window in which a time lies: windows start at multiples of their length."""
    start = floor(now / length) * length
    return Window(start, start + length)
