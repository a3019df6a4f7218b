"""Links between the pages of providers."""

from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from providers.core.exchange import Who


def gate(key: int) -> str:
    return reverse("admin:providers_gate_change", args=[key])


def attempt(key: int) -> str:
    return reverse("admin:providers_providerexecutionmetric_change", args=[key])


def task(key: int) -> str:
    return reverse("admin:providers_taskexecution_change", args=[key])


def dead_letter(key: int) -> str:
    return reverse("admin:engines_deadletter_change", args=[key])


def attempts(who: Who, **more: Any) -> str:
    named = {"tenant": who.tenant_id, "provider": who.provider_name, "capability": who.capability}
    return _list("providerexecutionmetric_changelist", **named, **more)


def correlated(correlation_id: str) -> str:
    return _list("providerexecutionmetric_changelist", correlation=correlation_id)


def waiting(who: Who) -> str:
    """The list of the tasks that wait for a capability."""
    waits_for = f"{who.provider_name}/{who.capability}"
    return _list("taskexecution_changelist", tenant=who.tenant_id, waits_for=waits_for)


def new_policy(who: Who) -> str:
    return _list("providerpolicyrow_add", provider_name=who.provider_name, capability=who.capability)


def _list(page: str, **asked: Any) -> str:
    return f"{reverse(f'admin:providers_{page}')}?{urlencode(asked)}"
