"""The list of capabilities as a file: what the list shows, not what rows say that nobody has called since."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any

from django.db.models import QuerySet

from providers.models import Gate
from providers.reads import health
from providers.reads.health import Standing

AT_ONCE = 500
COLUMNS: Mapping[str, Callable[[Standing], Any]] = {
    "tenant_id": attrgetter("who.tenant_id"),
    "provider_name": attrgetter("who.provider_name"),
    "capability": attrgetter("who.capability"),
    "state": attrgetter("state.value"),
    "consecutive_failures": attrgetter("failures"),
    "reopens_at": attrgetter("reopens_at"),
    "cooldown_until": attrgetter("cooldown_until"),
    "success_rate_1h": attrgetter("rates.success"),
    "execution_rate_1h": attrgetter("rates.execution"),
    "p95_latency_ms_1h": attrgetter("rates.p95"),
    "attempts_1h": attrgetter("rates.attempts"),
    "refusals_1h": attrgetter("rates.refusals"),
    "quota_limit": lambda one: one.quota and one.quota.limit,
    "used": lambda one: one.quota and one.quota.used,
    "last_error_code": lambda one: one.health and one.health.last_error_code,
    "last_error_at": lambda one: one.health and one.health.last_error_at,
    "override": attrgetter("override"),
    "override_until": attrgetter("override_until"),
    "override_by": attrgetter("override_by"),
    "override_reason": attrgetter("override_reason"),
}


def written(rows: QuerySet[Gate]) -> Iterator[tuple[Any, ...]]:
    gates = rows.iterator(chunk_size=AT_ONCE)
    while some := list(islice(gates, AT_ONCE)):
        for one in health.of_gates(some):
            yield tuple(tell(one) for tell in COLUMNS.values())
