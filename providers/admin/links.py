"""Links between the pages of providers."""

from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from providers.core.exchange import Who
from providers.models import Gate


def gate(row: Gate) -> str:
    return reverse("admin:providers_gate_change", args=[row.pk])


def attempts(who: Who, **more: Any) -> str:
    """The list of a capability's attempts."""
    named = {"tenant": who.tenant_id, "provider": who.provider_name, "capability": who.capability}
    return f"{reverse('admin:providers_providerexecutionmetric_changelist')}?{urlencode({**named, **more})}"


def correlated(correlation_id: str) -> str:
    address = reverse("admin:providers_providerexecutionmetric_changelist")
    return f"{address}?{urlencode({'correlation': correlation_id})}"


def attempt(key: int) -> str:
    return reverse("admin:providers_providerexecutionmetric_change", args=[key])


def task(key: int) -> str:
    return reverse("admin:providers_taskexecution_change", args=[key])


def waiting(who: Who) -> str:
    """The list of the tasks that wait for a capability."""
    named = {"tenant": who.tenant_id, "waits_for": f"{who.provider_name}/{who.capability}"}
    return f"{reverse('admin:providers_taskexecution_changelist')}?{urlencode(named)}"


def dead_letter(key: int) -> str:
    return reverse("admin:engines_deadletter_change", args=[key])


def policy(key: int) -> str:
    return reverse("admin:providers_providerpolicyrow_change", args=[key])


def new_policy(who: Who) -> str:
    named = {"provider_name": who.provider_name, "capability": who.capability}
    return f"{reverse('admin:providers_providerpolicyrow_add')}?{urlencode(named)}"
