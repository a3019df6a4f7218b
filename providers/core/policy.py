"""Everything about how a provider is called. A provider's class gives the defaults."""

from dataclasses import dataclass, field
from enum import StrEnum

from engines.core.rules import DURATION, FLAG, TIME_LIMIT, WHOLE, Policy, means, part, rule
from providers.core.breaker import BreakerPolicy
from providers.core.budget import RetryBudget
from providers.core.retry import RETRY_AFTER_CEILING, RetryPolicy


class StoreFailure(StrEnum):
    """What becomes of calls while the database is away."""

    CLOSED = "closed"
    LOCAL = "local"


CHOICE = rule("closed or local", lambda value: value in set(StoreFailure))
SECONDS = rule("a number of seconds above 0", TIME_LIMIT["check"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPolicy(Policy):
    """How one capability of one provider is called."""

    retry: RetryPolicy = field(
        default_factory=RetryPolicy, metadata=part(RetryPolicy, "How often a call is tried, and after which waits.")
    )
    breaker: BreakerPolicy = field(
        default_factory=BreakerPolicy, metadata=part(BreakerPolicy, "When the provider is left alone.")
    )
    budget: RetryBudget = field(
        default_factory=RetryBudget, metadata=part(RetryBudget, "How many retries all callers may make together.")
    )
    timeout: float | None = field(
        default=30.0, metadata=TIME_LIMIT | means("How long each attempt may take.", "seconds")
    )
    retry_after_ceiling: float = field(
        default=RETRY_AFTER_CEILING,
        metadata=DURATION | means("The longest pause that the provider may ask for.", "seconds"),
    )
    count_rate_limited: bool = field(
        default=False, metadata=FLAG | means("Whether being asked for fewer calls counts as a failure for the breaker.")
    )
    quota_per_attempt: bool = field(
        default=False, metadata=FLAG | means("Whether every attempt uses the quota, not only the first.")
    )
    cost: int = field(default=1, metadata=WHOLE | means("How much of the quota a call uses.", "calls"))
    on_store_failure: str = field(
        default=StoreFailure.CLOSED.value,
        metadata=CHOICE
        | means("Without the database, refuse calls (closed) or go by a breaker of this process alone (local)."),
    )
    probe_lease: float = field(
        default=60.0, metadata=SECONDS | means("How long a probe keeps its place if nobody reports back.", "seconds")
    )
    deduplicate: bool = field(
        default=False, metadata=FLAG | means("Whether requests without a key of their own are known by what they ask.")
    )
    idempotency_lease: float = field(
        default=300.0,
        metadata=SECONDS | means("How long a request is taken to be under way if nobody reports back.", "seconds"),
    )
    idempotency_wait: float = field(
        default=0.0, metadata=DURATION | means("How long a second one waits for the first.", "seconds")
    )
    replay_for: float = field(
        default=86400.0, metadata=SECONDS | means("How long a success is given again for the same key.", "seconds")
    )
