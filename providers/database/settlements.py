"""The statements that settle, refuse and stand in, of their parts: what a call has to change is what they hold."""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from ergon_site.access.database.parameters import NAMED
from providers.core.exchange import Source
from providers.database import gates, statements
from providers.database.dialects import Dialect

SETTLED = "SELECT g.decision, g.id, g.decided_at, h.rated_at, h.attempts_1h, {marks} FROM {gate}, {health}"
# Of a usual one, health is not known.
USUALLY_SETTLED = "SELECT g.decision, g.id, g.decided_at, NULL, NULL FROM {gate}"
RETURNED_HEALTH = "RETURNING rated_at, attempts_1h"
NO_RETRY = dict.fromkeys(("is_retried", "is_suppressed", "is_returned"), "false")
# What is the same of all usual settlements, so that it need not be given.
CONSTANTS = {
    "outcome": "'success'",
    "reason": "NULL",
    "retryable": "false",
    "source": "'provider'",
    "claim_state": "'succeeded'",
    "lease": "0",
    "is_success": "1",
}
# The column of a minute for each answer that is not the provider's.
COUNTED_AS = {Source.CACHE: "cache_hits", Source.STALE: "stale_answers", Source.FALLBACK: "fallbacks"}
HEALTH = """(SELECT * FROM provider_health_states WHERE tenant_id = %(tenant)s AND provider_name = %(provider)s
  AND capability = %(capability)s) AS h"""


class Kind(NamedTuple):
    """What a settlement or a refusal has to change."""

    is_refusal: bool = False
    is_limited: bool = False
    is_guarded: bool = False
    is_shared: bool = False
    is_usual: bool = False  # it leaves no marks; where it might, it settles nothing. What people see follows later
    has_rates: bool = False
    has_place: bool = False  # in the fleet's bulkhead


@cache
def texts_of(dialect: Dialect, kind: Kind) -> list[str]:
    """One statement of all parts on PostgreSQL; elsewhere one after the other. The last returns what is seen."""
    changed, health, minute, seen = (_refusal if kind.is_refusal else _settlement)(dialect, kind)
    words = {"is_retried": "g.decision = 'retry'", "is_suppressed": "g.decision = 'suppressed'"}
    words["is_returned"] = "(g.decision = 'shut' AND CAST(%(returns_if_shut)s AS bigint) = 1)"
    words = (NO_RETRY if kind.is_refusal or kind.is_usual else words) | _tables(dialect)
    parts = {"m": statements.METRIC, "n": minute}
    if not kind.is_usual:
        parts["h"] = f"{health} {RETURNED_HEALTH}"
    if kind.is_limited and not kind.is_usual:
        parts["q"] = statements.quota(dialect, is_refusal=kind.is_refusal)
    if kind.is_guarded:
        parts["c"] = statements.claim_end(dialect)
    # What is said of gates is formatted already: its JSON has braces.
    texts = changed | {name: part.format(**words) for name, part in parts.items()}
    has_events = dialect.is_one and not kind.is_refusal and not kind.is_usual
    if has_events:
        texts["e"] = gates.settlement_events(dialect, has_rates=kind.has_rates).format(**words)
    if kind.is_shared and not kind.is_usual:
        of_account = words | {"gate": words["account_as_gate"]}
        texts["ha"] = health.format(**of_account)
        if kind.is_limited:
            texts["qa"] = statements.quota(dialect, is_refusal=kind.is_refusal, part="account_").format(**of_account)
        if has_events:
            texts["ea"] = gates.settlement_events(dialect, has_rates=kind.has_rates).format(**of_account)
    if kind.is_usual:
        texts = {name: NAMED.sub(lambda found: CONSTANTS.get(found[1], found[0]), text) for name, text in texts.items()}
    return _joined(dialect, texts, seen.format(**words))


def _settlement(dialect: Dialect, kind: Kind) -> tuple[dict[str, str], str, str, str]:
    """The gates as they become, the parts on health and minutes, and what is seen."""
    health, minute = statements.health(dialect), statements.minute(dialect)
    if kind.is_usual:
        changed = gates.usual_settlement(dialect, is_shared=kind.is_shared, has_place=kind.has_place)
        return changed, health, minute, USUALLY_SETTLED
    has_rates = {"has_rates": kind.has_rates}
    terms = has_rates | {"has_place": kind.has_place}
    marks = gates.marks(dialect, "g", **has_rates)
    if kind.is_shared:
        changed = gates.shared_settlement(dialect, **terms)
        marks += f", {gates.marks(dialect, 'a', **has_rates)}"
    else:
        changed = {"g": gates.gate_settlement(dialect, **terms)}
    seen = f"{SETTLED}, {{account}}" if kind.is_shared else SETTLED
    return changed, health, minute, seen.replace("{marks}", marks)


def _refusal(dialect: Dialect, kind: Kind) -> tuple[dict[str, str], str, str, str]:
    """The same of an attempt that was not made."""
    changed = {"g": gates.refund(dialect) if kind.is_limited else gates.PLAIN_GATE}
    if kind.is_shared:
        changed = gates.shared_refund(dialect)
    health = statements.health(dialect, at=dialect.clock)
    return changed, health, statements.refused_minute(dialect), "SELECT g.id FROM {gate}"


@cache
def stand_in_texts(dialect: Dialect, source: Source, is_claimed: bool) -> list[str]:  # noqa: FBT001 (of a cache)
    parts = {"m": statements.METRIC, "n": statements.stand_in_minute(dialect, COUNTED_AS[source])}
    if is_claimed:
        parts["c"] = statements.claim_end(dialect)
    words = NO_RETRY | _tables(dialect)
    texts = {"g": gates.PLAIN_GATE, **{name: part.format(**words) for name, part in parts.items()}}
    return _joined(dialect, texts, "SELECT g.id FROM {gate}".format(**words))


def _joined(dialect: Dialect, texts: Mapping[str, str], seen: str) -> list[str]:
    if dialect.is_one:
        return [f"WITH {', '.join(f'{name} AS ({text})' for name, text in texts.items())} {seen}"]
    return [*texts.values(), seen]


def _tables(dialect: Dialect) -> dict[str, str]:
    """How the parts name the gates as they have just become, and the health."""
    if dialect.is_one:
        return {"gate": "g", "health": "h", "account": "a", "account_as_gate": "a AS g"}
    account = f"({gates.ACCOUNT_GATE}) AS"
    tables = {"gate": f"({gates.PLAIN_GATE}) AS g", "account": f"{account} a", "account_as_gate": f"{account} g"}
    return {**tables, "health": HEALTH}
