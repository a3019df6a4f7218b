"""The status of capabilities: breaker, rates of the last hour, quota, pauses, overrides."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Case, CharField, Count, F, FloatField, Q, QuerySet, Value, When
from django.db.models.functions import Cast, Now

from ergon_site.access.database.clock import database_time
from providers.core.breaker import BreakerState
from providers.core.exchange import Who
from providers.core.gate import EVERY, SET_BACK, moment
from providers.core.histogram import Rates, rates_of
from providers.models import (
    Gate,
    OutboxLetter,
    ProviderExecutionMetric,
    ProviderHealthState,
    ProviderMinute,
    QuotaState,
)

HOUR = 60
COUNTED = 10_000
# Of a minute, beside its rates.
COUNTS = ("refusals", "cache_hits", "stale_answers", "fallbacks")
# Calls under one id that are asked for their capabilities.
LOOKED_AT = 2000
# From here on a quota concerns somebody.
NEARLY = 0.8
WORSE = [BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStanding:
    limit: int
    used: int
    start: datetime
    end: datetime

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)

    @property
    def percent(self) -> float:
        return 100.0 * self.used / self.limit if self.limit else 100.0


class Minute(NamedTuple):
    attempts: int
    successes: int
    executions: int
    successful_executions: int
    buckets: Any
    refusals: int
    cache_hits: int
    stale_answers: int
    fallbacks: int
    minute: int  # since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    who: Who
    state: BreakerState
    rates: Rates
    quota: QuotaStanding | None
    gate: Gate | None
    health: ProviderHealthState | None
    read_at: datetime
    minutes: Sequence["Minute"] = ()  # of the last hour, those with calls
    account: "Standing | None" = None  # of the account, where that has a gate

    @property
    def effective(self) -> BreakerState:
        """The state that a call meets: that of the account, if it is worse."""
        states = [self.state] if self.account is None else [self.state, self.account.state]
        return max(states, key=WORSE.index)

    @property
    def override(self) -> str:
        """An operator's word that holds: open, closed or nothing."""
        return self.gate.override_at(self.read_at) if self.gate else ""

    @property
    def override_until(self) -> datetime | None:
        return self._ahead(self.gate.override_until) if self.gate and self.override else None

    @property
    def override_by(self) -> str | None:
        return self.gate.override_by if self.gate and self.override else None

    @property
    def override_reason(self) -> str | None:
        return self.gate.override_reason if self.gate and self.override else None

    @property
    def failures(self) -> int:
        """Consecutive failures."""
        known = self.gate or self.health
        return known.consecutive_failures if known else 0

    @property
    def last_success_at(self) -> datetime | None:
        """By the gate, which knows it before the visible table does."""
        if self.gate is not None and self.gate.succeeded_at is not None:
            return moment(self.gate.succeeded_at)
        return self.health.last_success_at if self.health else None

    @property
    def opened_by(self) -> str:
        """The rate that opened the breaker; empty if failures in a row did."""
        return self.gate.opened_by if self.gate else ""

    @property
    def shadow_opened_at(self) -> datetime | None:
        """When a rule that only records would last have opened the breaker."""
        at = self.gate.shadow_opened_at if self.gate else None
        return None if at is None else moment(at)

    @property
    def reopens_at(self) -> datetime | None:
        """When an open breaker lets probes through."""
        if self.gate is None or self.gate.state != BreakerState.OPEN or self.state is BreakerState.HALF_OPEN:
            return None
        return self._ahead(self.gate.open_until)

    @property
    def cooldown_until(self) -> datetime | None:
        """Until when the provider asked for a pause."""
        return self._ahead(self.gate.pause_at(self.read_at)) if self.gate else None

    def _ahead(self, seconds: float | None) -> datetime | None:
        return moment(seconds) if seconds is not None and seconds > self.read_at.timestamp() else None


class OpenBreaker(NamedTuple):
    """An open breaker, in few words, and until when; without a time until it is reset."""

    what: str
    until: datetime | None

    def facts(self) -> dict[str, Any]:
        return {"what": self.what, "until": self.until and self.until.isoformat()}


