"""The gate's statements: one text for both databases, which differ in the clock and in what they do with JSON.

Each decision is built in layers, from what the row holds to what it becomes, so that each rule is said once. The tests
have a model of the gate in Python, and compare the two over histories made by chance.

Where the account at a provider has a gate of its own, a call passes two: each row is decided with what the other says.
The account's row is locked first, by all.
"""

from functools import cache
from typing import NamedTuple

from providers.core.events import AVAILABLE, COOLED_DOWN, EXHAUSTED, NONE, PAUSED, USED_UP

# A pause that grows is worth an event if it has grown by so many seconds since the last one.
LONGER = 1


class Dialect(NamedTuple):
    clock: str  # seconds since 1970
    greatest: str
    least: str
    empty: str
    how_many: str  # probes whose place has not lapsed
    add: str
    drop: str
    first_bucket: str
    next_bucket: str
    listed: str  # values as a list of JSON
    moment: str  # of seconds since 1970, as a column of the visible tables keeps it
    seconds: str  # since 1970, of such a column
    is_one: bool = False  # changes of several rows can be one statement


POSTGRESQL = Dialect(
    clock="CAST(EXTRACT(epoch FROM statement_timestamp()) AS double precision)",
    greatest="GREATEST",
    least="LEAST",
    empty="CAST('{}' AS jsonb)",
    # A function, not a query of its own: that would cost something even where nothing is probed.
    how_many="jsonb_array_length(jsonb_path_query_array(probes, '$.* ? (@ > $now)', jsonb_build_object('now', now)))",
    add="probes || jsonb_build_object(CAST(admissions + 1 AS text), now + CAST(%(probe_lease)s AS double precision))",
    drop="probes - CAST(%({0}probe)s AS text)",
    first_bucket="jsonb_build_object(CAST(%(bucket)s AS text), 1)",
    next_bucket="""jsonb_set(m.buckets, ARRAY[CAST(%(bucket)s AS text)],
      to_jsonb(COALESCE(CAST(m.buckets->>CAST(%(bucket)s AS text) AS bigint), 0) + 1))""",
    listed="jsonb_build_array",
    moment="to_timestamp({0})",
    seconds="CAST(EXTRACT(epoch FROM {0}) AS double precision)",
    is_one=True,
)
SQLITE = Dialect(
    clock="((julianday('now') - 2440587.5) * 86400.0)",
    greatest="max",
    least="min",
    empty="'{}'",
    how_many="(SELECT count(*) FROM json_each(probes) WHERE value > now)",
    add="json_set(probes, '$.\"' || (admissions + 1) || '\"', now + CAST(%(probe_lease)s AS double precision))",
    drop="json_remove(probes, '$.\"' || %({0}probe)s || '\"')",
    first_bucket="json_object(CAST(%(bucket)s AS text), 1)",
    next_bucket="""json_set(m.buckets, '$.\"' || %(bucket)s || '\"',
      COALESCE(json_extract(m.buckets, '$.\"' || %(bucket)s || '\"'), 0) + 1)""",
    listed="json_array",
    # As Django writes them, so that both name a window alike.
    moment="""strftime('%%Y-%%m-%%d %%H:%%M:%%S', floor({0}), 'unixepoch') ||
      CASE WHEN round(({0} - floor({0})) * 1000000) > 0
        THEN printf('.%%06d', min(999999, round(({0} - floor({0})) * 1000000))) ELSE '' END""",
    seconds="(CAST(strftime('%%s', {0}) AS double precision) + CAST(substr({0}, 20) AS double precision))",
)

_WHO = """provider_gates.tenant_id = CAST(%(tenant)s AS text)
  AND provider_gates.provider_name = CAST(%(provider)s AS text)
  AND provider_gates.capability = CAST(%(capability)s AS text)"""
_ACCOUNT = """provider_gates.tenant_id = CAST(%(account)s AS text)
  AND provider_gates.provider_name = CAST(%(provider)s AS text) AND provider_gates.capability = '*'"""
# A gate that no account's gate stands beside.
_ALONE = f"{_WHO} AND NOT is_shared AND account = CAST(%(account)s AS text)"
_IS_SHARED = """EXISTS (SELECT 1 FROM provider_gates AS a WHERE a.tenant_id = CAST(%(account)s AS text)
  AND a.provider_name = CAST(%(provider)s AS text) AND a.capability = '*')"""
_REFUSES = "NOT IN ('admitted', 'probe')"


