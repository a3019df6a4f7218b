"""The statement that settles several usual calls at once, of one gate or of many, on PostgreSQL.

What the statement for one call is given as parameters is here a column of its row, or of its gate's.
"""

from collections.abc import Mapping
from functools import cache

from ergon_site.access.database.parameters import NAMED
from providers.core.gate import SET_BACK
from providers.database import statements
from providers.database.dialects import POSTGRESQL
from providers.database.gates import SETTLED_COLUMNS
from providers.database.settlements import CONSTANTS, NO_RETRY

# Of each call, beside the number of its gate.
CALL_COLUMNS = {
    "gate": "bigint",
    **dict.fromkeys(("operation", "key", "correlation", "call", "called_for", "token", "answer"), "text"),
    **dict.fromkeys(("task_execution", "attempt", "max_attempts", "http_status", "policy_version"), "bigint"),
    **dict.fromkeys(("duration_ms", "budget_ms", "replay_for"), "double precision"),
}
# Of each gate. All calls of one have the same retry budget.
GATE_COLUMNS = {
    **dict.fromkeys(("gate", "calls"), "bigint"),
    **dict.fromkeys(("tenant", "provider", "capability"), "text"),
    **dict.fromkeys(("capacity", "earned"), "double precision"),
    "generations": "bigint[]",
    "buckets": "jsonb",
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
  settlements = settlements + l.calls, decision = 'ended', decided_at = {POSTGRESQL.clock},
  succeeded_at = {POSTGRESQL.clock}, turned_from = '', held_from = ''
FROM l WHERE provider_gates.id = l.id AND provider_gates.id = ANY (ARRAY(SELECT id FROM l)) AND state <> 'half_open'
  AND COALESCE(decided_at, 0) <= {POSTGRESQL.clock} + {SET_BACK}
RETURNING {SETTLED_COLUMNS}, l.gate, l.calls, l.buckets
"""
CALLS = "(SELECT r.*, g.tenant_id, g.provider_name, g.capability FROM r JOIN g ON g.gate = r.gate) AS g"
MINUTE = """
INSERT INTO provider_minutes AS m (gate_id, minute, attempts, successes, executions, successful_executions, buckets)
SELECT g.id, CAST(floor(g.decided_at / 60) AS bigint), g.calls, g.calls, g.calls, g.calls, g.buckets FROM g
ON CONFLICT (gate_id, minute) DO UPDATE SET attempts = m.attempts + excluded.attempts,
  successes = m.successes + excluded.successes, executions = m.executions + excluded.executions,
  successful_executions = m.successful_executions + excluded.successful_executions,
  buckets = m.buckets || (
    SELECT jsonb_object_agg(key, CAST(value AS bigint) + COALESCE(CAST(m.buckets->>key AS bigint), 0))
    FROM jsonb_each_text(excluded.buckets))
"""


@cache
def group_settlement(*, is_guarded: bool) -> str:
    """Returns the number and the id of each gate whose calls it has settled."""
    parts = {
        "r": f"SELECT * FROM {records('calls', CALL_COLUMNS)}",
        "l": LOCK,
        "g": SETTLE,
        "m": _of_rows(statements.METRIC.format(gate=CALLS, **NO_RETRY)),
        "n": MINUTE,
    }
    if is_guarded:
        parts["c"] = _of_rows(statements.claim_end(POSTGRESQL).format(gate=CALLS, **NO_RETRY))
    return f"WITH {', '.join(f'{name} AS ({text})' for name, text in parts.items())} SELECT gate, id FROM g"


def _of_rows(statement: str) -> str:
    """A statement for one call, for those that the rows tell of."""
    return NAMED.sub(lambda found: CONSTANTS.get(found[1], f"g.{found[1]}"), statement)
