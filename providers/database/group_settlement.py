"""The statements that settle several usual calls at once, of one gate or of many, and rate them, on PostgreSQL.

What the statements for one call are given as parameters is here a column of each call's row.
"""

from collections.abc import Mapping
from functools import cache

from ergon_site.access.database.parameters import NAMED
from providers.core.gate import SET_BACK
from providers.database import statements
from providers.database.dialects import POSTGRESQL
from providers.database.settlements import NO_RETRY, RETURNED_HEALTH

# Of each call; `place` tells them apart.
COLUMNS = {
    "place": "bigint",
    **dict.fromkeys(("tenant", "provider", "capability", "operation", "key", "correlation", "call"), "text"),
    "called_for": "text",
    **dict.fromkeys(("task_execution", "attempt", "max_attempts", "http_status", "policy_version"), "bigint"),
    **dict.fromkeys(("duration_ms", "budget_ms", "reserved_in", "replay_for"), "double precision"),
    **dict.fromkeys(("bucket", "token", "answer"), "text"),
    "generation": "bigint",
    **dict.fromkeys(("capacity", "earned"), "double precision"),
}
RATE_COLUMNS = {
    **dict.fromkeys(("tenant", "provider", "capability"), "text"),
    **dict.fromkeys(("success", "execution", "p95"), "double precision"),
    **dict.fromkeys(("attempts", "settlement"), "bigint"),
}
# All calls of a gate have the same retry budget, and were reserved in the same window.
BY_GATE = """
SELECT tenant, provider, capability, count(*) AS calls, sum(earned) AS earned, min(capacity) AS capacity,
  min(reserved_in) AS reserved_in, array_agg(generation) AS generations FROM r GROUP BY tenant, provider, capability
"""
# In one order, so that no two processes wait for each other. Each by its name: a join might read the whole table.
LOCK = """
SELECT p.id, w.* FROM (SELECT * FROM w ORDER BY tenant, provider, capability) AS w, LATERAL (
  SELECT id FROM provider_gates AS p WHERE p.tenant_id = w.tenant AND p.provider_name = w.provider
    AND p.capability = w.capability LIMIT 1 FOR UPDATE) AS p
"""
# Each as `gates.usual_settlement` settles one: where a success could change the state, nothing is settled.
SETTLE = f"""
UPDATE provider_gates SET (retry_tokens, consecutive_failures, settlements) = (
    SELECT LEAST(l.capacity, COALESCE(retry_tokens, l.capacity) + l.earned),
      CASE WHEN state = 'closed' AND generation = ANY (l.generations) THEN 0 ELSE consecutive_failures END,
      settlements + l.calls
    FROM l WHERE l.id = provider_gates.id),
  decision = 'ended', decided_at = {POSTGRESQL.clock}, turned_from = '', held_from = ''
WHERE id = ANY (ARRAY(SELECT id FROM l)) AND state <> 'half_open'
  AND COALESCE(decided_at, 0) <= {POSTGRESQL.clock} + {SET_BACK}
RETURNING *
"""
CALLS = """(
  SELECT r.*, g.tenant_id, g.provider_name, 'success' AS outcome, CAST(NULL AS text) AS reason, false AS retryable,
    'provider' AS source, 'succeeded' AS claim_state, 0.0 AS lease
  FROM r JOIN g ON g.tenant_id = r.tenant AND g.provider_name = r.provider AND g.capability = r.capability
  ORDER BY r.place) AS g"""
GATES = """(
  SELECT g.*, l.calls, l.reserved_in, CAST(NULL AS text) AS reason, 1 AS is_success{0}
  FROM g JOIN l ON l.id = g.id {1} ORDER BY g.tenant_id, g.provider_name, g.capability) AS g"""
ALL_GATES, LIMITED_GATES = GATES.format("", ""), GATES.format("", "WHERE l.reserved_in IS NOT NULL")
RATED_GATES = GATES.format(f", {statements.NEW_RATES}", "LEFT JOIN rates ON rates.gate_id = g.id")
FRESH = """
SELECT l.id AS gate_id, l.calls, b.buckets FROM l JOIN (
  SELECT tenant, provider, capability, jsonb_object_agg(bucket, calls) AS buckets
  FROM (SELECT tenant, provider, capability, bucket, count(*) AS calls FROM r GROUP BY 1, 2, 3, 4) AS counted
  GROUP BY 1, 2, 3) AS b USING (tenant, provider, capability)
"""
MINUTE = f"""
INSERT INTO provider_minutes AS m (gate_id, minute, attempts, successes, executions, successful_executions, buckets)
SELECT g.id, CAST(floor(g.decided_at / 60) AS bigint), g.calls, g.calls, g.calls, g.calls, b.buckets
FROM {ALL_GATES} JOIN fresh AS b ON b.gate_id = g.id
ON CONFLICT (gate_id, minute) DO UPDATE SET attempts = m.attempts + excluded.attempts,
  successes = m.successes + excluded.successes, executions = m.executions + excluded.executions,
  successful_executions = m.successful_executions + excluded.successful_executions,
  buckets = m.buckets || (
    SELECT jsonb_object_agg(key, CAST(value AS bigint) + COALESCE(CAST(m.buckets->>key AS bigint), 0))
    FROM jsonb_each_text(excluded.buckets))
"""
SEEN = """
SELECT r.place, g.id, g.decided_at, h.rated_at, h.attempts_1h, h.rated_settlement = g.settlements FROM r
  JOIN g ON g.tenant_id = r.tenant AND g.provider_name = r.provider AND g.capability = r.capability
  JOIN h ON h.tenant_id = r.tenant AND h.provider_name = r.provider AND h.capability = r.capability
"""


@cache
def group_settlement(*, is_limited: bool, is_guarded: bool, has_new_rates: bool) -> str:
    """Returns what is seen of each call that it has settled."""
    returned = f"{RETURNED_HEALTH}, tenant_id, provider_name, capability"
    health = f"{statements.health(POSTGRESQL, has_new_rates=has_new_rates)} {returned}"
    parts = {
        "r": f"SELECT * FROM {records('rows', COLUMNS)}",
        "w": BY_GATE,
        "l": LOCK,
        "g": SETTLE,
        "fresh": FRESH,
        "m": _of_rows(statements.METRIC.format(gate=CALLS, **NO_RETRY)),
        "n": MINUTE,
        **({"rates": statements.RATES_WITH_NEW} if has_new_rates else {}),
        "h": _of_rows(health.format(gate=RATED_GATES if has_new_rates else ALL_GATES)),
    }
    if is_limited:
        parts["q"] = _of_rows(statements.quota(POSTGRESQL, is_refusal=False).format(gate=LIMITED_GATES))
    if is_guarded:
        parts["c"] = _of_rows(statements.claim_end(POSTGRESQL).format(gate=CALLS, **NO_RETRY))
    return f"WITH {', '.join(f'{name} AS ({text})' for name, text in parts.items())} {SEEN}"


def _of_rows(statement: str) -> str:
    return NAMED.sub(r"g.\1", statement)


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


def records(given: str, columns: Mapping[str, str]) -> str:
    """A table of these columns and kinds, from a list of objects that is given as JSON."""
    kinds = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    return f"json_to_recordset(CAST(%({given})s AS json)) AS r ({kinds})"
