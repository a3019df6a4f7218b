"""Which policy a provider is called under."""

from typing import Any

from providers.core.policy import ProviderPolicy


def in_force(provider: Any) -> ProviderPolicy:
    """The policy of a provider: what its class says."""
    return defaults_of(provider)


def defaults_of(provider: Any) -> ProviderPolicy:
    """The policy that the class attributes of a provider make."""
    return ProviderPolicy(
        retry=provider.retry_policy,
        breaker=provider.breaker_policy,
        budget=provider.retry_budget,
        timeout=provider.timeout,
        retry_after_ceiling=provider.retry_after_ceiling,
        count_rate_limited=provider.count_rate_limited,
        quota_per_attempt=provider.quota_per_attempt,
        cost=provider.cost,
        on_store_failure=provider.on_store_failure,
        probe_lease=provider.probe_lease,
        deduplicate=provider.deduplicate,
        idempotency_lease=provider.idempotency_lease,
        idempotency_wait=provider.idempotency_wait,
        replay_for=provider.replay_for,
    )