@cache
def new_gate(dialect: Dialect) -> str:
    """The gate of a capability; a quota that somebody wrote for the present window becomes the gate's."""
    start, end = dialect.seconds.format("q.window_start"), dialect.seconds.format("q.window_end")
    return f"""
INSERT INTO provider_gates (tenant_id, provider_name, capability, quota_limit, quota_window, window_start, window_end,
  used, account, is_shared)
SELECT w.tenant_id, w.provider_name, w.capability, q.limit_count, {end} - {start}, {start}, {end},
  COALESCE(q.used_count, 0), CAST(%(account)s AS text), w.capability <> '*' AND {_IS_SHARED}
FROM (SELECT CAST(%(tenant)s AS text) AS tenant_id, CAST(%(provider)s AS text) AS provider_name,
    CAST(%(capability)s AS text) AS capability) AS w
  LEFT JOIN provider_quota_states q ON q.tenant_id = w.tenant_id AND q.provider_name = w.provider_name
    AND q.capability = w.capability AND {start} <= {dialect.clock} AND {end} > {dialect.clock}
WHERE true ORDER BY q.window_start DESC LIMIT 1
ON CONFLICT DO NOTHING
"""


# A tenant's gate that was made for another account, or before its account had a gate.
JOIN_ACCOUNT = f"""
UPDATE provider_gates SET account = CAST(%(account)s AS text), is_shared = {_IS_SHARED} WHERE {_WHO}
"""
# All tenants' gates of an account, whose own has just been made.
SHARE_ACCOUNT = """
UPDATE provider_gates SET is_shared = true WHERE provider_name = CAST(%(provider)s AS text)
  AND account = CAST(%(account)s AS text) AND capability <> '*'
"""


@cache
def passing(dialect: Dialect) -> str:
    """The usual admission: closed, nothing in the way, enough left in this window. What it refuses is not decided yet.

    It decides alone, like `admission`, which knows every case and takes twice the time.
    """
    now = dialect.clock
    return f"""
UPDATE provider_gates SET used = used + CASE WHEN quota_limit IS NULL THEN 0 ELSE CAST(%(cost)s AS bigint) END,
  admissions = admissions + 1, decision = 'admitted', decided_at = {now}
WHERE {_ALONE} AND state = 'closed' AND (override = '' OR override_until <= {now})
  AND (cooldown_until IS NULL OR cooldown_until <= {now})
  AND (quota_limit IS NULL OR ({now} < window_end AND used + CAST(%(cost)s AS bigint) <= quota_limit))
RETURNING decision, generation, admissions, quota_limit, window_start, NULL, NULL, NULL
"""


@cache
def admission(dialect: Dialect) -> str:
    """Breaker, quota and cooldown, decided on one row. What is refused changes nothing but the window of the time."""
    decide = f"{_admit(dialect, _decided(dialect, _asked(dialect)))} WHERE {_ALONE} RETURNING"
    if not dialect.is_one:
        return f"{decide} {_admitted(dialect, 'provider_gates')}"
    events = admission_events(dialect).format(gate="g")
    return f"WITH g AS ({decide} *), e AS ({events}) SELECT {_admitted(dialect, 'g')} FROM g"


@cache
def shared_admission(dialect: Dialect) -> list[str]:
    """The same on two rows: a call passes the gates of its tenant and of its account, or spends nothing of either."""
    d = dialect
    look = _decided(d, _asked(d, "account_", "'admitted'", _ACCOUNT), is_shared=True)
    if d.is_one:
        looked, decided = "look.decision", "g.decision"
    else:
        looked, decided = f"(SELECT decision FROM {look})", f"(SELECT decision FROM provider_gates WHERE {_WHO})"
    tenant = _admit(d, _decided(d, _asked(d, "tenant_", looked), is_shared=True))
    account = _admit(d, _decided(d, _asked(d, "account_", decided), is_shared=True))
    if d.is_one:
        events = admission_events(d)
        return [
            f"""WITH look AS (SELECT decision FROM {look}),
g AS ({tenant} FROM look WHERE {_WHO} RETURNING provider_gates.*),
a AS ({account} FROM g WHERE {_ACCOUNT} RETURNING provider_gates.*),
e AS ({events.format(gate="g")}), ea AS ({events.format(gate="a AS g")})
SELECT {_admitted(d, "g")}, {_admitted(d, "a")} FROM g, a"""
        ]
    pairs = ((tenant, f"{_WHO} AND {_IS_SHARED}"), (account, f"{_ACCOUNT} AND EXISTS ({PLAIN_GATE})"))
    return [f"{update} WHERE {both} RETURNING {_admitted(d, 'provider_gates')}" for update, both in pairs]


