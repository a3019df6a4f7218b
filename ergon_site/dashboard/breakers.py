"""Breakers as causes: those of a provider that opened together, and dead letters and transactions that they block."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Exists, F, OuterRef, QuerySet, TextField, Value
from django.db.models.functions import Cast, JSONObject

from ergon_site.access.core.attention import Item
from ergon_site.dashboard import engines
from ergon_site.dashboard.attention import LONGEST_TITLE, SHOWN_OF_A_KIND
from providers.core.breaker import BreakerState
from providers.core.exchange import Who
from providers.core.gate import EVERY
from providers.models import Gate
from providers.reads import health
from providers.reads.health import Standing

# So many breakers of one provider are one outage; fewer are shown one by one, each with its own button.
TOGETHER = 3
# Of each outage, the newest calls that failed or were refused; those that opened a breaker came before that.
LOOKED_AT = 300
# Capabilities whose calls are looked at, shared by the outages.
MOST_LOOKS = 50
FEWEST_CALLS = 10
BEFORE_OPENING = timedelta(minutes=10)
CALLS = """
SELECT correlation_id FROM (
    SELECT correlation_id FROM provider_execution_metrics
    WHERE tenant_id = %s AND provider_name = %s AND capability = %s AND created_at >= %s AND outcome <> 'success'
    ORDER BY created_at DESC LIMIT {most:d}
) AS newest
"""
BLOCKED = """
SELECT {place:d}, 'group', group_id, '', count(*) FROM engines_deadletter
WHERE state = 'open' AND uid IN (SELECT uid FROM calls_{place:d}) GROUP BY group_id
UNION ALL
SELECT {place:d}, 'pipeline', p.id, p.name, count(*) FROM engines_transactionrecord t
JOIN engines_pipeline p ON p.id = t.pipeline_id
WHERE t.state = 0 AND t.uid IN (SELECT uid FROM calls_{place:d}) GROUP BY p.id, p.name
UNION ALL
SELECT {place:d}, 'calls', 0, '', count(*) FROM calls_{place:d}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A capability that needs attention, and since when its breaker has not been closed, or was forced."""

    standing: Standing
    since: datetime | None

    @property
    def who(self) -> Who:
        return self.standing.who

    @property
    def pk(self) -> int:
        return self.standing.gate.pk if self.standing.gate else 0

    @property
    def is_blocking(self) -> bool:
        return self.standing.state is not BreakerState.CLOSED

    @property
    def account(self) -> Who | None:
        """The gate that it shares with other tenants."""
        gate = self.standing.gate
        return None if gate is None or self.who.is_account else Who(gate.account, gate.provider_name, EVERY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Breakers of a provider that are one attention item, or any other trouble of one capability."""

    troubles: tuple[Trouble, ...]
    caused_by: str = ""  # the key of their account's breaker

    @property
    def is_gathered(self) -> bool:
        return len(self.troubles) > 1

    @property
    def first(self) -> Trouble:
        return self.troubles[0]

    @property
    def key(self) -> str:
        return self.gathered_as if self.is_gathered else key_of(self.first)

    @property
    def gathered_as(self) -> str:
        """The key of the breakers of this provider as one item; empty for a trouble that stays apart."""
        if not is_shared(self.first):
            return ""
        return f"provider:{self.first.who.provider_name}:breakers:{self.caused_by}".rstrip(":")[:LONGEST_TITLE]

    @property
    def since(self) -> datetime | None:
        return min((one.since for one in self.troubles if one.since), default=None)

    @property
    def newest(self) -> datetime | None:
        return max((one.since for one in self.troubles if one.since), default=None)


def key_of(trouble: Trouble) -> str:
    return f"provider:{trouble.pk}"


def is_shared(trouble: Trouble) -> bool:
    """Whether it may be part of an outage. Breakers that somebody has forced are known one by one, by whom and why."""
    return trouble.is_blocking and not trouble.standing.override


