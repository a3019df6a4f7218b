"""System checks: settings and tasks of providers that cannot work, found before the first call."""

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning as Caution

from engines.core.errors import PolicyError
from providers import active_policy, registry, tasks
from providers.core.policy import ProviderPolicy
from providers.registry import UnknownProviderError

VISIBILITY = "visibility_timeout"


def check_providers(**_: Any) -> list[CheckMessage]:
    """Every provider class that was imported."""
    found: list[CheckMessage] = []
    for kind in registry.classes().values():
        try:
            policy = active_policy.defaults_of(kind)
        except PolicyError as error:
            found.append(Error(f"The class attributes are not a valid policy: {error}.", obj=kind, id="providers.E001"))
        else:
            found += of_policy(policy, kind)
    return found + list(check_broker())


def of_policy(policy: ProviderPolicy, subject: Any) -> Iterator[CheckMessage]:
    """The parts of a policy that can never take effect."""
    retry = policy.retry
    if retry.max_attempts > 1 and retry.base_delay_seconds > retry.max_delay_seconds:
        text = f"The first wait ({retry.base_delay_seconds:g} s) is above the longest ({retry.max_delay_seconds:g} s)."
        yield Caution(text, hint="Every wait is max_delay_seconds then.", obj=subject, id="providers.W002")
    if policy.timeout is not None and policy.probe_lease < policy.timeout:
        text = f"A probe keeps its place for {policy.probe_lease:g} s but may take {policy.timeout:g} s."
        hint = "More probes than half_open_max_calls could run at once: raise probe_lease above timeout."
        yield Caution(text, hint=hint, obj=subject, id="providers.W003")
    lasts = longest(policy)
    if lasts is not None and policy.idempotency_lease < lasts:
        text = f"A request counts as in progress for {policy.idempotency_lease:g} s but may take {lasts:.0f} s."
        hint = "Raise idempotency_lease, or lower timeout, attempts or waits; or give calls a deadline."
        yield Caution(text, hint=hint, obj=subject, id="providers.W004")
    if policy.deduplicate and policy.cache_for is not None and policy.replay_for > policy.cache_for:
        text = f"Equal requests are given the same answer for {policy.replay_for:g} s, longer than cache_for says."
        hint = "A key keeps its answer, and deduplicate makes one of every request: lower replay_for."
        yield Caution(text, hint=hint, obj=subject, id="providers.W009")
    if policy.loses_count:
        text = "on_store_failure 'local' and quota_per_attempt exclude each other: without it nothing is counted."
        yield Error(text, hint="Paid calls fail closed.", obj=subject, id="providers.E005")


def longest(policy: ProviderPolicy) -> float | None:
    """The longest time of a call, waits included; None if it has no end."""
    if policy.timeout is None:
        return None
    retry = policy.retry
    waits = sum(retry.delay(number, random=lambda: 1.0) for number in range(1, min(retry.max_attempts, 1000)))
    return policy.timeout * retry.max_attempts + waits


def check_broker() -> Iterator[CheckMessage]:
    """A task that outlasts the broker's patience is delivered a second time while it runs."""
    options = getattr(settings, "CELERY_BROKER_TRANSPORT_OPTIONS", {})
    visibility, limit = options.get(VISIBILITY), getattr(settings, "CELERY_TASK_TIME_LIMIT", None)
    if visibility is not None and limit is not None and visibility <= limit:
        text = f"The broker's visibility timeout ({visibility:g} s) is not above the tasks' time limit ({limit:g} s)."
        yield Error(text, hint="Raise CELERY_BROKER_TRANSPORT_OPTIONS['visibility_timeout'].", id="providers.E006")


def check_tasks(**_: Any) -> list[CheckMessage]:
    """Every task finds the provider that it names."""
    found: list[CheckMessage] = []
    for task in tasks.provider_tasks():
        try:
            task.find_provider()
        except UnknownProviderError as error:
            found.append(Error(f"The task {task.name!r} has no provider: {error}", id="providers.E008"))
    return found