def _asked(d: Dialect, part: str = "", elsewhere: str = "", source: str = "") -> str:
    """The row of a gate, and what a call asks of it; with another gate, what that says. A source is locked."""
    known = """state generation successes open_until probes cooldown_until quota_limit quota_window window_start
      window_end used previous_start previous_used override override_until admissions turned_at recorded_exhaustion"""
    row = f"SELECT {_columns(known)}, {d.clock} AS now, CAST(%(cost)s AS bigint) AS cost"
    if part:
        row += f", {_asks(part)}, CAST({elsewhere} AS text) AS elsewhere"
    return f"{row} {_locked(d, source)}"


def _asks(part: str) -> str:
    return ", ".join(f"CAST(%({part}{name})s AS bigint) AS {name}" for name in ("asks_breaker", "asks_pause"))


def _locked(d: Dialect, source: str) -> str:
    """The end of a row: it is that which is updated, or one that is looked at first."""
    source = f"FROM provider_gates WHERE {source} LIMIT 1" if source else "LIMIT 1"
    return f"{source} FOR UPDATE" if d.is_one and "FROM" in source else source


def _decided(d: Dialect, row: str, *, is_shared: bool = False) -> str:
    """A gate's row with its decision, in layers. One of two may be asked for less, and refuses with the other."""
    unasked, pauses, elsewhere = "", "", ""
    if is_shared:
        unasked, pauses = "WHEN asks_breaker = 0 THEN 'closed'", "AND asks_pause = 1"
        elsewhere = f"WHEN elsewhere {_REFUSES} THEN 'elsewhere'"
    return f"""(SELECT *, CASE
      WHEN quota_limit IS NOT NULL AND cost > 0 AND present_used + cost > quota_limit THEN 'quota'
      WHEN effective = 'open' THEN 'circuit'
      WHEN effective = 'half_open' AND {d.how_many} >= CAST(%(half_open_max_calls)s AS bigint) THEN 'circuit'
      WHEN now < cooldown_until {pauses} THEN 'cooling' {elsewhere}
      WHEN effective = 'half_open' THEN 'probe'
      ELSE 'admitted' END AS decision
    FROM (SELECT *,
        CASE WHEN is_over THEN {d.greatest}(begin, window_end) ELSE window_start END AS present_start,
        CASE WHEN is_over THEN begin + quota_window ELSE window_end END AS present_end,
        CASE WHEN is_over THEN 0 ELSE used END AS present_used
      FROM (SELECT *, quota_limit IS NOT NULL AND now >= window_end AS is_over,
          floor(now / quota_window) * quota_window AS begin,
          CASE WHEN override <> '' AND (override_until IS NULL OR override_until > now) THEN override {unasked}
               WHEN state = 'open' AND now >= open_until THEN 'half_open' ELSE state END AS effective
        FROM ({row}) AS row
      ) AS times) AS windows LIMIT 1) AS decided"""


def _admit(d: Dialect, decided: str) -> str:
    return f"""
UPDATE provider_gates SET (state, generation, successes, open_until, probes, window_start, window_end, used,
  previous_start, previous_used, admissions, decision, decided_at, turned_at, turned_from, held_from,
  recorded_exhaustion) = (
  SELECT CASE WHEN decision = 'probe' THEN 'half_open' ELSE state END,
    generation + CASE WHEN decision = 'probe' AND state = 'open' THEN 1 ELSE 0 END,
    CASE WHEN decision = 'probe' AND state = 'open' THEN 0 ELSE successes END,
    CASE WHEN decision = 'probe' THEN NULL ELSE open_until END,
    CASE WHEN decision = 'probe' THEN {d.add} ELSE probes END,
    present_start, present_end,
    present_used + CASE WHEN quota_limit IS NOT NULL AND decision IN ('admitted', 'probe') THEN cost ELSE 0 END,
    CASE WHEN is_over THEN window_start ELSE previous_start END, CASE WHEN is_over THEN used ELSE previous_used END,
    admissions + CASE WHEN decision IN ('admitted', 'probe') THEN 1 ELSE 0 END, decision, now,
    CASE WHEN decision = 'probe' AND state = 'open' THEN now ELSE turned_at END,
    CASE WHEN decision = 'probe' AND state = 'open' THEN state ELSE '' END,
    CASE WHEN decision = 'quota' AND COALESCE(recorded_exhaustion, 0) < present_end THEN '{AVAILABLE}' ELSE '' END,
    CASE WHEN decision = 'quota' THEN present_end ELSE recorded_exhaustion END
  FROM {decided})"""


