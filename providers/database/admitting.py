"""Passing the gate: admit, reserve. Breaker and quota are decided together, in one statement on one row."""

import json
from contextlib import suppress
from typing import Any

import structlog
from django.db import connection, transaction

from ergon_site.access.database.calls import retry_conflicts, short_transaction
from providers.core.breaker import BreakerPolicy, Permit
from providers.core.calling import REFUSALS
from providers.core.events import COOLED_DOWN, USED_UP, EventKind, Marks
from providers.core.exchange import Who
from providers.core.gate import EVERY, Admission, Asked, Decision, Scope
from providers.core.limits import ROUNDED
from providers.core.request import refuse_cost, refuse_mistakes
from providers.database import events, gates, sql, statements

log = structlog.get_logger("ergon.providers")
# Of each gate, a row of so many columns is returned.
COLUMNS = 8


def admit(who: Who, asked: Asked) -> Admission:
    """Let one call pass, or say why not and for how long. What is refused spends nothing."""
    return _decide(who, asked, given_for(who, asked))


def reserve(who: Who, *, cost: int) -> Admission:
    """Use so much of the quota's present window; raises if that is spent, or if the gate is not open wide.

    Whoever only reserves never says how the call came out, and so does not probe.
    """
    sql.refuse_open_transaction()
    refuse_mistakes(who._asdict())
    refuse_cost(cost)
    known = sql.rows(gates.PLAIN_GATE.replace("*", "account", 1), named(who))
    asked = Asked(BreakerPolicy(), cost, account=known[0][0] if known else EVERY)
    admission = _decide(who, asked, given_for(who, asked) | {"half_open_max_calls": 0})
    show_quota(who, is_exhausted=admission.decision is Decision.QUOTA and not admission.is_refused_by_account)
    if admission.decision in REFUSALS:
        kind, _ = REFUSALS[admission.decision]
        raise kind(retry_after=admission.retry_after, never_left=True)
    return admission


def make_gate(who: Who, account: str = EVERY) -> None:
    """Make the gate of a capability, unless it is there."""
    sql.rows(gates.new_gate(sql.dialect()), {**named(who), "account": account})


@retry_conflicts
@short_transaction()
def make_account_gate(who: Who) -> None:
    """Make the gate of an account, unless it is there; every tenant's gate then stands beside it.

    Nobody makes a tenant's gate meanwhile, who would not see this one yet.
    """
    if sql.rows(gates.PLAIN_GATE, named(who)):
        return
    if connection.vendor == "postgresql":
        sql.rows("LOCK TABLE provider_gates IN SHARE ROW EXCLUSIVE MODE", {})
    make_gate(who, who.tenant_id)
    sql.rows(gates.SHARE_ACCOUNT, {**named(who), "account": who.tenant_id})


def show_quota(who: Who, *, is_exhausted: bool = False, since: float | None = None) -> None:
    """Bring the visible state of the present window up to date, and of the one before if that began then."""
    upsert = statements.quota(sql.dialect(), is_refusal=True).format(gate=f"({gates.PLAIN_GATE}) AS g")
    sql.rows(upsert, {**named(who), "reserved_in": since, "is_exhausted": int(is_exhausted)})


def log_turn(who: Who, state: str, *, generation: int, why: str, by: str | None = None) -> None:
    """Log that a breaker has changed its state, in one line."""
    log.warning("breaker changed", **who._asdict(), state=state, generation=generation, why=why, by=by)


def announce(who: Who, marks: Any, *, why: str) -> None:
    """Log and tell what a decision has changed, from the marks that it left."""
    notices = list(Marks(*_read(marks)).notices(who, why))
    for one in notices:
        if one.kind is EventKind.BREAKER:
            log_turn(who, one.to_state, generation=one.generation, why=why)
    events.tell(notices)


def _decide(who: Who, asked: Asked, given: dict[str, Any]) -> Admission:
    row, account = _pass(who, asked, given)
    _note(who, row)
    admission = admission_in(row, asked)
    if not account:
        return admission
    _note(Who(asked.account, who.provider_name, EVERY), account)
    return both(admission, admission_in(account, asked.of_account))


def both(tenant: Admission, account: Admission) -> Admission:
    """The answer of two gates: a refusal of either, quota first."""
    refusing = [one for one in (tenant, account) if one.decision in REFUSALS]
    if not refusing:
        return tenant._replace(account=account)
    first = min(refusing, key=lambda one: list(REFUSALS).index(one.decision))
    return first._replace(account=account if first is account else None)


def _note(who: Who, row: sql.Row) -> None:
    """Show a window that is over, and tell what has changed. Who was admitted is, whether this works or not."""
    *_, ended_window, marks = row
    if ended_window is not None:
        # What was reserved in it is known now, whenever its calls end.
        with suppress(*sql.LOST), sql.lost_connections_closed():
            show_quota(who, since=ended_window)
    if marks is not None:
        announce(who, marks, why=USED_UP if row[0] == Decision.QUOTA.value else COOLED_DOWN)