def of_tenant(tenant_id: str) -> list[Standing]:
    """Every capability of a tenant that has a quota, calls, or an operator's word on it."""
    now = database_time()
    gates = {gate.who: gate for gate in Gate.objects.filter(tenant_id=tenant_id)}
    healths = {row.who: row for row in ProviderHealthState.objects.filter(tenant_id=tenant_id)}
    windows = QuotaState.objects.filter(tenant_id=tenant_id, window_start__lte=now, window_end__gt=now)
    quotas = {row.who: row for row in windows.order_by("window_start")}
    seen = {who for who, gate in gates.items() if gate.is_limited or gate.override or gate.settlements}
    minutes = _minutes(gates.values(), now)
    stands = [
        _standing(who, gates.get(who), healths.get(who), quotas.get(who), minutes, now)
        for who in sorted(seen | set(healths) | set(quotas))
    ]
    return _with_accounts(stands, now)


def of_gates(gates: Sequence[Gate]) -> list[Standing]:
    now = database_time()
    names = {f"{name}__in": {getattr(gate, name) for gate in gates} for name in Who._fields}
    healths = {row.who: row for row in ProviderHealthState.objects.filter(**names)} if gates else {}
    minutes = _minutes(gates, now)
    stands = [_standing(gate.who, gate, healths.get(gate.who), None, minutes, now) for gate in gates]
    return _with_accounts(stands, now)


def health_of(who: Who) -> Standing | None:
    """The health of a capability; None if nothing is known of it."""
    gate = Gate.objects.filter(**who._asdict()).first()
    if gate is not None:
        return of_gates([gate])[0]
    return next((one for one in of_tenant(who.tenant_id) if one.who == who), None)


def concerning(now: datetime) -> QuerySet[Gate]:
    """Capabilities that need attention: open, forced, or with a quota that is nearly used up."""
    rows = Gate.objects.alias(**conditions(now))
    return rows.filter(~Q(effective="closed") | Q(is_forced=True) | Q(is_near=True)).order_by("pk")


def of_row(gate: Gate, now: datetime) -> Standing:
    """The health that the gate alone tells: everything but errors and rates."""
    return _standing(gate.who, gate, None, None, {}, now)


def open_among(capabilities: Collection[Who]) -> list[OpenBreaker]:
    """The breakers that let no call pass now, open by themselves or by an override."""
    if not capabilities:
        return []
    names = {f"{name}__in": {getattr(who, name) for who in capabilities} for name in Who._fields}
    # The time comes with the rows: pages that ask for this ask for much else.
    gates = [gate for gate in Gate.objects.filter(**names).annotate(now=Now()) if gate.who in capabilities]
    if not gates:
        return []
    now = gates[0].now
    stands = [of_row(gate, now) for gate in gates]
    found = []
    for stand in _with_accounts(stands, now):
        for one in (stand, stand.account):
            if one is not None and one.state is BreakerState.OPEN:
                until = one.override_until if one.override else one.reopens_at
                found.append(OpenBreaker(f"breaker {one.who.provider_name}/{one.who.capability} open", until))
    return found


def called_under(ids: Collection[str]) -> set[Who]:
    """The capabilities that were called under these correlation ids or for these transactions, or would have been.

    Of a correlation id that very many calls share, not all are looked at.
    """
    called = Q(correlation_id__in=ids) | Q(transaction_id__in=ids)
    made = ProviderExecutionMetric.objects.filter(called).order_by()
    return {Who(*names) for names in made.values_list(*Who._fields)[:LOOKED_AT]}


def is_near(quota: QuotaStanding | None) -> bool:
    return quota is not None and quota.used >= NEARLY * quota.limit


def counts() -> QuerySet[Any, Any]:
    """Of each provider and capability, how many tenants are in which state, and how many have used up their quota."""
    now = database_time()
    rows = Gate.objects.alias(**conditions(now)).order_by()
    states = {state.value: Count("pk", filter=Q(effective=state.value)) for state in BreakerState}
    spent = Count("pk", filter=Q(is_spent=True))
    return rows.values("provider_name", "capability").annotate(**states, spent=spent)


def waiting_letters() -> int:
    """The number of unpublished dead letters, counted up to a cap."""
    return OutboxLetter.objects.filter(published_at__isnull=True).order_by("id")[:COUNTED].count()


def oldest_letter_age() -> float | None:
    """The age of the first unpublished dead letter in seconds."""
    first = OutboxLetter.objects.filter(published_at__isnull=True).order_by("id").first()
    return (database_time() - first.created_at).total_seconds() if first else None