def _admitted(d: Dialect, row: str) -> str:
    """What an admission returns of a row."""
    return f"""{row}.decision, {row}.generation, {row}.admissions, {row}.quota_limit, {row}.window_start,
  CASE WHEN {row}.decision {_REFUSES} THEN {d.listed}({row}.decided_at, {row}.window_end, {row}.open_until,
    {row}.override, {row}.override_until, {row}.cooldown_until, {row}.probes) END,
  CASE WHEN {row}.quota_limit IS NOT NULL AND {row}.used <= CAST(%(cost)s AS bigint) THEN {row}.previous_start END,
  {marks(d, row)}"""


def admission_events(dialect: Dialect) -> str:
    """The events of an admission: a breaker that is probed, a window whose first call is refused."""
    why = f"CASE WHEN g.held_from = '' THEN '{COOLED_DOWN}' ELSE '{USED_UP}' END"
    return events(dialect, why=why, until="g.window_end")


def gate_settlement(dialect: Dialect, *, is_usual: bool = False) -> str:
    """The statement that settles a call on its gate: breaker, retry budget, cooldown, refund.

    The usual one is of a success that was no probe, and settles nothing where that could change the breaker's state.
    """
    closed = " AND state <> 'half_open'" if is_usual else ""
    return f"{_settle(dialect, _turned(dialect, _returned(dialect)))} WHERE {_WHO}{closed} RETURNING *"


def shared_settlement(dialect: Dialect) -> dict[str, str]:
    """The same on two rows: whoever is shut out by the account's breaker is not tried again either."""
    d = dialect
    look = f"""SELECT CASE WHEN is_shut THEN 1 ELSE 0 END AS is_shut
      FROM {_turned(d, _returned(d, "account_", "0", _ACCOUNT), is_shared=True)}"""
    if d.is_one:
        looked, decided = "look.is_shut", "g.decision"
    else:
        looked, decided = f"({look})", f"(SELECT decision FROM provider_gates WHERE {_WHO})"
    tenant = _settle(d, _turned(d, _returned(d, "tenant_", looked), is_shared=True))
    account = _settle(d, _turned(d, _returned(d, "account_", "0"), is_shared=True), part="account_", decision=decided)
    if not d.is_one:
        return {"g": f"{tenant} WHERE {_WHO}", "a": f"{account} WHERE {_ACCOUNT}"}
    return {
        "look": look,
        "g": f"{tenant} FROM look WHERE {_WHO} RETURNING provider_gates.*",
        "a": f"{account} FROM g WHERE {_ACCOUNT} RETURNING provider_gates.*",
    }


def _returned(d: Dialect, part: str = "", elsewhere: str = "", source: str = "") -> str:
    """The row of a gate, and what a call that comes back says of it."""
    known = """state generation consecutive_failures successes open_until probes cooldown_until retry_tokens
      window_start used settlements override override_until turned_at recorded_pause"""
    own = part.removeprefix("tenant_")
    row = f"""SELECT {_columns(known)}, {d.clock} AS now,
              CAST(%(open_cooldown_seconds)s AS double precision) AS cooldown_seconds,
              provider_gates.generation = CAST(%({own}generation)s AS bigint) AS is_current,
              CAST(%({own}verdict)s AS text) AS verdict, CAST(%({own}cooldown)s AS double precision) AS cooldown,
              CAST(%(is_success)s AS bigint) AS is_success, CAST(%(capacity)s AS double precision) AS capacity"""
    if part:
        row += f", {_asks(part)}, {elsewhere} AS is_shut_elsewhere"
    return f"{row} {_locked(d, source)}"


