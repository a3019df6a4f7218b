"""The statements that write calls down, and those of the keys of requests: one text for both databases."""

from functools import cache

from providers.core.histogram import HOUR
from providers.database.dialects import Dialect

# In all of them, {gate} is the gate's row as it has just become.
METRIC = """
INSERT INTO provider_execution_metrics (tenant_id, provider_name, capability, task_execution_id, operation,
  idempotency_key, correlation_id, attempt_number, max_attempts, duration_ms, timeout_budget_ms, outcome, reason_code,
  retryable, http_status, retry_suppressed, policy_version, call_id, source, transaction_id)
SELECT g.tenant_id, g.provider_name, g.capability, CAST(%(task_execution)s AS bigint), CAST(%(operation)s AS text),
  CAST(%(key)s AS text), CAST(%(correlation)s AS text), CAST(%(attempt)s AS integer), CAST(%(max_attempts)s AS integer),
  CAST(%(duration_ms)s AS double precision), CAST(%(budget_ms)s AS double precision),
  CASE WHEN {is_retried} OR {is_returned} THEN 'retry' ELSE CAST(%(outcome)s AS text) END, CAST(%(reason)s AS text),
  CAST(%(retryable)s AS boolean), CAST(%(http_status)s AS smallint), {is_suppressed},
  CAST(%(policy_version)s AS integer), CAST(%(call)s AS text), CAST(%(source)s AS text),
  CAST(%(called_for)s AS text)
FROM {gate}
"""


MINUTES = f"""
SELECT g.settlements, m.attempts, m.successes, m.executions, m.successful_executions, m.buckets
FROM provider_gates g LEFT JOIN provider_minutes m
  ON m.gate_id = g.id AND m.minute > CAST(floor({{clock}} / 60) AS bigint) - {HOUR}
WHERE g.id = %(gate)s
"""
RATES = """
UPDATE provider_health_states SET success_rate_1h = CAST(%(success)s AS double precision),
  p95_latency_ms_1h = CAST(%(p95)s AS double precision), execution_rate_1h = CAST(%(execution)s AS double precision),
  attempts_1h = CAST(%(attempts)s AS bigint), rated_at = {clock}, rated_settlement = CAST(%(settlement)s AS bigint)
WHERE tenant_id = CAST(%(tenant)s AS text) AND provider_name = CAST(%(provider)s AS text)
  AND capability = CAST(%(capability)s AS text) AND rated_settlement <= CAST(%(settlement)s AS bigint)
"""


def minute(dialect: Dialect) -> str:
    """The statement that counts an attempt in its minute."""
    d = dialect
    return f"""
INSERT INTO provider_minutes AS m (gate_id, minute, attempts, successes, executions, successful_executions, buckets)
SELECT g.id, CAST(floor(g.decided_at / 60) AS bigint), 1, CAST(%(is_success)s AS bigint),
  CASE WHEN g.decision = 'retry' THEN 0 ELSE 1 END, CAST(%(is_success)s AS bigint), {d.first_bucket}
FROM {{gate}} WHERE true
ON CONFLICT (gate_id, minute) DO UPDATE SET attempts = m.attempts + 1, successes = m.successes + excluded.successes,
  executions = m.executions + excluded.executions,
  successful_executions = m.successful_executions + excluded.successful_executions, buckets = {d.next_bucket}
"""


def refused_minute(dialect: Dialect) -> str:
    """The statement that counts a refusal in its minute; after attempts it ends an execution."""
    return f"""
INSERT INTO provider_minutes AS m (gate_id, minute, executions, refusals)
SELECT g.id, CAST(floor({dialect.clock} / 60) AS bigint),
  CAST(%(ends_execution)s AS bigint), 1 FROM {{gate}} WHERE true
ON CONFLICT (gate_id, minute) DO UPDATE SET refusals = m.refusals + 1, executions = m.executions + excluded.executions
"""


def stand_in_minute(dialect: Dialect, column: str) -> str:
    """The statement that counts an answer that is not the provider's: no rate changes by it."""
    return f"""
INSERT INTO provider_minutes AS m (gate_id, minute, {column})
SELECT g.id, CAST(floor({dialect.clock} / 60) AS bigint), 1 FROM {{gate}} WHERE true
ON CONFLICT (gate_id, minute) DO UPDATE SET {column} = m.{column} + 1
"""


