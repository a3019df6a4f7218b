"""The calls of a capability over time, from the counters of each minute."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
from django.db.models import Q, TextField
from django.db.models.functions import Cast

from ergon_site.access.core.charts import Window
from providers.core import histogram
from providers.core.breaker import BreakerState
from providers.core.events import EventKind
from providers.models import Gate, ProviderEvent, ProviderMinute

# Of an account that many tenants share there may be more minutes than a page has time for: the newest are read.
MOST_MINUTES = 12_000
EVENTS, MARKED = 500, 50


@dataclass(slots=True)
class Called:
    """The calls of one step."""

    succeeded: int = 0
    failed: int = 0
    refused: int = 0
    buckets: Counter[str] = field(default_factory=Counter)

    def took(self, *shares: float) -> list[float | None]:
        """Latencies in seconds that these shares of the attempts did not exceed."""
        buckets = histogram.merged([self.buckets])
        found = [histogram.percentile(buckets, share) for share in shares]
        return [None if one is None else one / 1000 for one in found]


def called(window: Window, gate: Gate) -> list[Called | None]:
    """The calls of each step; None where there were too many minutes to read."""
    gates: Any = [gate.pk]
    if gate.who.is_account:
        tenants = Gate.objects.filter(provider_name=gate.provider_name, account=gate.tenant_id, is_shared=True)
        gates = tenants.values("pk")
    rows = ProviderMinute.objects.filter(
        gate_id__in=gates, minute__gte=window.begins // 60, minute__lt=window.ends // 60
    ).order_by("-minute")
    steps: list[Called | None] = [Called() for _ in window.times]
    place = read = 0
    for minute, attempts, successes, refusals, buckets in rows.values_list(
        "minute", "attempts", "successes", "refusals", Cast("buckets", TextField())
    )[:MOST_MINUTES]:
        read, place = read + 1, window.place(minute * 60)
        step = steps[place] or Called()
        step.succeeded += successes
        step.failed += attempts - successes
        step.refused += refusals
        step.buckets.update(orjson.loads(buckets))
    if read == MOST_MINUTES:
        steps[: place + 1] = [None] * (place + 1)
    return steps


def whole(steps: Iterable[Called | None]) -> Called:
    """All steps as one."""
    known = [step for step in steps if step]
    return Called(
        sum(step.succeeded for step in known),
        sum(step.failed for step in known),
        sum(step.refused for step in known),
        sum((step.buckets for step in known), Counter()),
    )


def openings(window: Window, gate: Gate | None = None) -> list[ProviderEvent]:
    """Breakers that opened by themselves or by an order, among the newest events."""
    events = ProviderEvent.objects.filter(**gate.who._asdict()) if gate else ProviderEvent.objects.all()
    newest = events.order_by("-id").values("pk")[:EVENTS]
    opened = Q(kind=EventKind.BREAKER.value, to_state=BreakerState.OPEN.value) | Q(
        kind=EventKind.OVERRIDE.value, to_state__startswith=BreakerState.OPEN.value
    )
    within = {"at__gte": datetime.fromtimestamp(window.begins, UTC), "at__lt": datetime.fromtimestamp(window.ends, UTC)}
    return list(ProviderEvent.objects.filter(opened, pk__in=newest, **within).order_by("-id")[:MARKED])