def _turned(d: Dialect, row: str, *, is_shared: bool = False) -> str:
    """A gate's row with what a call's return makes of it, in layers, and whether the call may be tried again."""
    unasked = "WHEN asks_breaker = 0 THEN false" if is_shared else ""
    elsewhere = "OR is_shut_elsewhere = 1" if is_shared else ""
    return f"""(SELECT *, CASE
        WHEN is_success = 1 OR CAST(%(wants_retry)s AS bigint) = 0 THEN 'ended' WHEN is_shut {elsewhere} THEN 'shut'
        WHEN {d.least}(capacity, tokens) >= 1 THEN 'retry' ELSE 'suppressed' END AS decision
    FROM (SELECT *, CASE WHEN trips THEN 'open' WHEN closes THEN 'closed' ELSE state END AS next_state,
        CASE WHEN is_forced THEN override = 'open' {unasked} WHEN trips THEN now < now + cooldown_seconds
             ELSE state = 'open' AND now < open_until END AS is_shut,
        CASE WHEN cooldown IS NULL OR cooldown <= 0 THEN '' WHEN COALESCE(cooldown_until, 0) <= now THEN '{NONE}'
             WHEN now + cooldown >= COALESCE(recorded_pause, 0) + {LONGER} THEN '{PAUSED}' ELSE '' END AS paused_from
      FROM (SELECT *,
          fails AND (state = 'half_open' OR consecutive_failures + 1 >= CAST(%(failure_threshold)s AS bigint)) AS trips,
          succeeds AND state = 'half_open' AND successes + 1 >= CAST(%(success_threshold)s AS bigint) AS closes
        FROM (SELECT *, is_current AND state <> 'open' AND verdict = 'failure' AS fails,
            is_current AND state <> 'open' AND verdict = 'success' AS succeeds,
            override <> '' AND (override_until IS NULL OR override_until > now) AS is_forced,
            COALESCE(retry_tokens, capacity) AS tokens
          FROM ({row}) AS row
        ) AS facts) AS turns) AS states LIMIT 1) AS decided"""


def _settle(d: Dialect, turned: str, part: str = "", decision: str = "decision") -> str:
    """The change of a row. The retry budget is the tenant's alone; an account goes by the tenant's decision."""
    tokens = "retry_tokens"
    if not part:
        tokens = f"""CASE WHEN is_success = 1 THEN {d.least}(capacity, tokens + CAST(%(earned)s AS double precision))
         WHEN decision = 'retry' THEN {d.least}(capacity, tokens) - 1 ELSE tokens END"""
    return f"""
UPDATE provider_gates SET (state, generation, consecutive_failures, successes, open_until, probes, cooldown_until,
  retry_tokens, used, settlements, decision, decided_at, turned_at, turned_from, held_from, recorded_pause) = (
  SELECT next_state, generation + CASE WHEN trips OR closes THEN 1 ELSE 0 END,
    CASE WHEN fails THEN consecutive_failures + 1 WHEN closes OR (succeeds AND state = 'closed') THEN 0
         ELSE consecutive_failures END,
    CASE WHEN trips OR closes THEN 0 WHEN succeeds AND state = 'half_open' THEN successes + 1 ELSE successes END,
    CASE WHEN trips THEN now + cooldown_seconds WHEN closes THEN NULL ELSE open_until END,
    CASE WHEN trips OR closes THEN {d.empty}
         WHEN is_current AND CAST(%({part}probe)s AS text) IS NOT NULL THEN {d.drop.format(part)} ELSE probes END,
    CASE WHEN cooldown IS NULL THEN cooldown_until ELSE {d.greatest}(COALESCE(cooldown_until, 0), now + cooldown) END,
    {tokens},
    CASE WHEN window_start = CAST(%({part}refund_start)s AS double precision)
              AND ({decision} <> 'retry' OR CAST(%(refunds_retry)s AS bigint) = 1)
         THEN {d.greatest}(used - CAST(%({part}refund)s AS bigint), 0) ELSE used END,
    settlements + 1, {decision}, now, CASE WHEN trips OR closes THEN now ELSE turned_at END,
    CASE WHEN trips OR closes THEN state ELSE '' END, paused_from,
    CASE WHEN paused_from <> '' THEN now + cooldown ELSE recorded_pause END
  FROM {turned})"""


def refund(dialect: Dialect) -> str:
    """The reservation of a call that was not made after all."""
    return f"{_refund(dialect, '')} WHERE {_WHO} RETURNING *"


def shared_refund(dialect: Dialect) -> dict[str, str]:
    """The same on two rows."""
    account = f"{_refund(dialect, 'account_')} WHERE {_ACCOUNT} RETURNING *"
    tenant, whole = _refund(dialect, ""), f"WHERE {_WHO} RETURNING"
    return {"a": account, "g": f"{tenant} FROM a {whole} provider_gates.*" if dialect.is_one else f"{tenant} {whole} *"}


