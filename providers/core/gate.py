"""The gate before a provider: breaker, quota, cooldown, retry budget and an operator's word, decided together.

A quota is so many calls in each window; windows are aligned to their length, whoever asks first.

These are the rules that the one statement of `providers.calls` carries out on a row; tests compare the two.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import floor
from typing import NamedTuple

from providers.core.breaker import Breaker, BreakerPolicy, BreakerState, Permit, Verdict
from providers.core.retry import RetryBudget


class Decision(StrEnum):
    """The gate's answer to a call that wants to pass, and to one that comes back."""

    ADMITTED = "admitted"
    PROBE = "probe"
    QUOTA = "quota"
    CIRCUIT = "circuit"
    COOLING = "cooling"
    RETRY = "retry"
    SUPPRESSED = "suppressed"
    ENDED = "ended"

    @property
    def is_admission(self) -> bool:
        return self in {Decision.ADMITTED, Decision.PROBE}


class Reservation(NamedTuple):
    """Reserved units of a quota, and the start of their window."""

    amount: int = 0
    window_start: float | None = None


NOTHING = Reservation()


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit, and what is used of it in the present window; and the window before, for calls that end late."""

    limit: int
    window: float
    start: float
    end: float
    used: int = 0
    previous_start: float | None = None
    previous_used: int = 0

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)

    def at(self, now: float) -> "Quota":
        """The quota in the window of this time. Windows never go back, not even if a clock does."""
        if now < self.end:
            return self
        begin = aligned(now, self.window)
        return replace(
            self,
            start=max(begin, self.end),
            end=begin + self.window,
            used=0,
            previous_start=self.start,
            previous_used=self.used,
        )

    def refuses(self, cost: int) -> bool:
        return cost > 0 and self.used + cost > self.limit

    def reserve(self, cost: int) -> "Quota":
        return replace(self, used=self.used + cost)

    def refund(self, reservation: Reservation) -> "Quota":
        """Give back what was reserved, unless its window is over."""
        is_over = reservation.window_start != self.start
        return self if is_over else replace(self, used=max(0, self.used - reservation.amount))


class Override(NamedTuple):
    """An operator's word, which stands above the breaker while it lasts."""

    state: BreakerState
    until: float | None = None

    def holds(self, now: float) -> bool:
        return self.until is None or self.until > now


class Admission(NamedTuple):
    """The gate's answer to a call: the right to make it, or why not and for how long."""

    decision: Decision
    permit: Permit = Permit(0)
    window_start: float | None = None
    reserved: int = 0
    retry_after: float | None = None


class Asked(NamedTuple):
    """The needs of a call: units of the quota (0 if reserved already), and the time of a probe."""

    breaker: BreakerPolicy
    cost: int = 1
    probe_lease: float = 60.0


class Returned(NamedTuple):
    permit: Permit
    verdict: Verdict
    breaker: BreakerPolicy
    budget: RetryBudget
    wants_retry: bool = False
    cooldown: float | None = None
    refund: Reservation = NOTHING
    refunds_retry: bool = False  # or only if the call ends here


@dataclass(frozen=True, slots=True)
class Gate:
    breaker: Breaker = field(default_factory=Breaker)
    quota: Quota | None = None
    cooldown_until: float | None = None
    tokens: float | None = None  # None is as many as there can be
    override: Override | None = None
    admissions: int = 0

    def state_at(self, now: float) -> BreakerState:
        """The breaker's effective state: what an operator says, or what it amounts to by now."""
        if self.override is not None and self.override.holds(now):
            return self.override.state
        return self.breaker.state_at(now)

    def admit(self, asked: Asked, now: float) -> tuple["Gate", Admission]:
        """Let a call pass, or say why not; quota is named first. What is refused spends nothing."""
        gate = replace(self, quota=self.quota.at(now) if self.quota else None)
        if gate.quota is not None and gate.quota.refuses(asked.cost):
            return gate, Admission(Decision.QUOTA, retry_after=gate.quota.end - now)
        forced = self.override if self.override is not None and self.override.holds(now) else None
        if forced and forced.state is BreakerState.OPEN:
            wait = None if forced.until is None else forced.until - now
            return gate, Admission(Decision.CIRCUIT, retry_after=wait)
        if not forced and self.breaker.refuses(asked.breaker, now):
            return gate, Admission(Decision.CIRCUIT, retry_after=max(0.0, self.breaker.reopens_at(now) - now))
        if gate.cooldown_until is not None and now < gate.cooldown_until:
            return gate, Admission(Decision.COOLING, retry_after=gate.cooldown_until - now)
        number = gate.admissions + 1
        breaker, permit = gate.breaker, Permit(gate.breaker.generation)
        if not forced:
            breaker, permit = breaker.admit(now, str(number), asked.probe_lease)
        quota = gate.quota.reserve(asked.cost) if gate.quota else None
        passed = replace(gate, breaker=breaker, quota=quota, admissions=number)
        decision = Decision.PROBE if permit.probe else Decision.ADMITTED
        reserved = asked.cost if quota else 0
        return passed, Admission(decision, permit, quota.start if quota else None, reserved)

    def settle(self, result: Returned, now: float) -> tuple["Gate", Decision]:
        """Take in how a call came out, and say whether it may be tried again."""
        breaker = self.breaker.settle(result.permit, result.verdict, result.breaker, now)
        tokens = result.budget.capacity if self.tokens is None else self.tokens
        decision = Decision.ENDED
        if result.verdict is Verdict.SUCCESS:
            tokens = result.budget.earn(tokens)
        elif result.wants_retry and replace(self, breaker=breaker).state_at(now) is not BreakerState.OPEN:
            left = result.budget.spend(tokens)
            decision = Decision.SUPPRESSED if left is None else Decision.RETRY
            tokens = tokens if left is None else left
        quota = self.quota
        if quota is not None and (decision is not Decision.RETRY or result.refunds_retry):
            quota = quota.refund(result.refund)
        cooldown = self.cooldown_until
        if result.cooldown is not None:
            cooldown = max(cooldown or 0.0, now + result.cooldown)
        return replace(self, breaker=breaker, quota=quota, cooldown_until=cooldown, tokens=tokens), decision


def aligned(now: float, window: float) -> float:
    """The beginning of the window in which a time lies."""
    return floor(now / window) * window


def opened(limit: int, window: float, now: float) -> Quota:
    """A new quota, in the window of this time."""
    start = aligned(now, window)
    return Quota(limit, window, start, start + window)
