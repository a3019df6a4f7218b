"""VERBS: rate, rollup. The rates of the last hour, which health shows.

A usual success computes them along with its settlement (PostgreSQL). After any other the verb does, where new figures
are due: after each of few attempts, and once a second with many.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import Q

from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.database.clock import database_time
from ergon_site.access.database.group_commit import Group
from providers.calls.overrides import end_expired_overrides
from providers.core import histogram
from providers.core.exchange import Who
from providers.core.gate import Decision
from providers.core.histogram import FEW_ATTEMPTS, RATED_EVERY
from providers.database import admitting, group_settlement, sql, statements
from providers.models import Gate, ProviderHealthState

# Of so many capabilities this process remembers until when their rates will do. A wrong memory costs a statement.
REMEMBERED = 10_000
_rated_until: dict[Who, float] = {}


class Seen(NamedTuple):
    """What a settlement returns: its decision, and of its gate what tells whether new rates are due."""

    decision: Decision
    gate_id: int
    now: float
    rated_at: float | None
    attempts: int
    is_rated: bool  # along with it


def rate_if_due(who: Who, seen: Seen) -> None:
    """Compute the rates after a settlement that is worth new ones."""
    age = None if seen.rated_at is None else seen.now - seen.rated_at
    if age is not None and age < RATED_EVERY and seen.attempts >= FEW_ATTEMPTS:
        if len(_rated_until) >= REMEMBERED:
            _rated_until.clear()
        _rated_until[who] = time.monotonic() + min(RATED_EVERY, RATED_EVERY - age)
    elif not seen.is_rated:
        rate(seen.gate_id, who)


def are_wanted(settled: Iterable[Who]) -> bool:
    """Whether any of these capabilities may be due for new rates: the statement without them takes less."""
    now = time.monotonic()
    return any(_rated_until.get(who, now) <= now for who in settled)


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
    before = database_time().timestamp() - RATED_EVERY
    end_expired_overrides(before)
    aged = ProviderHealthState.objects.filter(Q(rated_at__lt=before) | Q(rated_at__isnull=True), attempts_1h__gt=0)
    count = 0
    for health in aged.order_by("pk").iterator():
        gate = Gate.objects.filter(**health.who._asdict()).values_list("pk", flat=True).first()
        if gate is not None:
            rate(gate, health.who)
            count += 1
    return count