def conditions(now: datetime) -> dict[str, Case | Q]:
    """The rules of gates in SQL: the effective state, overrides, and the used part of quotas."""
    seconds = now.timestamp()
    is_forced = ~Q(override="") & (Q(override_until__isnull=True) | Q(override_until__gt=seconds))
    is_turning = Q(state="open") & (Q(open_until__lte=seconds) | Q(turned_at__gt=seconds + SET_BACK))
    # Of a window that is over nothing is used; of a quota of zero nothing is left in any window.
    in_window = Q(quota_limit__isnull=False, window_end__gt=seconds, window_start__lte=seconds + SET_BACK)
    is_zero = Q(quota_limit=0)
    return {
        "effective": Case(
            When(is_forced, then=F("override")),
            When(is_turning, then=Value("half_open")),
            default=F("state"),
            output_field=CharField(),
        ),
        "is_forced": is_forced,
        "is_near": is_zero | in_window & Q(used__gte=Cast("quota_limit", FloatField()) * NEARLY),
        "is_spent": is_zero | in_window & Q(used__gte=F("quota_limit")),
    }


def _standing(
    who: Who,
    gate: Gate | None,
    health: ProviderHealthState | None,
    row: QuotaState | None,
    minutes: dict[int, list[Minute]],
    now: datetime,
) -> Standing:
    """What the gate says; of what never passed a gate here, what is written in the visible tables."""
    state = gate.effective_state(now) if gate else BreakerState(health.breaker_state if health else "closed")
    live, quota = Rates(), None
    found = minutes.get(gate.pk, []) if gate else []
    if gate is not None and (gate.settlements or gate.who.is_account or health is None):
        counts = {name: sum(getattr(minute, name) for minute in found) for name in COUNTS}
        live = rates_of(found)._replace(**counts) if found else live
    elif health is not None:
        live = Rates(
            success=health.success_rate_1h,
            execution=health.execution_rate_1h,
            p95=health.p95_latency_ms_1h,
            attempts=health.attempts_1h,
        )
    if gate is not None and gate.quota_limit is not None and (window := gate.window_at(now)) is not None:
        start, end = moment(window.start), moment(window.end)
        quota = QuotaStanding(limit=gate.quota_limit, used=window.used, start=start, end=end)
    elif gate is None and row is not None:
        quota = QuotaStanding(limit=row.limit_count, used=row.used_count, start=row.window_start, end=row.window_end)
    about: dict[str, Any] = {"gate": gate, "health": health, "read_at": now, "minutes": found}
    return Standing(who=who, state=state, rates=live, quota=quota, **about)


def _with_accounts(stands: list[Standing], now: datetime) -> list[Standing]:
    """Each with the standing of its account, where that has a gate."""
    shared = {(one.gate.provider_name, one.gate.account) for one in stands if one.gate and one.gate.is_shared}
    if not shared:
        return stands
    names = {"provider_name__in": {name for name, _ in shared}, "tenant_id__in": {account for _, account in shared}}
    gates = Gate.objects.filter(**names, capability=EVERY)
    accounts = {(gate.provider_name, gate.tenant_id): of_row(gate, now) for gate in gates}
    return [
        replace(one, account=accounts.get((one.who.provider_name, one.gate.account)))
        if one.gate and one.gate.is_shared
        else one
        for one in stands
    ]


def _minutes(gates: Iterable[Gate], now: datetime) -> dict[int, list[Minute]]:
    """The minutes of the last hour of each gate; of an account's, those of its tenants."""
    since = int(now.timestamp() // 60) - HOUR
    recent = ProviderMinute.objects.filter(minute__gt=since).order_by()
    found: dict[int, list[Minute]] = {}
    plain = [gate.pk for gate in gates if not gate.who.is_account]
    for gate_id, *minute in recent.filter(gate_id__in=plain).values_list("gate_id", *Minute._fields):
        found.setdefault(gate_id, []).append(Minute(*minute))
    for gate in gates:
        if gate.who.is_account:
            tenants = Gate.objects.filter(provider_name=gate.provider_name, account=gate.tenant_id, is_shared=True)
            rows = recent.filter(gate_id__in=tenants.values("pk")).values_list(*Minute._fields)
            found[gate.pk] = [Minute(*row) for row in rows]
    return found
