"""The statement that brings the visible tables up to date with several gates, on PostgreSQL: health, rates, quotas."""

from functools import cache

from ergon_site.access.database.parameters import NAMED
from providers.core.histogram import GROWTH, HOUR, P95, SMALLEST
from providers.database import statements
from providers.database.dialects import POSTGRESQL
from providers.database.group_settlement import records

# Of each gate: its name, and the window that one of its calls was reserved in.
COLUMNS = {**dict.fromkeys(("tenant", "provider", "capability"), "text"), "reserved_in": "double precision"}
# Held as settlements hold them, and in their order, so that no later settlement is overwritten. All of it is in the
# gates and minutes as well: it need not wait for the disk.
LOCK = f"""
SELECT p.*, w.reserved_in, {POSTGRESQL.clock} AS now
FROM (SELECT r.*, set_config('synchronous_commit', 'off', true) FROM {records("gates", COLUMNS)}
  ORDER BY tenant, provider, capability) AS w,
LATERAL (
  SELECT * FROM provider_gates AS p WHERE p.tenant_id = w.tenant AND p.provider_name = w.provider
    AND p.capability = w.capability LIMIT 1 FOR UPDATE) AS p
"""
# Of what is settled when the statement begins, as `histogram.rates_of` computes them.
RATED = f"""
SELECT g.*, t.settled, t.attempts, t.successes / NULLIF(t.attempts, 0) AS success,
  t.successful_executions / NULLIF(t.executions, 0) AS execution,
  (SELECT CAST(round(CAST({SMALLEST} * power({GROWTH}, bucket - 0.5) AS numeric), 3) AS double precision)
    FROM (SELECT CAST(key AS bigint) AS bucket, sum(CAST(value AS integer)) OVER (ORDER BY CAST(key AS bigint)) AS seen
      FROM unnest(t.histograms) AS one (buckets), jsonb_each_text(one.buckets)) AS ranked
    WHERE seen >= GREATEST(1, ceil({P95} * t.attempts - 1e-9)) ORDER BY bucket LIMIT 1) AS p95
FROM l AS g, LATERAL (
  SELECT COALESCE(sum(m.attempts), 0) AS attempts,
    CAST(COALESCE(sum(m.successes), 0) AS double precision) AS successes,
    COALESCE(sum(m.executions), 0) AS executions,
    CAST(COALESCE(sum(m.successful_executions), 0) AS double precision) AS successful_executions,
    array_agg(m.buckets) AS histograms,
    (SELECT settlements FROM provider_gates AS o WHERE o.id = g.id) AS settled
  FROM provider_minutes AS m
  WHERE m.gate_id = g.id AND m.minute > CAST(floor(g.now / 60) AS bigint) - {HOUR}) AS t
"""
RATES = {
    "success_rate_1h": "g.success",
    "execution_rate_1h": "g.execution",
    "p95_latency_ms_1h": "g.p95",
    "attempts_1h": "g.attempts",
    "rated_at": "g.now",
    "rated_settlement": "g.settled",
}
KEPT_RATES = ", ".join(
    f"{name} = CASE WHEN h.rated_settlement <= excluded.rated_settlement THEN excluded.{name} ELSE h.{name} END"
    for name in RATES
)
HEALTH = f"""
INSERT INTO provider_health_states AS h (tenant_id, provider_name, capability, breaker_state, consecutive_failures,
  last_success_at, updated_at, {", ".join(RATES)})
SELECT g.tenant_id, g.provider_name, g.capability, {statements.shown_state("g.now")}, g.consecutive_failures,
  {POSTGRESQL.moment.format("g.succeeded_at")}, {POSTGRESQL.moment.format("g.now")}, {", ".join(RATES.values())}
FROM ({RATED}) AS g
ON CONFLICT (tenant_id, provider_name, capability) DO UPDATE SET breaker_state = excluded.breaker_state,
  consecutive_failures = excluded.consecutive_failures,
  last_success_at = COALESCE(excluded.last_success_at, h.last_success_at), updated_at = excluded.updated_at,
  {KEPT_RATES}
"""


@cache
def show() -> str:
    """Each gate is given by its name, with the window that a call was reserved in."""
    quota = statements.quota(POSTGRESQL, is_refusal=False).format(gate="l AS g")
    quota = NAMED.sub(lambda found: f"g.{found[1]}", quota)
    return f"WITH l AS ({LOCK}), q AS ({quota}) {HEALTH}"
