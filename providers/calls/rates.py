"""VERBS: rate, rollup. The visible rates of capabilities, computed from their minutes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Q

from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.database.clock import database_time
from ergon_site.access.database.group_commit import Group
from providers.calls.overrides import end_expired_overrides
from providers.core import histogram
from providers.core.exchange import Who
from providers.database import group_settlement, sql
from providers.database.admitting import named
from providers.models import Gate, ProviderHealthState

HOUR = 60
# With fewer attempts than this in the hour, every one is worth a new figure; with more, once a second will do.
FEW = 100
EVERY = 1.0

MINUTES = """
SELECT g.id, g.settlements, m.attempts, m.successes, m.executions, m.successful_executions, m.buckets
FROM provider_gates g LEFT JOIN {minutes}
"""
RECENT = "m.gate_id = g.id AND m.minute > CAST(floor({clock} / 60) AS bigint) - %(minutes)s"
ONE = f"provider_minutes m ON {RECENT} WHERE g.id = %(gates)s"
# Each gate's by themselves: a join of several might read the whole table.
SEVERAL = f"""LATERAL (SELECT * FROM provider_minutes m WHERE {RECENT} OFFSET 0) m ON true
WHERE g.id = ANY (CAST(string_to_array(%(gates)s, ',') AS bigint[]))"""  # noqa: S608 (of constants)
RATES = """
UPDATE provider_health_states SET success_rate_1h = CAST(%(success)s AS double precision),
  p95_latency_ms_1h = CAST(%(p95)s AS double precision), execution_rate_1h = CAST(%(execution)s AS double precision),
  attempts_1h = CAST(%(attempts)s AS bigint), rated_at = {clock}, rated_settlement = CAST(%(settlement)s AS bigint)
WHERE tenant_id = CAST(%(tenant)s AS text) AND provider_name = CAST(%(provider)s AS text)
  AND capability = CAST(%(capability)s AS text) AND rated_settlement <= CAST(%(settlement)s AS bigint)
"""


def is_due(now: float, rated_at: float | None, attempts: int) -> bool:
    """Whether a settlement at this time is worth new figures."""
    return rated_at is None or attempts < FEW or now - rated_at >= EVERY


def rate(gate_id: int, who: Who) -> None:
    """Compute the rates of a capability anew. Whoever has seen less never overwrites who has seen more."""
    if sql.is_in_transaction():
        _rate([(gate_id, who)])
    else:
        _group.put((gate_id, who), sql.time_left())


@retry_conflicts
def _rate(asked: Sequence[tuple[int, Who]]) -> Sequence[None]:
    """Compute what several threads ask for at the same time, once for each gate."""
    gates = dict(asked)
    if len(gates) > 1 and sql.is_postgresql():
        sql.rows(group_settlement.group_rating(), {"rates": json.dumps(_rates_of(gates, SEVERAL))})
        return [None] * len(asked)
    for gate_id, who in gates.items():
        for rates in _rates_of({gate_id: who}, ONE):
            sql.rows(RATES.format(clock=sql.dialect().clock), rates)
    return [None] * len(asked)


def _rates_of(gates: Mapping[int, Who], which: str) -> list[dict[str, Any]]:
    asked = {"gates": ",".join(map(str, gates)), "minutes": HOUR}
    minutes: dict[int, list[list[Any]]] = {}
    settlements: dict[int, int] = {}
    text = MINUTES.format(minutes=which).format(clock=sql.dialect().clock)
    for gate_id, settled, *minute in sql.rows(text, asked):
        settlements[gate_id] = settled
        minutes.setdefault(gate_id, []).extend([minute] if minute[0] is not None else [])
    return [
        {**named(gates[gate_id]), **histogram.rates_of(minutes[gate_id])._asdict(), "settlement": settled}
        for gate_id, settled in settlements.items()
    ]


_group: Group[tuple[int, Who], None] = Group(_rate, lambda asked, _: _rate([asked])[0])


def rollup() -> int:
    """Compute the rates anew wherever they have aged, so that an hour without calls shows; how many."""
    before = database_time().timestamp() - EVERY
    end_expired_overrides(before)
    aged = ProviderHealthState.objects.filter(Q(rated_at__lt=before) | Q(rated_at__isnull=True), attempts_1h__gt=0)
    count = 0
    for health in aged.order_by("pk").iterator():
        gate = Gate.objects.filter(**health.who._asdict()).values_list("pk", flat=True).first()
        if gate is not None:
            rate(gate, health.who)
            count += 1
    return count
