"""VERBS of operators: set_quota, drop_quota, force_open, force_closed, reset. Each is seen by all processes at once."""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.db.models.functions import Now

from ergon_site.access import audit
from ergon_site.access.core.texts import LONGEST_REASON, is_storable
from ergon_site.access.database.calls import retry_conflicts, short_transaction
from ergon_site.access.database.clock import database_time
from providers.core import breaker
from providers.core.breaker import BreakerState
from providers.core.events import EXPIRED, NONE, PAUSED, EventKind, ProviderEventNotice
from providers.core.exchange import Who
from providers.core.gate import EVERY, aligned, moment
from providers.database import admitting, events
from providers.models import Gate, ProviderEvent, ProviderHealthState, QuotaState
from providers.models.columns import NAME

LARGEST = 10**15
LONGEST = timedelta(seconds=breaker.LONGEST)
# How long a breaker stays forced unless somebody says otherwise: one that is forgotten decides again.
FORCED_FOR = timedelta(minutes=30)
ROUNDED = timedelta(microseconds=2)


class OrderError(ValueError):
    """The override makes no sense; `field` is the faulty field, if it is one."""

    code = "invalid_order"

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


@retry_conflicts
@short_transaction()
def set_quota(who: Who, *, limit: int, window: float, by: str, reason: str = "") -> QuotaState:
    """Allow so many calls in each window of so many seconds. What this window has used already stays used."""
    if not 0 <= limit <= LARGEST:
        msg = f"a quota is a limit from 0 to {LARGEST:,}"
        raise OrderError(msg, "limit")
    if not 0 < window <= LONGEST.total_seconds():
        msg = f"a quota has a window above 0 seconds and of at most {LONGEST.days:,} days"
        raise OrderError(msg, "window")
    gate = _locked(who)
    before = _quota(gate)
    fresh = aligned(database_time().timestamp(), window)
    if gate.quota_window == window and gate.window_end is not None and gate.window_end > fresh.start:
        gate.quota_limit = limit
    else:
        gate.quota_limit, gate.quota_window, gate.used = limit, window, 0
        gate.window_start, gate.window_end = fresh.start, fresh.end
        gate.previous_start, gate.previous_used = None, 0
    gate.recorded_exhaustion = None
    gate.save()
    admitting.show_quota(who)
    _record("quota.set", who, by, reason, before, _quota(gate))
    _record_quota(gate, before, by, reason)
    # The database rounds a fraction of a second as it likes.
    start = moment(gate.window_start or 0.0)
    return QuotaState.objects.get(**who._asdict(), window_start__range=(start - ROUNDED, start + ROUNDED))


@retry_conflicts
@short_transaction()
def drop_quota(who: Who, *, by: str, reason: str = "") -> None:
    """No quota from now on; what its windows counted stays to be seen."""
    gate = _locked(who)
    before = _quota(gate)
    gate.quota_limit = gate.quota_window = gate.window_start = gate.window_end = gate.previous_start = None
    gate.used = gate.previous_used = 0
    gate.recorded_exhaustion = None
    gate.save()
    now = database_time()
    QuotaState.objects.filter(**who._asdict(), window_end__gt=now, window_start__lt=now).update(window_end=now)
    _record("quota.drop", who, by, reason, before, None)
    _record_quota(gate, before, by, reason)


def force_open(who: Who, *, by: str, reason: str, lasting: timedelta | None = FORCED_FOR) -> Gate:
    """Let no call pass, whatever the breaker says, until it is reset or the time is over; None: until it is reset."""
    return _override(who, BreakerState.OPEN, by=by, reason=reason, lasting=lasting)


def force_closed(who: Who, *, by: str, reason: str, lasting: timedelta | None = FORCED_FOR) -> Gate:
    """Let calls pass for as long, whatever the breaker says; quota and pauses hold."""
    return _override(who, BreakerState.CLOSED, by=by, reason=reason, lasting=lasting)


@retry_conflicts
@short_transaction()
def reset(who: Who, *, by: str, reason: str) -> Gate:
    """Close the breaker, end an override and a pause, and refill the retry budget."""
    gate = _locked(who)
    now = database_time()
    _end_override_in_time(gate, now)
    before, state, override = _breaker(gate), gate.state, gate.override
    is_paused = gate.cooldown_until is not None and gate.cooldown_until > now.timestamp()
    gate.state, gate.open_until, gate.probes = BreakerState.CLOSED.value, None, {}
    gate.consecutive_failures = gate.successes = 0
    gate.opened_by, gate.recent = "", {}
    gate.generation += 1  # what is still under way no longer counts
    gate.turned_at = now.timestamp()
    gate.cooldown_until = gate.recorded_pause = gate.retry_tokens = gate.override_until = None
    gate.override = gate.override_reason = gate.override_by = ""
    gate.save()
    _show(gate)
    admitting.log_turn(who, gate.state, generation=gate.generation, why=reason, by=by)
    _record("breaker.reset", who, by, reason, before, _breaker(gate))
    about: dict[str, Any] = {"why": reason, "by": by, "at": now}
    if override:
        _record_event(gate, EventKind.OVERRIDE, override, NONE, **about)
    if is_paused:
        _record_event(gate, EventKind.PAUSE, PAUSED, NONE, **about)
    _record_event(gate, EventKind.BREAKER, state, gate.state, **about)
    return gate


