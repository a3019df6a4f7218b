"""Limits of our own: the calls of a capability that run at once (bulkhead), and how fast they follow (rate limit)."""

from dataclasses import dataclass, field
from enum import StrEnum

from engines.core.backoff import is_duration
from engines.core.rules import TIME_LIMIT, WHOLE, WHOLE_OR_NONE, Policy, means, rule

# Running calls are on the gate's row, which every call writes: a few hundred of them cost it a millisecond.
MOST_IN_FLEET = 500
SLOWEST, FASTEST = 1e-6, 10_000
# Of a sum of times since 1970, the digits behind a microsecond are rounded.
ROUNDED = 1e-6


class BulkheadScope(StrEnum):
    """Whose calls a bulkhead counts: those of all processes together, or of each on its own."""

    FLEET = "fleet"
    PROCESS = "process"


PLACE = rule("fleet or process", lambda value: value in set(BulkheadScope))
SECONDS = rule("a number of seconds above 0", TIME_LIMIT["check"])
PACE = rule(
    f"a number from {SLOWEST} to {FASTEST:,}",
    lambda value: is_duration(value) and SLOWEST <= value <= FASTEST,
    optional=True,
)


@dataclass(frozen=True, slots=True)
class BulkheadPolicy(Policy):
    """How many calls may run at once. Each holds a place, as a lease that ends even if nobody reports back."""

    max_concurrent: int | None = field(
        default=None, metadata=WHOLE_OR_NONE | means("Calls that may run at once; null is no limit.", "calls")
    )
    scope: str = field(
        default=BulkheadScope.FLEET.value,
        metadata=PLACE | means("Whose calls are counted: of all processes (fleet), or of each on its own (process)."),
    )
    lease: float = field(
        default=60.0,
        metadata=SECONDS | means("How long a call counts as running if its process does not report back.", "seconds"),
    )

    def check(self) -> None:
        if self.scope == BulkheadScope.FLEET and (self.max_concurrent or 0) > MOST_IN_FLEET:
            self.refuse("max_concurrent", f"must be at most {MOST_IN_FLEET} with scope fleet")

    @property
    def is_fleets(self) -> bool:
        return self.scope == BulkheadScope.FLEET


@dataclass(frozen=True, slots=True)
class RateLimit(Policy):
    """A token bucket: each attempt takes a token. All that is known of it is when it will be full again."""

    per_second: float | None = field(
        default=None, metadata=PACE | means("Attempts that may follow each other in a second; null is no limit.")
    )
    burst: int = field(
        default=1, metadata=WHOLE | means("Attempts that may be made at once after a pause.", "attempts")
    )

    @property
    def interval(self) -> float | None:
        """The seconds in which a token comes back."""
        return None if self.per_second is None else 1.0 / self.per_second

    def wait(self, full_at: float, now: float) -> float:
        """The seconds until there is a token in a bucket that is full then."""
        interval = self.interval or 0.0
        # A bucket cannot lack more than all its tokens: what another policy or clock has left there is no debt.
        lacks = min(full_at - now, self.burst * interval)
        return max(0.0, lacks - (self.burst - 1) * interval)
