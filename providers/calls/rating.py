"""VERBS: rate, rollup. The rates of the last hour, which health shows.

A usual success computes them along with its settlement, on PostgreSQL; after any other, the verb does.
"""

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
from providers.database import admitting, group_settlement, sql, statements
from providers.models import Gate, ProviderHealthState


def rate(gate_id: int, who: Who) -> None:
    """Compute the rates of a capability anew. Whoever has seen less never overwrites who has seen more."""
    if sql.is_in_transaction():
        _rate([(gate_id, who)])
    else:
        group.put((gate_id, who), sql.time_left())


@retry_conflicts
def _rate(asked: Sequence[tuple[int, Who]]) -> Sequence[None]:
    """Compute what several threads ask for at the same time, once for each gate."""
    gates = dict(asked)
    if len(gates) > 1 and sql.is_postgresql():
        sql.rows(group_settlement.group_rating(), {"rates": json.dumps(_rates_of(gates, statements.SEVERAL))})
        return [None] * len(asked)
    for gate_id, who in gates.items():
        for rates in _rates_of({gate_id: who}, statements.ONE):
            sql.rows(statements.RATES.format(clock=sql.dialect().clock), rates)
    return [None] * len(asked)


def _rates_of(gates: Mapping[int, Who], which: str) -> list[dict[str, Any]]:
    asked = {"gates": ",".join(map(str, gates))}
    minutes: dict[int, list[list[Any]]] = {}
    settlements: dict[int, int] = {}
    text = statements.MINUTES.format(minutes=which).format(clock=sql.dialect().clock)
    for gate_id, settled, *minute in sql.rows(text, asked):
        settlements[gate_id] = settled
        minutes.setdefault(gate_id, []).extend([minute] if minute[0] is not None else [])
    return [
        {**admitting.named(gates[gate_id]), **histogram.rates_of(minutes[gate_id])._asdict(), "settlement": settled}
        for gate_id, settled in settlements.items()
    ]


group: Group[tuple[int, Who], None] = Group(_rate, lambda asked, _: _rate([asked])[0])


def rollup() -> int:
    """Compute the rates anew wherever they have aged, so that an hour without calls shows; how many."""
    before = database_time().timestamp() - histogram.RATED_EVERY
    end_expired_overrides(before)
    aged = ProviderHealthState.objects.filter(Q(rated_at__lt=before) | Q(rated_at__isnull=True), attempts_1h__gt=0)
    count = 0
    for health in aged.order_by("pk").iterator():
        gate = Gate.objects.filter(**health.who._asdict()).values_list("pk", flat=True).first()
        if gate is not None:
            rate(gate, health.who)
            count += 1
    return count
