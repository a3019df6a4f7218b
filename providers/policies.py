"""VERBS of policies: write a version, activate one. And which policy a provider is called under.

What the class of a provider says are defaults; a policy in the database stands above them. Every process looks at most
once a second for each capability, so that admission keeps its one statement.
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import structlog
from django.db import transaction

from engines.core.errors import PolicyError
from ergon_site.access.policies import errors
from ergon_site.access.policies.verbs import Policies
from providers import calls, telemetry
from providers.core.policy import ProviderPolicy
from providers.models import ProviderPolicyRow, ProviderPolicyVersion
from providers.models.columns import NAME

log = structlog.get_logger("ergon.providers")
FRESH = 1.0
POLICIES: Policies[ProviderPolicyRow, ProviderPolicyVersion] = Policies(model=ProviderPolicyRow)

Key = tuple[str, str]


class PolicyNameError(errors.PolicyRefusal, ValueError):
    """No provider or capability can be called so."""

    code = "invalid_policy"


class Governing(NamedTuple):
    """A policy, and the number of the version that says so; None where the class does."""

    policy: ProviderPolicy
    number: int | None = None


class _Look(NamedTuple):
    at: float
    found: Governing | None


_looks: dict[Key, _Look] = {}


def write(
    provider_name: str, capability: str, *, body: Any, by: str, reason: str, expected: int | None = None
) -> ProviderPolicyVersion:
    """A new version, in force at once; with `expected`, only if that is in force now. The first makes the policy.

    What it does not say is as the class of the provider says, where that is known here.
    """
    for what, name in (("provider", provider_name), ("capability", capability)):
        if not 0 < len(name.strip()) <= NAME or "\x00" in name:
            msg = f"the name of a {what} is a text of 1 to {NAME} characters"
            raise PolicyNameError(msg)
    terms: dict[str, Any] = {"by": by, "reason": reason, "expected": expected}
    complete = _completed(body, _defaults_by_name(provider_name, capability))
    version = POLICIES.write(provider_name, capability, body=complete, **terms)
    _changed(provider_name, capability)
    return version


def activate(
    provider_name: str, capability: str, *, number: int, by: str, reason: str, expected: int | None = None
) -> ProviderPolicyVersion:
    """Put an existing version in force: an earlier one rolls back."""
    terms: dict[str, Any] = {"number": number, "by": by, "reason": reason, "expected": expected}
    version = POLICIES.activate(provider_name, capability, **terms)
    _changed(provider_name, capability)
    return version


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


def forget() -> None:
    """Look anew at the next call."""
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


def _defaults_by_name(provider_name: str, capability: str) -> dict[str, Any]:
    """What the class of these names says; nothing if it is not known here, or makes no policy."""
    from providers import registry  # noqa: PLC0415 (providers know their policies, and the registry knows providers)

    provider = registry.known(provider_name, capability)
    try:
        return {} if provider is None else defaults_of(provider).to_dict()
    except PolicyError:
        return {}


def _completed(given: Any, defaults: Any) -> Any:
    """What is given, and of each part that is given in part the rest."""
    if not isinstance(given, Mapping) or not isinstance(defaults, Mapping):
        return given
    return {**defaults, **{name: _completed(value, defaults.get(name)) for name, value in given.items()}}


def _found(key: Key, last: _Look | None) -> Governing | None:
    """What the database says; while it is away, what it said last."""
    try:
        with calls.lost_connections_closed():
            row = POLICIES.look_up(*key)
    except calls.LOST as error:
        telemetry.store_failures.add(1, {telemetry.VERB: "policy"})
        log.warning("provider store unavailable", verb="policy", error_type=type(error).__name__)
        return last.found if last else None
    version = row.active if row else None
    return Governing(ProviderPolicy.from_dict(version.body), version.number) if version else None


def _changed(*key: str) -> None:
    """Here it is known at once, in other processes within a second."""
    forget_it = partial(_looks.pop, key, None)
    forget_it()
    transaction.on_commit(forget_it)
