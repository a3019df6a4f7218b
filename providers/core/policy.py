"""Everything about how a provider is called. A provider's class gives the defaults."""

from dataclasses import dataclass, field
from enum import StrEnum

from engines.core.rules import DURATION, FLAG, LATER, TIME_LIMIT, WHOLE, Policy, means, nested, part, rule
from providers.core.breaker import SHUT_FOR, BreakerPolicy, OpeningRules
from providers.core.gate import Scope
from providers.core.limits import BulkheadPolicy, RateLimit
from providers.core.retry import RETRY_AFTER_CEILING, RetryBudget, RetryPolicy


class StoreFailure(StrEnum):
    """The behaviour of calls while the database is unavailable."""

    CLOSED = "closed"
    LOCAL = "local"


CHOICE = rule("closed or local", lambda value: value in set(StoreFailure))
SCOPE = rule("tenant, account or both", lambda value: value in set(Scope))
SECONDS = rule("a number of seconds above 0", TIME_LIMIT["check"])
DURATION_OR_NONE = rule("a number of seconds of at least 0", DURATION["check"], optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPolicy(Policy):
    """The policy of one capability of one provider."""

    retry: RetryPolicy = nested(RetryPolicy, "Attempts and delays of a call.")
    breaker: BreakerPolicy = nested(BreakerPolicy, "When the breaker opens and closes.")
    opening: OpeningRules = field(
        default_factory=OpeningRules,
        metadata=part(OpeningRules, "Rates of failed and slow calls that open the breaker, too.") | LATER,
    )
    budget: RetryBudget = nested(RetryBudget, "Retries that all callers may make together.")
    breaker_scope: str = field(
        default=Scope.TENANT.value,
        metadata=SCOPE
        | LATER
        | means("Whose failures open the breaker, and for whom: a tenant's, its account's, or both."),
    )
    pause_scope: str = field(
        default=Scope.TENANT.value,
        metadata=SCOPE
        | LATER
        | means("Who pauses when the provider requests it: the tenant, or all that share its account."),
    )
    timeout: float | None = field(default=30.0, metadata=TIME_LIMIT | means("Time limit of each attempt.", "seconds"))
    retry_after_ceiling: float = field(
        default=RETRY_AFTER_CEILING,
        metadata=SHUT_FOR | means("Longest pause that the provider may request.", "seconds"),
    )
    count_rate_limited: bool = field(
        default=False, metadata=FLAG | means("Whether the breaker counts rate-limit answers as failures.")
    )
    quota_per_attempt: bool = field(
        default=False, metadata=FLAG | means("Whether every attempt uses quota, not only the first.")
    )
    cost: int = field(default=1, metadata=WHOLE | means("Quota that a call uses.", "calls"))
    on_store_failure: str = field(
        default=StoreFailure.CLOSED.value,
        metadata=CHOICE
        | means("Without the database: refuse calls (closed), or use a breaker of this process only (local)."),
    )
    probe_lease: float = field(
        default=60.0,
        metadata=SECONDS | means("How long a probe counts as running if its process does not report back.", "seconds"),
    )
    deduplicate: bool = field(
        default=False,
        metadata=FLAG | means("Whether requests without an idempotency key are identified by their content."),
    )
    idempotency_lease: float = field(
        default=300.0,
        metadata=SECONDS
        | means("How long a request counts as in progress if its process does not report back.", "seconds"),
    )
    idempotency_wait: float = field(
        default=0.0, metadata=DURATION | means("How long a repeated request waits for the first one.", "seconds")
    )
    replay_for: float = field(
        default=86400.0,
        metadata=SECONDS | means("How long a successful answer is repeated for the same key.", "seconds"),
    )
    cache_for: float | None = field(
        default=None,
        metadata=DURATION_OR_NONE
        | means("How long an answer serves all who ask the same. Only for calls that change nothing.", "seconds"),
    )
    stale_for: float | None = field(
        default=None,
        metadata=DURATION_OR_NONE
        | means("How much longer it stands in if the provider fails or the call is refused.", "seconds"),
    )

    bulkhead: BulkheadPolicy = field(
        default_factory=BulkheadPolicy, metadata=part(BulkheadPolicy, "How many calls may run at once.") | LATER
    )
    rate_limit: RateLimit = field(
        default_factory=RateLimit, metadata=part(RateLimit, "How fast attempts may follow each other.") | LATER
    )
    max_wait: float = field(
        default=0.0,
        metadata=DURATION
        | LATER
        | means(
            "How long a call waits for its turn at the bulkhead and the rate limit before it is refused.", "seconds"
        ),
    )

    def check(self) -> None:
        if self.stale_for is not None and self.cache_for is None:
            self.refuse("stale_for", "must be null where cache_for is; 0 there keeps answers only to stand in")

    @property
    def useful_for(self) -> float:
        """The seconds after which a kept answer serves nobody any more."""
        return (self.cache_for or 0.0) + (self.stale_for or 0.0)

    @property
    def loses_count(self) -> bool:
        """Whether attempts that are to be counted would be made where nothing counts them."""
        return self.on_store_failure == StoreFailure.LOCAL and self.quota_per_attempt