@retry_conflicts
def _pass(who: Who, asked: Asked, given: dict[str, Any]) -> tuple[sql.Row, sql.Row]:
    """What the tenant's gate returns, and what the account's does if there is one."""
    if not asked.is_shared:
        # The usual way knows no limits of our own.
        found = [] if asked.is_throttled else sql.rows_again(gates.passing(sql.dialect()), given)
        found = found or _pass_alone(asked, given)
        if found:
            return found[0], ()
    passed = _pass_both(asked, given)
    if not passed:
        _make_gates(who, asked)
        found = [] if asked.is_shared else _pass_alone(asked, given)
        passed = found[0] if found else _pass_both(asked, given)
    return passed[:COLUMNS], passed[COLUMNS:]


def _pass_alone(asked: Asked, given: dict[str, Any]) -> list[sql.Row]:
    """Decide every case on the tenant's gate, and write its events."""
    dialect = sql.dialect()
    text = gates.admission(dialect, is_throttled=asked.is_throttled)
    if dialect.is_one:
        return sql.rows_again(text, given)
    with transaction.atomic():
        found = sql.rows(text, given)
        _write_events(gates.PLAIN_GATE, found, given)
        return found


def _pass_both(asked: Asked, given: dict[str, Any]) -> sql.Row:
    """What both gates return, one after the other; nothing if there are not two."""
    dialect = sql.dialect()
    texts = gates.shared_admission(dialect, is_throttled=asked.is_throttled)
    if dialect.is_one:
        found = [] if asked.is_throttled else sql.rows_again(gates.passing(dialect, is_shared=True), given)
        found = found or sql.rows_again(texts[0], given)
        return found[0] if found else ()
    with transaction.atomic():
        tenant, account = (sql.rows(text, given) for text in texts)
        _write_events(gates.PLAIN_GATE, tenant, given)
        _write_events(gates.ACCOUNT_GATE, account, given)
        return sum([*tenant, *account], ())


def _write_events(gate: str, found: list[sql.Row], given: dict[str, Any]) -> None:
    """Elsewhere than on PostgreSQL, events are written once it is known that there are any."""
    if found and found[0][-1] is not None:
        sql.rows(gates.admission_events(sql.dialect()).format(gate=f"({gate}) AS g"), given)


@short_transaction()
def _make_gates(who: Who, asked: Asked) -> None:
    """Make the gates of a call that are not there, and put the tenant's beside its account's."""
    if asked.is_shared:
        make_account_gate(Who(asked.account, who.provider_name, EVERY))
    make_gate(who, asked.account)
    sql.rows(gates.JOIN_ACCOUNT, {**named(who), "account": asked.account})


def given_for(who: Who, asked: Asked) -> dict[str, Any]:
    return {
        **named(who),
        **asks(asked.breaker_scope, asked.pause_scope),
        "account": asked.account,
        "cost": asked.cost,
        "half_open_max_calls": asked.breaker.half_open_max_calls,
        "probe_lease": asked.probe_lease,
        **(_limits(asked) if asked.is_throttled else {}),
    }


def _limits(asked: Asked) -> dict[str, Any]:
    return {
        "max_concurrent": asked.max_concurrent,
        "call_lease": asked.call_lease,
        "token_every": asked.rate_limit.interval,
        "burst": asked.rate_limit.burst,
    }


def asks(breaker: Scope, pause: Scope) -> dict[str, int]:
    """Which of two gates is asked for what."""
    return {
        "tenant_asks_breaker": int(breaker.has_tenant),
        "tenant_asks_pause": int(pause.has_tenant),
        "account_asks_breaker": int(breaker.has_account),
        "account_asks_pause": int(pause.has_account),
    }


def named(who: Who) -> dict[str, str]:
    tenant_id, provider_name, capability = who
    return {"tenant": tenant_id, "provider": provider_name, "capability": capability}


def admission_in(row: sql.Row, asked: Asked) -> Admission:
    """The returned row, as a decision of the rules."""
    word, generation, number, limit, start, refusal, *_ = row
    decision = Decision(word)
    if decision.is_admission:
        permit = Permit(generation, str(number) if decision is Decision.PROBE else None)
        place = None if asked.max_concurrent is None else str(number)
        window_start, reserved = (None, 0) if limit is None else (start, asked.cost)
        return Admission(decision, permit, window_start, reserved, place=place)
    now, end, *about, full_at = _read(refusal)
    if decision is Decision.RATE:
        # Times that SQLite returns are rounded: a token that comes in a moment would seem to be there.
        return Admission(decision, retry_after=max(asked.rate_limit.wait(full_at, now), ROUNDED))
    if decision is Decision.BULKHEAD:
        return Admission(decision)  # when a place will be free, nobody can tell
    return Admission(decision, retry_after=_wait(decision, now, end, *about))


def _wait(decision: Decision, now: float, end: float, *about: Any) -> float | None:
    """For how long a call is refused; None if nobody can tell."""
    open_until, override, override_until, cooling, probes = about
    if decision is Decision.QUOTA:
        return end - now
    if decision is Decision.COOLING:
        return float(cooling - now)
    if override and (override_until is None or override_until > now):
        return None if override_until is None else float(override_until - now)
    if open_until is not None and now < open_until:
        return float(open_until - now)
    leases = [until for until in _read(probes).values() if until > now]
    return float(min(leases, default=now) - now)


def _read(value: Any) -> Any:
    """SQLite returns JSON as it is written."""
    return json.loads(value) if isinstance(value, str) else value
