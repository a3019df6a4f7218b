"""The statements that settle several usual calls at once, of one gate or of many, and rate them, on PostgreSQL.

What the statements for one call are given as parameters is here a column of its row, or of its gate's.
"""

from collections.abc import Mapping
from functools import cache

from ergon_site.access.database.parameters import NAMED
from providers.core.gate import SET_BACK
from providers.database import statements
from providers.database.dialects import POSTGRESQL
from providers.database.gates import SETTLED_COLUMNS
from providers.database.settlements import CONSTANTS, NO_RETRY, RETURNED_HEALTH

# Of each call, beside the number of its gate.
CALL_COLUMNS = {
    "gate": "bigint",
    **dict.fromkeys(("operation", "key", "correlation", "call", "called_for", "token", "answer"), "text"),
    **dict.fromkeys(("task_execution", "attempt", "max_attempts", "http_status", "policy_version"), "bigint"),
    **dict.fromkeys(("duration_ms", "budget_ms", "replay_for"), "double precision"),
}
# Of each gate. All calls of one have the same retry budget, and were reserved in the same window.
GATE_COLUMNS = {
    **dict.fromkeys(("gate", "calls"), "bigint"),
    **dict.fromkeys(("tenant", "provider", "capability"), "text"),
    **dict.fromkeys(("capacity", "earned", "reserved_in"), "double precision"),
    "generations": "bigint[]",
    "buckets": "jsonb",
}
RATE_COLUMNS = {
    **dict.fromkeys(("tenant", "provider", "capability"), "text"),
    **dict.fromkeys(("success", "execution", "p95"), "double precision"),
    **dict.fromkeys(("attempts", "settlement"), "bigint"),
}


def records(given: str, columns: Mapping[str, str]) -> str:
    """A table of these columns and kinds, from a list of objects that is given as JSON."""
    kinds = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    return f"json_to_recordset(CAST(%({given})s AS json)) AS r ({kinds})"


# In one order, so that no two processes wait for each other. Each by its name: a join might read the whole table.
LOCK = f"""
SELECT p.id, w.* FROM (SELECT * FROM {records("gates", GATE_COLUMNS)} ORDER BY tenant, provider, capability) AS w,
LATERAL (
  SELECT id FROM provider_gates AS p WHERE p.tenant_id = w.tenant AND p.provider_name = w.provider
    AND p.capability = w.capability LIMIT 1 FOR UPDATE) AS p
"""
# Each as `gates.usual_settlement` settles one: where a success could change the state, nothing is settled.
SETTLE = f"""
UPDATE provider_gates SET retry_tokens = LEAST(l.capacity, COALESCE(retry_tokens, l.capacity) + l.calls * l.earned),
  consecutive_failures = CASE WHEN state = 'closed' AND generation = ANY (l.generations) THEN 0
    ELSE consecutive_failures END,
  settlements = settlements + l.calls, decision = 'ended', decided_at = {POSTGRESQL.clock}, turned_from = '',
  held_from = ''
FROM l WHERE provider_gates.id = l.id AND provider_gates.id = ANY (ARRAY(SELECT id FROM l)) AND state <> 'half_open'
  AND COALESCE(decided_at, 0) <= {POSTGRESQL.clock} + {SET_BACK}
RETURNING {SETTLED_COLUMNS}, l.gate, l.calls, l.buckets, l.reserved_in
"""
CALLS = "(SELECT r.*, g.tenant_id, g.provider_name, g.capability FROM r JOIN g ON g.gate = r.gate) AS g"
ORDERED = "SELECT * FROM {0} ORDER BY g.tenant_id, g.provider_name, g.capability"
LIMITED = "(SELECT * FROM s WHERE reserved_in IS NOT NULL) AS g"
MINUTE = """
INSERT INTO provider_minutes AS m (gate_id, minute, attempts, successes, executions, successful_executions, buckets)
SELECT g.id, CAST(floor(g.decided_at / 60) AS bigint), g.calls, g.calls, g.calls, g.calls, g.buckets FROM s AS g
ON CONFLICT (gate_id, minute) DO UPDATE SET attempts = m.attempts + excluded.attempts,
  successes = m.successes + excluded.successes, executions = m.executions + excluded.executions,
  successful_executions = m.successful_executions + excluded.successful_executions,
  buckets = m.buckets || (
    SELECT jsonb_object_agg(key, CAST(value AS bigint) + COALESCE(CAST(m.buckets->>key AS bigint), 0))
    FROM jsonb_each_text(excluded.buckets))
"""
SEEN = """
SELECT g.gate, g.id, g.decided_at, h.rated_at, h.attempts_1h, h.rated_settlement = g.settlements FROM g
  JOIN h ON h.tenant_id = g.tenant_id AND h.provider_name = g.provider_name AND h.capability = g.capability
"""


@cache
def group_settlement(*, is_limited: bool, is_guarded: bool, has_new_rates: bool) -> str:
    """Returns what is seen of each gate whose calls it has settled."""
    returned = f"{RETURNED_HEALTH}, tenant_id, provider_name, capability"
    health = f"{statements.health(POSTGRESQL, has_new_rates=has_new_rates)} {returned}"
    gate = statements.rated_gate(calls="g.calls", buckets="g.buckets") if has_new_rates else "g"
    parts = {
        "r": f"SELECT * FROM {records('calls', CALL_COLUMNS)}",
        "l": LOCK,
        "g": SETTLE,
        "s": ORDERED.format(gate),
        "m": _of_rows(statements.METRIC.format(gate=CALLS, **NO_RETRY)),
        "n": MINUTE,
        "h": _of_rows(health.format(gate="s AS g")),
    }
    if is_limited:
        parts["q"] = _of_rows(statements.quota(POSTGRESQL, is_refusal=False).format(gate=LIMITED))
    if is_guarded:
        parts["c"] = _of_rows(statements.claim_end(POSTGRESQL).format(gate=CALLS, **NO_RETRY))
    return f"WITH {', '.join(f'{name} AS ({text})' for name, text in parts.items())} {SEEN}"


def _of_rows(statement: str) -> str:
    """A statement for one call, for those that the rows tell of."""
    return NAMED.sub(lambda found: CONSTANTS.get(found[1], f"g.{found[1]}"), statement)


@cache
def group_rating() -> str:
    """The new rates of several capabilities, locked in the order in which settlements lock them."""
    return f"""
WITH r AS (SELECT * FROM {records("rates", RATE_COLUMNS)})
UPDATE provider_health_states SET (success_rate_1h, p95_latency_ms_1h, execution_rate_1h, attempts_1h, rated_at,
    rated_settlement) = (
  SELECT r.success, r.p95, r.execution, r.attempts, {POSTGRESQL.clock}, r.settlement FROM r
  WHERE r.tenant = tenant_id AND r.provider = provider_name AND r.capability = provider_health_states.capability)
WHERE id = ANY (ARRAY(
  SELECT h.id FROM (SELECT * FROM r ORDER BY tenant, provider, capability) AS r, LATERAL (
    SELECT id FROM provider_health_states AS h WHERE h.tenant_id = r.tenant AND h.provider_name = r.provider
      AND h.capability = r.capability AND h.rated_settlement <= r.settlement LIMIT 1 FOR UPDATE) AS h))
"""