@retry_conflicts
@short_transaction()
def _override(who: Who, state: BreakerState, *, by: str, reason: str, lasting: timedelta | None) -> Gate:
    if not reason.strip():
        msg = "an override needs a reason"
        raise OrderError(msg, "reason")
    if lasting is not None and not timedelta() < lasting <= LONGEST:
        msg = f"an override lasts longer than 0 seconds and at most {LONGEST.days:,} days"
        raise OrderError(msg, "lasting")
    gate = _locked(who)
    now = database_time()
    _end_override_in_time(gate, now)
    before, earlier = _breaker(gate), gate.override or NONE
    until = None if lasting is None else now + lasting
    gate.override, gate.override_reason, gate.override_by = state.value, reason, by
    gate.override_until = None if until is None else until.timestamp()
    gate.save()
    _show(gate)
    admitting.log_turn(who, f"forced {state.value}", generation=gate.generation, why=reason, by=by)
    verb = "force_open" if state is BreakerState.OPEN else "force_closed"
    _record(f"breaker.{verb}", who, by, reason, before, _breaker(gate))
    _record_event(gate, EventKind.OVERRIDE, earlier, state.value, why=reason, by=by, at=now, until=until)
    return gate


def end_expired_overrides(now: float) -> None:
    """End what no longer holds by then; until the next call nobody else would show it."""
    for who in [gate.who for gate in Gate.objects.filter(override_until__lte=now).exclude(override="")]:
        _end_expired_override(who, now)


@retry_conflicts
@short_transaction()
def _end_expired_override(who: Who, now: float) -> None:
    gate = Gate.objects.select_for_update().get(**who._asdict())
    override = gate.override
    if _end_override_in_time(gate, moment(now)):
        gate.save()
        shown = ProviderHealthState.objects.filter(**who._asdict(), breaker_state=override)
        shown.exclude(breaker_state=gate.state).update(breaker_state=gate.state, updated_at=Now())


def _end_override_in_time(gate: Gate, now: datetime) -> bool:
    """End an override whose time is over, and record when that was; whether there was one."""
    if not gate.override or gate.override_at(now):
        return False
    at = moment(gate.override_until or 0.0)
    _record_event(gate, EventKind.OVERRIDE, gate.override, NONE, why=EXPIRED, by="", at=at)
    gate.override = gate.override_reason = gate.override_by = ""
    gate.override_until = None
    return True


def _show(gate: Gate) -> None:
    """Show an override in the visible table before any call is settled under it."""
    shown = {"breaker_state": gate.override or gate.state, "consecutive_failures": gate.consecutive_failures}
    named = gate.who._asdict()
    is_there = ProviderHealthState.objects.filter(**named).update(**shown, updated_at=Now())
    if gate.override and not is_there:
        ProviderHealthState.objects.create(**named, **shown)


def _locked(who: Who) -> Gate:
    for field, name in who._asdict().items():
        if not 0 < len(name.strip()) <= NAME or not is_storable(name):
            msg = f"name a tenant, a provider and a capability, each with 1 to {NAME} characters"
            raise OrderError(msg, field)
    if who.tenant_id.startswith(EVERY) != (who.capability == EVERY):
        msg = "an account is named by * (and its name, if it has one) and has the capability *: '*' PROVIDER '*'"
        raise OrderError(msg, "capability")
    rows = Gate.objects.select_for_update().filter(**who._asdict())
    gate = rows.first()
    if gate is None:
        (admitting.make_account_gate if who.is_account else admitting.make_gate)(who)
        gate = rows.get()
    return gate


def _quota(gate: Gate) -> dict[str, Any] | None:
    if gate.quota_limit is None:
        return None
    return {"limit": gate.quota_limit, "window": gate.quota_window, "used": gate.used}


def _breaker(gate: Gate) -> dict[str, Any]:
    until = None if gate.override_until is None else moment(gate.override_until).isoformat()
    override = {"override": gate.override, "until": until} if gate.override else {}
    return {"state": gate.state, "generation": gate.generation, **override}


def _record(action: str, who: Who, by: str, reason: str, before: Any, after: Any) -> None:
    audit.record(actor=by, action=action, target=who.title[:300], reason=reason, before=before, after=after)


def _record_quota(gate: Gate, before: dict[str, Any] | None, by: str, why: str) -> None:
    earlier, later = (f"{one['limit']} in {one['window']:g} s" if one else NONE for one in (before, _quota(gate)))
    if earlier != later:
        _record_event(gate, EventKind.QUOTA, earlier, later, why=why, by=by, at=database_time())


def _record_event(gate: Gate, kind: EventKind, from_state: str, to_state: str, *, why: str, **about: Any) -> None:
    """Write an event with the change, and tell it after the commit."""
    about |= {"from_state": from_state, "to_state": to_state, "why": why[:LONGEST_REASON]}
    notice = ProviderEventNotice(**gate.who._asdict(), kind=kind, generation=gate.generation, **about)
    ProviderEvent.objects.create(**asdict(notice))
    events.tell([notice])