def _refund(d: Dialect, part: str) -> str:
    row = "provider_gates"
    return f"""
UPDATE provider_gates SET used = CASE WHEN {row}.window_start = CAST(%({part}refund_start)s AS double precision)
  THEN {d.greatest}({row}.used - CAST(%({part}refund)s AS bigint), 0) ELSE {row}.used END"""


# In the statements below, {gate} is the gate's row as it has just become.
def events(dialect: Dialect, *, why: str = "CAST(%(why)s AS text)", until: str = "g.cooldown_until") -> str:
    """The events that the decision has left marks of; `until` is when a pause ends, or a window."""
    moment = dialect.moment.format
    same = f"g.tenant_id, g.provider_name, g.capability, g.generation, {moment('g.decided_at')}, {why}, ''"
    return f"""
INSERT INTO provider_events (tenant_id, provider_name, capability, generation, at, why, "by", kind, from_state,
  to_state, until)
SELECT {same}, 'breaker', g.turned_from, g.state, {moment("g.open_until")} FROM {{gate}} WHERE g.turned_from <> ''
UNION ALL
SELECT {same}, CASE WHEN g.held_from = '{AVAILABLE}' THEN 'exhaustion' ELSE 'pause' END, g.held_from,
  CASE WHEN g.held_from = '{AVAILABLE}' THEN '{EXHAUSTED}' ELSE '{PAUSED}' END, {moment(until)}
FROM {{gate}} WHERE g.held_from <> ''
"""


def marks(dialect: Dialect, row: str) -> str:
    """The marks of a decision that has changed something, as `core.events.Marks` has them; NULL without any."""
    return f"""CASE WHEN {row}.turned_from <> '' OR {row}.held_from <> '' THEN {dialect.listed}({row}.decided_at,
    {row}.generation, {row}.state, {row}.turned_from, {row}.held_from, {row}.open_until,
    CASE WHEN {row}.held_from = '{AVAILABLE}' THEN {row}.window_end ELSE {row}.cooldown_until END) END"""


METRIC = """
INSERT INTO provider_execution_metrics (tenant_id, provider_name, capability, task_execution_id, operation,
  idempotency_key, correlation_id, attempt_number, max_attempts, duration_ms, timeout_budget_ms, outcome, reason_code,
  retryable, http_status, retry_suppressed, policy_version, call_id, source)
SELECT g.tenant_id, g.provider_name, g.capability, CAST(%(task_execution)s AS bigint), CAST(%(operation)s AS text),
  CAST(%(key)s AS text), CAST(%(correlation)s AS text), CAST(%(attempt)s AS integer), CAST(%(max_attempts)s AS integer),
  CAST(%(duration_ms)s AS double precision), CAST(%(budget_ms)s AS double precision),
  CASE WHEN {is_retried} OR {is_returned} THEN 'retry' ELSE CAST(%(outcome)s AS text) END, CAST(%(reason)s AS text),
  CAST(%(retryable)s AS boolean), CAST(%(http_status)s AS smallint), {is_suppressed},
  CAST(%(policy_version)s AS integer), CAST(%(call)s AS text), CAST(%(source)s AS text)
FROM {gate}
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
SELECT g.tenant_id, g.provider_name, g.capability,
  CASE WHEN g.override <> '' AND (g.override_until IS NULL OR g.override_until > {at}) THEN g.override
       ELSE g.state END, g.consecutive_failures, CAST(%(reason)s AS text),
  CASE WHEN CAST(%(reason)s AS text) IS NOT NULL THEN {now} END,
  CASE WHEN CAST(%(is_success)s AS bigint) = 1 THEN {now} END, {now}
FROM {{gate}} WHERE true
ON CONFLICT (tenant_id, provider_name, capability) DO UPDATE SET breaker_state = excluded.breaker_state,
  consecutive_failures = excluded.consecutive_failures,
  last_error_code = COALESCE(excluded.last_error_code, h.last_error_code),
  last_error_at = COALESCE(excluded.last_error_at, h.last_error_at),
  last_success_at = COALESCE(excluded.last_success_at, h.last_success_at), updated_at = excluded.updated_at
"""


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
  AND provider_idempotency_claims.capability = g.capability AND key = CAST(%(key)s AS text)
  AND token = CAST(%(token)s AS text)
"""


PLAIN_GATE = f"SELECT * FROM provider_gates WHERE {_WHO}"
ACCOUNT_GATE = f"SELECT * FROM provider_gates WHERE {_ACCOUNT}"


def _columns(names: str) -> str:
    return ", ".join(f"provider_gates.{name}" for name in names.split())