def health(dialect: Dialect, at: str = "g.decided_at") -> str:
    """The statement that updates the visible breaker state, overrides included, and the last error and success."""
    now = dialect.moment.format(at)
    return f"""
INSERT INTO provider_health_states AS h (tenant_id, provider_name, capability, breaker_state, consecutive_failures,
  last_error_code, last_error_at, last_success_at, updated_at)
SELECT g.tenant_id, g.provider_name, g.capability, {shown_state(at)}, g.consecutive_failures,
  CAST(%(reason)s AS text), CASE WHEN CAST(%(reason)s AS text) IS NOT NULL THEN {now} END,
  CASE WHEN CAST(%(is_success)s AS bigint) = 1 THEN {now} END, {now}
FROM {{gate}} WHERE true
ON CONFLICT (tenant_id, provider_name, capability) DO UPDATE SET breaker_state = excluded.breaker_state,
  consecutive_failures = excluded.consecutive_failures,
  last_error_code = COALESCE(excluded.last_error_code, h.last_error_code),
  last_error_at = COALESCE(excluded.last_error_at, h.last_error_at),
  last_success_at = COALESCE(excluded.last_success_at, h.last_success_at), updated_at = excluded.updated_at
"""


def shown_state(at: str) -> str:
    """The state of a gate g as people see it: an override, while it holds, or the breaker's."""
    return f"""CASE WHEN g.override <> '' AND (g.override_until IS NULL OR g.override_until > {at}) THEN g.override
    ELSE g.state END"""


def quota(dialect: Dialect, *, is_refusal: bool, part: str = "") -> str:
    """The visible state of the present window, and of the one before if the call was reserved in that."""
    start, end = dialect.moment.format("w.window_start"), dialect.moment.format("w.window_end")
    now = dialect.moment.format(dialect.clock)
    exhausted = f"CASE WHEN CAST(%({part}is_exhausted)s AS bigint) = 1 THEN {now} END" if is_refusal else "NULL"
    return f"""
INSERT INTO provider_quota_states AS q (tenant_id, provider_name, capability, window_start, window_end, limit_count,
  used_count, last_exhausted_at, updated_at)
SELECT w.tenant_id, w.provider_name, w.capability, {start}, {end}, w.quota_limit, w.used,
  {exhausted}, {now}
FROM (
  SELECT g.tenant_id, g.provider_name, g.capability, g.window_start, g.window_end, g.quota_limit, g.used FROM {{gate}}
  WHERE g.quota_limit IS NOT NULL
  UNION ALL
  SELECT g.tenant_id, g.provider_name, g.capability, g.previous_start, g.previous_start + g.quota_window,
    g.quota_limit, g.previous_used FROM {{gate}}
  WHERE g.quota_limit IS NOT NULL AND g.previous_start = CAST(%({part}reserved_in)s AS double precision)) AS w
WHERE true
ON CONFLICT (tenant_id, provider_name, capability, window_start) DO UPDATE SET limit_count = excluded.limit_count,
  used_count = excluded.used_count, window_end = excluded.window_end,
  last_exhausted_at = COALESCE(excluded.last_exhausted_at, q.last_exhausted_at), updated_at = excluded.updated_at
"""


@cache
def claim(dialect: Dialect) -> str:
    """Take a key that is free, whose lease has lapsed, or whose request failed; whose it is then shows by its token."""
    d = dialect
    taken = f"""c.lease_until <= {d.clock} AND (c.state <> 'claimed' OR c.fingerprint = excluded.fingerprint)
      OR c.state = 'failed' AND c.fingerprint = excluded.fingerprint"""
    kept = ", ".join(
        f"{name} = CASE WHEN {taken} THEN excluded.{name} ELSE c.{name} END"
        for name in ("operation", "fingerprint", "state", "token", "lease_until", "answer", "finished_at")
    )
    return f"""
INSERT INTO provider_idempotency_claims AS c (tenant_id, provider_name, capability, key, operation, fingerprint, state,
  token, lease_until, answer, finished_at)
VALUES (%(tenant)s, %(provider)s, %(capability)s, %(key)s, %(operation)s, %(fingerprint)s, 'claimed', %(token)s,
  {d.clock} + CAST(%(lease)s AS double precision), NULL, NULL)
ON CONFLICT (tenant_id, provider_name, capability, key) DO UPDATE SET {kept}
RETURNING token, fingerprint, state, answer, lease_until - {d.clock}
"""


def claim_end(dialect: Dialect) -> str:
    """The statement that ends a claim; a request that is tried again stays claimed, for longer."""
    d = dialect
    return f"""
UPDATE provider_idempotency_claims SET
  state = CASE WHEN {{is_retried}} THEN 'claimed' ELSE CAST(%(claim_state)s AS text) END,
  answer = CAST(%(answer)s AS text),
  finished_at = CASE WHEN {{is_retried}} THEN NULL ELSE {d.moment.format(d.clock)} END,
  lease_until = {d.clock} + CASE WHEN {{is_retried}} THEN CAST(%(lease)s AS double precision)
    ELSE CAST(%(replay_for)s AS double precision) END
FROM {{gate}}
WHERE provider_idempotency_claims.tenant_id = g.tenant_id
  AND provider_idempotency_claims.provider_name = g.provider_name
  AND provider_idempotency_claims.capability = g.capability
  AND provider_idempotency_claims.key = CAST(%(key)s AS text)
  AND provider_idempotency_claims.token = CAST(%(token)s AS text)
"""
