"""The breaker: closed, open, half open. A failing provider is left alone, then probed by a few calls.

Every change of state is a new generation. A result belongs to the generation it was admitted under, and one of an
older generation changes nothing: a late success must not close a breaker that has just tripped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from engines.core.rules import DURATION, WHOLE, Policy, means
from providers.core.errors import canonical

Probes = Mapping[str, float]
# The reasons that say something about the provider.
COUNTED = frozenset({"timeout", "connection_error", "dependency_unavailable"})


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Verdict(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"  # it failed, and not because the provider is ill


@dataclass(frozen=True, slots=True)
class BreakerPolicy(Policy):
    """When a provider is left alone, for how long, and what it takes to trust it again."""

    failure_threshold: int = field(
        default=5, metadata=WHOLE | means("Consecutive failures that open the breaker.", "failures")
    )
    open_cooldown_seconds: float = field(
        default=30.0, metadata=DURATION | means("How long the breaker stays open.", "seconds")
    )
    half_open_max_calls: int = field(
        default=1, metadata=WHOLE | means("Probes that may run at once, across all processes.", "calls")
    )
    success_threshold: int = field(
        default=1, metadata=WHOLE | means("Successful probes that close the breaker.", "probes")
    )


class Permit(NamedTuple):
    """The right to make one call. A probe holds a lease, which frees its place even if nobody reports back."""

    generation: int
    probe: str | None = None


@dataclass(frozen=True, slots=True)
class Breaker:
    state: BreakerState = BreakerState.CLOSED
    generation: int = 0
    consecutive_failures: int = 0
    successes: int = 0  # of probes, since it is half open
    open_until: float | None = None
    probes: Probes = field(default_factory=dict)

    def state_at(self, now: float) -> BreakerState:
        """The effective state: open after its cooldown is half open."""
        is_turning = self.state is BreakerState.OPEN and now >= (self.open_until or 0.0)
        return BreakerState.HALF_OPEN if is_turning else self.state

    def live_probes(self, now: float) -> dict[str, float]:
        return {name: until for name, until in self.probes.items() if until > now}

    def refuses(self, policy: BreakerPolicy, now: float) -> bool:
        state = self.state_at(now)
        if state is BreakerState.HALF_OPEN:
            return len(self.live_probes(now)) >= policy.half_open_max_calls
        return state is BreakerState.OPEN

    def reopens_at(self, now: float) -> float:
        """When a refused call may be let through at the earliest."""
        if self.state_at(now) is BreakerState.OPEN:
            return self.open_until or now
        return min(self.live_probes(now).values(), default=now)

    def admit(self, now: float, probe: str, lease: float) -> tuple["Breaker", Permit]:
        """Let one call through that was not refused."""
        if self.state_at(now) is BreakerState.CLOSED:
            return self, Permit(self.generation)
        # Places that have lapsed are no longer counted; they go with the next change of state.
        probes = {**self.probes, probe: now + lease}
        if self.state is BreakerState.HALF_OPEN:
            return replace(self, probes=probes), Permit(self.generation, probe)
        generation = self.generation + 1
        turned = Breaker(BreakerState.HALF_OPEN, generation, self.consecutive_failures, probes=probes)
        return turned, Permit(generation, probe)

    def settle(self, permit: Permit, verdict: Verdict, policy: BreakerPolicy, now: float) -> "Breaker":
        """Take in how a call came out."""
        if permit.generation != self.generation:
            return self
        freed = {name: until for name, until in self.probes.items() if name != permit.probe}
        if self.state is BreakerState.OPEN or verdict is Verdict.NEUTRAL:
            return replace(self, probes=freed)
        if verdict is Verdict.FAILURE:
            failures = self.consecutive_failures + 1
            if self.state is BreakerState.CLOSED and failures < policy.failure_threshold:
                return replace(self, consecutive_failures=failures)
            until = now + policy.open_cooldown_seconds
            return Breaker(BreakerState.OPEN, self.generation + 1, failures, open_until=until)
        if self.state is BreakerState.CLOSED:
            return replace(self, consecutive_failures=0)
        if self.successes + 1 >= policy.success_threshold:
            return Breaker(generation=self.generation + 1)
        return replace(self, successes=self.successes + 1, probes=freed)


def verdict_of(error: BaseException | None, *, count_rate_limited: bool = False) -> Verdict:
    """The verdict of an error on the provider: only errors that mean a sick provider count."""
    if error is None:
        return Verdict.SUCCESS
    ours = canonical(error)
    is_counted = ours.reason_code in COUNTED or (count_rate_limited and ours.reason_code == "rate_limited")
    return Verdict.FAILURE if is_counted and not ours.is_passing else Verdict.NEUTRAL
