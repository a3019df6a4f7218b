"""VERBS of policies: write a version, activate one."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from django.db import transaction

from engines.core.errors import PolicyError
from ergon_site.access.policies import errors
from providers import registry
from providers.active_policy import POLICIES, defaults_of, forget
from providers.core.policy import ProviderPolicy
from providers.models import ProviderPolicyVersion
from providers.models.columns import NAME


class PolicyNameError(errors.PolicyRefusal, ValueError):
    """No provider or capability can be called so."""

    code = "invalid_policy"


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
    provider, defaults = registry.known(provider_name, capability), {}
    # Nothing is added for a class that is unknown here, or whose attributes make no policy.
    with suppress(PolicyError):
        defaults = defaults_of(provider).to_dict() if provider else {}
    complete = _completed(body, defaults)
    refuse_contradictions(complete)
    version = POLICIES.write(provider_name, capability, body=complete, by=by, reason=reason, expected=expected)
    _changed(provider_name, capability)
    return version


def activate(
    provider_name: str, capability: str, *, number: int, by: str, reason: str, expected: int | None = None
) -> ProviderPolicyVersion:
    """Put an existing version in force: an earlier one rolls back."""
    earlier = POLICIES.find(provider_name, capability).versions.filter(number=number).first()
    refuse_contradictions(earlier.body if earlier else {})
    version = POLICIES.activate(provider_name, capability, number=number, by=by, reason=reason, expected=expected)
    _changed(provider_name, capability)
    return version


def refuse_contradictions(body: Any) -> None:
    """What is an error of a class is one of a live policy; what is not valid at all is refused where it is written."""
    try:
        policy = ProviderPolicy.from_stored(body)
    except PolicyError:
        return
    if policy.loses_count:
        ProviderPolicy.refuse("quota_per_attempt", "must be false where on_store_failure is local: nothing is counted")


def _completed(given: Any, defaults: Any) -> Any:
    """The given values, with the missing ones of each partly given part."""
    if not isinstance(given, Mapping) or not isinstance(defaults, Mapping):
        return given
    return {**defaults, **{name: _completed(value, defaults.get(name)) for name, value in given.items()}}


def _changed(provider_name: str, capability: str) -> None:
    """Here it is known at once, in other processes within a second."""
    forget(provider_name, capability)
    transaction.on_commit(partial(forget, provider_name, capability))
