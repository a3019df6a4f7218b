"""VERBS: rate, rollup. Rates of the last hour, from the minutes' buckets."""

import json
from datetime import timedelta
from typing import Any

from django.db.models import Q

from ergon_site.access.database.clock import database_time
from providers.calls import sql
from providers.core import histogram
from providers.core.exchange import Who
from providers.models import Gate, ProviderHealthState

HOUR = 60
# With fewer attempts than this in the hour, every one is worth a new figure; with more, once a second will do.
FEW = 100
EVERY = 1.0
P95 = 0.95

READ = """
SELECT g.settlements, m.attempts, m.successes, m.executions, m.successful_executions, m.buckets
FROM provider_gates g LEFT JOIN provider_minutes m
  ON m.gate_id = g.id AND m.minute > CAST(floor({clock} / 60) AS bigint) - %(minutes)s
WHERE g.id = %(gate)s
"""
WRITE = """
UPDATE provider_health_states SET success_rate_1h = CAST(%(success)s AS double precision),
  p95_latency_ms_1h = CAST(%(p95)s AS double precision), execution_rate_1h = CAST(%(execution)s AS double precision),
  attempts_1h = CAST(%(attempts)s AS bigint), rated_at = {clock}, rated_settlement = CAST(%(settlement)s AS bigint)
WHERE tenant_id = CAST(%(tenant_id)s AS text) AND provider_name = CAST(%(provider_name)s AS text)
  AND capability = CAST(%(capability)s AS text) AND rated_settlement <= CAST(%(settlement)s AS bigint)
"""


def is_due(now: float, rated_at: float | None, attempts: int) -> bool:
    return rated_at is None or attempts < FEW or now - rated_at >= EVERY


def rate(gate_id: int, who: Who) -> None:
    """Compute the rates of a capability anew. Whoever has seen less never overwrites who has seen more."""
    clock = sql.dialect().clock
    found = sql.rows(READ.format(clock=clock), {"gate": gate_id, "minutes": HOUR})
    minutes = [row for row in found if row[1] is not None]
    attempts, successes, executions, successful = (sum(row[place] for row in minutes) for place in range(1, 5))
    buckets = histogram.merged(_buckets(row[5]) for row in minutes)
    p95 = histogram.percentile(buckets, P95)
    given = {
        **who._asdict(),
        "success": histogram.rate(successes, attempts),
        "p95": None if p95 is None else round(p95, 3),
        "execution": histogram.rate(successful, executions),
        "attempts": attempts,
        "settlement": found[0][0],
    }
    sql.rows(WRITE.format(clock=clock), given)


def rollup(*, older_than: timedelta = timedelta(seconds=EVERY)) -> int:
    """Compute the rates anew wherever they have aged, so that an hour without calls shows; how many."""
    before = (database_time() - older_than).timestamp()
    aged = ProviderHealthState.objects.filter(Q(rated_at__lt=before) | Q(rated_at__isnull=True), attempts_1h__gt=0)
    count = 0
    for health in aged.order_by("pk").iterator():
        who = Who(health.tenant_id, health.provider_name, health.capability)
        gate = Gate.objects.filter(**who._asdict()).values_list("pk", flat=True).first()
        if gate is not None:
            rate(gate, who)
            count += 1
    return count


def _buckets(value: Any) -> dict[int, int]:
    plain = json.loads(value) if isinstance(value, str) else value
    return {int(bucket): count for bucket, count in plain.items()}
