"""The policy that a provider is called under.

The class of a provider has defaults; a policy in the database overrides them. Every process looks at most once a second
for each capability, so that admission keeps its one statement.
"""

import time
from typing import Any, NamedTuple

import structlog

from ergon_site.access.policies.verbs import Policies
from providers import calls, telemetry
from providers.core.policy import ProviderPolicy
from providers.models import ProviderPolicyRow, ProviderPolicyVersion

log = structlog.get_logger("ergon.providers")
FRESH = 1.0
POLICIES: Policies[ProviderPolicyRow, ProviderPolicyVersion] = Policies(model=ProviderPolicyRow)

Key = tuple[str, str]


class Governing(NamedTuple):
    """A policy, and the number of the version that says so; None where the class does."""

    policy: ProviderPolicy
    number: int | None = None


class _Look(NamedTuple):
    at: float
    found: Governing | None


_looks: dict[Key, _Look] = {}


def in_force(provider: Any) -> ProviderPolicy:
    """The policy of a provider: what the database says, or else its class."""
    return governing(provider).policy


def governing(provider: Any) -> Governing:
    """The same, with the number of the version."""
    key, now = (provider.provider_name, provider.capability), time.monotonic()
    look = _looks.get(key)
    if look is None or now - look.at >= FRESH:
        look = _Look(now, _found(key, look))
        _looks[key] = look
    return look.found or Governing(defaults_of(provider))


def forget(provider_name: str, capability: str) -> None:
    """Look anew at the next call of a capability."""
    _looks.pop((provider_name, capability), None)


def forget_all() -> None:
    _looks.clear()


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


def _found(key: Key, last: _Look | None) -> Governing | None:
    """The stored policy; while the database is away, the last known one."""
    try:
        with calls.lost_connections_closed():
            row = POLICIES.look_up(*key)
    except calls.LOST as error:
        telemetry.store_failures.add(1, {telemetry.VERB: "policy"})
        log.warning("provider store unavailable", verb="policy", error_type=type(error).__name__)
        return last.found if last else None
    version = row.active if row else None
    return Governing(ProviderPolicy.from_dict(version.body), version.number) if version else None
