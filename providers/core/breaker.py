"""The breaker: closed, open, half open. A failing provider is left alone, then probed by a few calls.

Every change of state is a new generation. A result belongs to the generation it was admitted under, and one of an
older generation changes nothing: a late success must not close a breaker that has just tripped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from engines.core import backoff
from engines.core.rules import DURATION, FLAG, TIME_LIMIT, WHOLE, Policy, means, rule
from providers.core.errors import canonical

Probes = Mapping[str, float]
# The reasons that say something about the provider.
COUNTED = frozenset({"timeout", "connection_error", "dependency_unavailable"})


# Of a window that slides, one of so many parts is forgotten at a time.
SLICES = 10
RATE = rule(
    "a number above 0 and at most 1", lambda value: backoff.is_duration(value) and 0 < value <= 1, optional=True
)
# Seconds: no policy shuts a gate for longer. Calendars end, and what comes after them no page could show.
LONGEST = 3660 * 86400.0
SHUT_FOR = rule(
    f"a number of seconds from 0 to {LONGEST:,.0f} (3,660 days)",
    lambda value: backoff.is_duration(value) and value <= LONGEST,
) | {"most": LONGEST}


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
        default=30.0, metadata=SHUT_FOR | means("How long the breaker stays open.", "seconds")
    )
    half_open_max_calls: int = field(
        default=1, metadata=WHOLE | means("Probes that may run at once, across all processes.", "calls")
    )
    success_threshold: int = field(
        default=1, metadata=WHOLE | means("Successful probes that close the breaker.", "probes")
    )


@dataclass(frozen=True, slots=True)
class OpeningRules(Policy):
    """Shares of the latest calls that open the breaker, too. Without a rate there is no such rule."""

    failure_rate: float | None = field(
        default=None, metadata=RATE | means("Share of failed calls that opens the breaker.")
    )
    slow_rate: float | None = field(default=None, metadata=RATE | means("Share of slow calls that opens the breaker."))
    slow_after: float = field(default=10.0, metadata=DURATION | means("How long a slow call takes.", "seconds"))
    calls: int = field(default=100, metadata=WHOLE | means("How many of the latest calls are looked at.", "calls"))
    seconds: float | None = field(
        default=None, metadata=TIME_LIMIT | means("Look at the calls of so many seconds instead.", "seconds")
    )
    minimum_calls: int = field(
        default=20, metadata=WHOLE | means("With fewer calls, no rate opens the breaker.", "calls")
    )
    is_shadow: bool = field(
        default=False, metadata=FLAG | means("Only record when a rate would have opened the breaker.")
    )

    def check(self) -> None:
        if self.seconds is None and self.minimum_calls > self.calls:
            self.refuse("minimum_calls", f"must be at most calls ({self.calls:,}), or no rate ever opens the breaker")

    @property
    def are_used(self) -> bool:
        return self.failure_rate is not None or self.slow_rate is not None

    @property
    def width(self) -> float:
        """The length of a slice, in seconds or in calls."""
        return (self.seconds or self.calls) / SLICES


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
