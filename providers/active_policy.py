"""The policy that a provider is called under.

The class of a provider has defaults; a policy in the database overrides them. Every process looks at most once a second
for each capability, so that admission keeps its one statement.
"""

import time
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter, is_
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import structlog

from ergon_site.access.policies.verbs import Policies
from providers import calls, telemetry
from providers.core.exchange import MOST
from providers.core.policy import ProviderPolicy
from providers.models import ProviderPolicyRow, ProviderPolicyVersion

log = structlog.get_logger("ergon.providers")
# Seconds that a look counts.
FRESH = 1.0
POLICIES: Policies[ProviderPolicyRow, ProviderPolicyVersion] = Policies(model=ProviderPolicyRow)
# The class attribute for each field of a policy.
RENAMED = {
    "retry": "retry_policy",
    "breaker": "breaker_policy",
    "opening": "opening_rules",
    "budget": "retry_budget",
}
ATTRIBUTES = {field.name: RENAMED.get(field.name, field.name) for field in fields(ProviderPolicy)}

_values_of = attrgetter(*ATTRIBUTES.values())

Key = tuple[str, str]


class Governing(NamedTuple):
    """A policy, and the number of the version that says so; None where the class does."""

    policy: ProviderPolicy
    number: int | None = None


# Of each capability: when this process looked, and what it found.
_looks: dict[Key, tuple[float, Governing | None]] = {}
# Of each class: the attributes of the provider that called last, and their policy.
_defaults: WeakKeyDictionary[type, tuple[tuple[Any, ...], ProviderPolicy | None]] = WeakKeyDictionary()


def remembered(provider: Any) -> Governing | None:
    """The policy of a provider, without the database; None if it is time to look."""
    at, found = _looks.get((provider.provider_name, provider.capability), (None, None))
    if at is None or time.monotonic() - at >= FRESH:
        return None
    return found or Governing(defaults_of(provider))


def governing(provider: Any, limit: float = MOST) -> Governing:
    """The policy of a provider: what the database says, with the number of its version, or else its class.

    The database has `limit` seconds to say it.
    """
    if (known := remembered(provider)) is not None:
        return known
    key = (provider.provider_name, provider.capability)
    _, found = _looks.get(key, (None, None))
    if key in _looks:
        # Whoever comes while this one looks goes by what was found last.
        _looks[key] = time.monotonic(), found
    try:
        with calls.answered_within(limit):
            row = POLICIES.look_up(*key)
        version = row.active if row else None
        found = Governing(ProviderPolicy.from_stored(version.body), version.number) if version else None
    except calls.LOST as error:
        # What was found last stays in force.
        telemetry.store_failures.add(1, {telemetry.VERB: "policy"})
        log.warning("provider store unavailable", verb="policy", error_type=type(error).__name__)
    _looks[key] = time.monotonic(), found
    return found or Governing(defaults_of(provider))


def forget(provider_name: str, capability: str) -> None:
    """Look anew at the next call of a capability."""
    _looks.pop((provider_name, capability), None)


def forget_all() -> None:
    _looks.clear()


def defaults_of(provider: Any) -> ProviderPolicy:
    """The policy that the class attributes of a provider make."""
    values = _values_of(provider)
    known, policy = _defaults.get(type(provider), ((), None))
    if policy is not None and all(map(is_, values, known)):
        return policy
    try:
        policy = _checked_policy(*values)
    except TypeError:  # a value that cannot be remembered is refused by its name
        policy = _checked_policy.__wrapped__(*values)
    _defaults[type(provider)] = values, policy
    return policy


@lru_cache(typed=True)
def _checked_policy(*values: Any) -> ProviderPolicy:
    """What has been checked once is not checked again at every call."""
    return ProviderPolicy(**dict(zip(ATTRIBUTES, values, strict=True)))
