"""Passing the gate: admit, reserve. Breaker and quota are decided together, in one statement on one row."""

import json
from contextlib import suppress
from typing import Any

import structlog

from ergon_site.access.database.calls import retry_conflicts
from providers.core.breaker import BreakerPolicy, Permit
from providers.core.calling import REFUSALS
from providers.core.exchange import Who
from providers.core.gate import Admission, Asked, Decision
from providers.core.request import refuse_cost, refuse_mistakes
from providers.database import sql, statements

log = structlog.get_logger("ergon.providers")


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
    asked = Asked(BreakerPolicy(), cost)
    admission = _decide(who, asked, given_for(who, asked) | {"half_open_max_calls": 0})
    show_quota(who, is_exhausted=admission.decision is Decision.QUOTA)
    if admission.decision in REFUSALS:
        kind, _ = REFUSALS[admission.decision]
        raise kind(retry_after=admission.retry_after, never_left=True)
    return admission


def make_gate(who: Who) -> None:
    """Make the gate of a capability, unless it is there."""
    sql.rows(statements.new_gate(sql.dialect()), named(who))


def show_quota(who: Who, *, is_exhausted: bool = False, since: float | None = None) -> None:
    """Bring the visible state of the present window up to date, and of the one before if that began then."""
    upsert = statements.quota(sql.dialect(), is_refusal=True).format(gate=f"({statements.PLAIN_GATE}) AS g")
    sql.rows(upsert, {**named(who), "reserved_in": since, "is_exhausted": int(is_exhausted)})


def log_turn(who: Who, state: str, *, generation: int, why: str, by: str | None = None) -> None:
    """Log that a breaker has changed its state, in one line."""
    log.warning("breaker changed", **who._asdict(), state=state, generation=generation, why=why, by=by)


def _decide(who: Who, asked: Asked, given: dict[str, Any]) -> Admission:
    row = _pass(who, given)
    _, generation, *_, ended_window, turned = row
    if ended_window is not None:
        # What was reserved in it is known now, whenever its calls end. Who was admitted is, whether this works or not.
        with suppress(*sql.LOST), sql.lost_connections_closed():
            show_quota(who, since=ended_window)
    if turned is not None:
        log_turn(who, turned, generation=generation, why="the cooldown is over")
    return admission_in(row, asked)


@retry_conflicts
def _pass(who: Who, given: dict[str, Any]) -> sql.Row:
    dialect = sql.dialect()
    found = sql.rows_again(statements.passing(dialect), given)
    found = found or sql.rows_again(statements.admission(dialect), given)
    if not found:
        make_gate(who)
        found = sql.rows(statements.admission(dialect), given)
    return found[0]


def given_for(who: Who, asked: Asked) -> dict[str, Any]:
    return {
        **named(who),
        "cost": asked.cost,
        "half_open_max_calls": asked.breaker.half_open_max_calls,
        "probe_lease": asked.probe_lease,
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
        return Admission(decision, permit) if limit is None else Admission(decision, permit, start, asked.cost)
    return Admission(decision, retry_after=_wait(decision, *_read(refusal)))


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
