"""The retry budget: successes earn, retries spend. In an outage, where nothing is earned, retries end by themselves."""

from dataclasses import dataclass, field

from engines.core import backoff
from engines.core.rules import Policy, means, rule

SHARE = rule("a number of at least 0", backoff.is_duration)
ATOM = rule("a number of at least 1", lambda value: backoff.is_duration(value) and value >= 1)


@dataclass(frozen=True, slots=True)
class RetryBudget(Policy):
    """The retries that a provider may be given beyond what its successes earn."""

    capacity: float = field(
        default=50.0, metadata=ATOM | means("Maximum of the retry budget, which starts full.", "retries")
    )
    earned_by_success: float = field(
        default=0.2, metadata=SHARE | means("What each successful call adds to the budget.", "retries")
    )

    def earn(self, tokens: float) -> float:
        return min(self.capacity, tokens + self.earned_by_success)

    def spend(self, tokens: float) -> float | None:
        """The budget after a retry; None if there is not enough for one."""
        return min(tokens, self.capacity) - 1 if min(tokens, self.capacity) >= 1 else None