def outages(troubles: Sequence[Trouble]) -> list[Outage]:
    """Every trouble, those together that are one outage; breakers of tenants under that of their account."""
    accounts = {one.who: one for one in troubles if one.who.is_account and one.is_blocking}
    groups: dict[tuple[str, str], list[Trouble]] = {}
    for one in troubles:
        account = accounts.get(one.account) if one.account and one.is_blocking else None
        caused_by = key_of(account) if account else ""
        shared = one.who.provider_name if is_shared(one) else f"\0{one.pk}"
        groups.setdefault((shared, caused_by), []).append(one)
    found = []
    for (_, caused_by), members in groups.items():
        parts = [members] if len(members) >= TOGETHER else [[one] for one in members]
        found += [Outage(troubles=tuple(part), caused_by=caused_by) for part in parts]
    return found


def tenants(now: datetime) -> QuerySet[Any, Any]:
    """The capabilities that were called last under accounts whose breaker is not closed, as rows for a union."""
    gates: QuerySet[Any] = Gate.objects.alias(**health.conditions(now))
    shared = gates.exclude(effective=BreakerState.CLOSED.value)
    theirs = {"tenant_id": OuterRef("account"), "provider_name": OuterRef("provider_name"), "capability": EVERY}
    called = Gate.objects.exclude(capability=EVERY).filter(Exists(shared.filter(**theirs)))
    newest = called.order_by(F("decided_at").desc(nulls_last=True)).values("pk")[:MOST_LOOKS]
    row = Cast(JSONObject(**{name: name for name in (*Who._fields, "account")}), TextField())
    chosen: QuerySet[Any] = Gate.objects.filter(pk__in=newest).order_by()
    rows: QuerySet[Any, Any] = chosen.annotate(kind=Value("tenant"), row=row).values_list("kind", "pk", "row")
    return rows


def blocked(
    outages: Iterable[Outage], tenants: Iterable[Mapping[str, str]]
) -> tuple[dict[int, dict[str, int]], list[Item]]:
    """What breakers that are not closed have caused, by one statement.

    Dead letters and waiting transactions whose calls failed or were refused: of each group how many by which outage,
    and an item for what waits in each pipeline. Handlers call under the id of their transaction. The newest calls of a
    few outages are looked at; those of an account are calls of its `tenants`.
    """
    members: dict[Who, list[Who]] = {}
    for row in tenants:
        account = Who(row["account"], row["provider_name"], EVERY)
        members.setdefault(account, []).append(Who(*(row[name] for name in Who._fields)))
    causes = [one for one in outages if one.first.is_blocking and not one.caused_by]
    # The largest first: they explain most.
    looks = sorted(((one, _called(one, members)) for one in causes), key=lambda look: -len(look[1]))
    rows = _blocked_by([look for look in looks if look[1]][:SHOWN_OF_A_KIND])
    groups: dict[int, dict[str, int]] = {}
    for key, kind, of, _, count in rows:
        if kind == "group":
            groups.setdefault(of, {})[key] = count
    capped = {key for key, kind, *_, count in rows if kind == "calls" and count >= LOOKED_AT}
    waits = [
        engines.waiting(f"held:{key}:{of}", name, count, key, is_capped=key in capped)
        for key, kind, of, name, count in rows
        if kind == "pipeline"
    ]
    return groups, waits


def _called(outage: Outage, members: Mapping[Who, list[Who]]) -> list[Who]:
    """The capabilities whose calls the outage has stopped."""
    found = (who for one in outage.troubles for who in members.get(one.who, [one.who]) if not who.is_account)
    return list(dict.fromkeys(found))


def _blocked_by(looks: Sequence[tuple[Outage, list[Who]]]) -> list[tuple[str, str, int, str, int]]:
    if not looks:
        return []
    calls, parts, parameters = [], [], list[Any]()
    for place, (outage, called) in enumerate(looks):
        chosen = called[: MOST_LOOKS // len(looks)]
        since = (outage.since or outage.first.standing.read_at) - BEFORE_OPENING
        newest = CALLS.format(most=max(LOOKED_AT // len(chosen), FEWEST_CALLS))
        calls.append(f"calls_{place} (uid) AS ({' UNION ALL '.join([newest] * len(chosen))})")
        for who in chosen:
            parameters += [*who, connection.ops.adapt_datetimefield_value(since)]
        parts.append(BLOCKED.format(place=place))
    with connection.cursor() as cursor:
        cursor.execute(f"WITH {', '.join(calls)} {' UNION ALL '.join(parts)}", parameters)
        return [(looks[place][0].key, *row) for place, *row in cursor.fetchall()]
