"""The gate's statements: one text for both databases.

Each decision is built in layers, from what the row holds to what it becomes, so that each rule is said once. The tests
have a model of the gate in Python, and compare the two over histories made by chance.

Where the account at a provider has a gate of its own, a call passes two: each row is decided with what the other says.
The account's row is locked first, by all.
"""

from functools import cache, partial

from providers.core.breaker import SLICES
from providers.core.events import AVAILABLE, COOLED_DOWN, EXHAUSTED, NONE, PAUSED, USED_UP, WOULD_OPEN
from providers.core.gate import SET_BACK
from providers.core.limits import ROUNDED
from providers.database.dialects import Dialect

# A pause that grows is worth an event if it has grown by so many seconds since the last one.
LONGER = 1

_WHO = """provider_gates.tenant_id = CAST(%(tenant)s AS text)
  AND provider_gates.provider_name = CAST(%(provider)s AS text)
  AND provider_gates.capability = CAST(%(capability)s AS text)"""
_ACCOUNT = """provider_gates.tenant_id = CAST(%(account)s AS text)
  AND provider_gates.provider_name = CAST(%(provider)s AS text) AND provider_gates.capability = '*'"""
# A gate that no account's gate stands beside.
_ALONE = f"{_WHO} AND NOT is_shared AND account = CAST(%(account)s AS text)"
_IS_SHARED = """EXISTS (SELECT 1 FROM provider_gates AS a WHERE a.tenant_id = CAST(%(account)s AS text)
  AND a.provider_name = CAST(%(provider)s AS text) AND a.capability = '*')"""
# Of an open breaker: its cooldown is not over, and did not begin before the clock was set back.
_STAYS_OPEN = f"now < open_until AND COALESCE(turned_at, 0) <= now + {SET_BACK}"
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
def passing(dialect: Dialect, *, is_shared: bool = False) -> str:
    """The usual admission: closed, nothing in the way, enough left in this window. What it refuses is not decided yet.

    It decides alone, like `admission`, which knows every case and takes twice the time; or like `shared_admission`,
    where the account's gate must be as free as the tenant's.
    """
    now = dialect.clock
    returned = "decision, generation, admissions, quota_limit, window_start, NULL, NULL, NULL"
    passed = f"""
UPDATE provider_gates SET used = used + CASE WHEN quota_limit IS NULL THEN 0 ELSE CAST(%(cost)s AS bigint) END,
  admissions = admissions + 1, decision = 'admitted', decided_at = {now}, turned_from = '', held_from = ''"""
    free = f"""state = 'closed' AND (override = '' OR override_until <= {now})
  AND (cooldown_until IS NULL OR cooldown_until <= {now})
  AND (quota_limit IS NULL OR ({now} < window_end AND window_start <= {now} + {SET_BACK}
    AND used + CAST(%(cost)s AS bigint) <= quota_limit))"""
    if not is_shared:
        return f"{passed} WHERE {_ALONE} AND {free} RETURNING {returned}"
    beside = f"{_WHO} AND is_shared AND account = CAST(%(account)s AS text) AND {free} RETURNING {returned}"
    return f"""WITH look AS (SELECT FROM provider_gates WHERE {_ACCOUNT} AND {free} FOR UPDATE),
g AS ({passed} FROM look WHERE {beside}),
a AS ({passed} WHERE {_ACCOUNT} AND EXISTS (SELECT FROM g) RETURNING {returned})
SELECT * FROM g, a"""


@cache
def admission(dialect: Dialect, *, is_throttled: bool = False) -> str:
    """Breaker, quota and cooldown, decided on one row. What is refused changes nothing but the window of the time.

    Bulkhead and rate limit are only in the text for calls that have them.
    """
    row = _asked(dialect, is_throttled=is_throttled)
    decided = _decided(dialect, row, is_throttled=is_throttled)
    decide = f"{_admit(dialect, decided, is_throttled=is_throttled)} WHERE {_ALONE} RETURNING"
    if not dialect.is_one:
        return f"{decide} {_admitted(dialect, 'provider_gates')}"
    events = admission_events(dialect).format(gate="g")
    return f"WITH g AS ({decide} *), e AS ({events}) SELECT {_admitted(dialect, 'g')} FROM g"


@cache
def shared_admission(dialect: Dialect, *, is_throttled: bool = False) -> list[str]:
    """The same on two rows: a call passes the gates of its tenant and of its account, or spends nothing of either.

    Bulkhead and rate limit are the tenant's.
    """
    d = dialect
    look = _decided(d, _asked(d, "account_", "'admitted'", _ACCOUNT), is_shared=True)
    if d.is_one:
        looked, decided = "look.decision", "g.decision"
    else:
        looked, decided = "(SELECT decision FROM look)", f"(SELECT decision FROM provider_gates WHERE {_WHO})"
    row = _asked(d, "tenant_", looked, is_throttled=is_throttled)
    tenant = _admit(d, _decided(d, row, is_shared=True, is_throttled=is_throttled), is_throttled=is_throttled)
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
    tenant = f"WITH look AS (SELECT decision FROM {look}) {tenant}"
    pairs = ((tenant, f"{_WHO} AND {_IS_SHARED}"), (account, f"{_ACCOUNT} AND EXISTS ({PLAIN_GATE})"))
    return [f"{update} WHERE {both} RETURNING {_admitted(d, 'provider_gates')}" for update, both in pairs]


def _asked(d: Dialect, part: str = "", elsewhere: str = "", source: str = "", *, is_throttled: bool = False) -> str:
    """The row of a gate, and what a call asks of it; with another gate, what that says. A source is locked."""
    known = """state generation successes open_until probes quota_limit quota_window window_start window_end used
      previous_start previous_used override override_until admissions turned_at recorded_exhaustion"""
    # A bucket that is looked at with the time of a statement that waited would get back tokens that were taken since.
    clock = d.clock_of_turn if is_throttled else d.clock
    row = f"SELECT {_columns(known)}, {_pause(d)}, {clock} AS now, CAST(%(cost)s AS bigint) AS cost"
    if is_throttled:
        row += f""", {_columns("running bucket_full_at")}, CAST(%(max_concurrent)s AS bigint) AS max_concurrent,
      CAST(%(token_every)s AS double precision) AS token_every, CAST(%(burst)s AS bigint) AS burst"""
    if part:
        row += f", {_asks(part)}, CAST({elsewhere} AS text) AS elsewhere"
    return f"{row} {_locked(d, source)}"


def _pause(d: Dialect) -> str:
    """The end of a pause; of one that was asked for before the clock was set back nobody knows it any more."""
    return f"""CASE WHEN provider_gates.cooldown_until > {d.clock}
      AND provider_gates.decided_at > {d.clock} + {SET_BACK} THEN NULL
      ELSE provider_gates.cooldown_until END AS cooldown_until"""


def _asks(part: str) -> str:
    return ", ".join(f"CAST(%({part}{name})s AS bigint) AS {name}" for name in ("asks_breaker", "asks_pause"))


def _locked(d: Dialect, source: str) -> str:
    """The end of a row: it is that which is updated, or one that is looked at first."""
    source = f"FROM provider_gates WHERE {source} LIMIT 1" if source else "LIMIT 1"
    return f"{source} FOR UPDATE" if d.is_one and "FROM" in source else source


def _decided(d: Dialect, row: str, *, is_shared: bool = False, is_throttled: bool = False) -> str:
    """A gate's row with its decision, in layers. One of two may be asked for less, and refuses with the other."""
    unasked, pauses, elsewhere, lacks, limits, probes = "", "", "", "", "", d.probing.format(SET_BACK)
    if is_throttled:
        # As `RateLimit.wait` has it: a bucket cannot lack more than all its tokens.
        lacks = f", {d.least}(COALESCE(bucket_full_at, 0) - now, burst * token_every) AS lacks"
        limits = f"""WHEN lacks - (burst - 1) * token_every > {ROUNDED} THEN 'rate'
      WHEN {d.how_many.format("running")} >= max_concurrent THEN 'bulkhead'"""
    if is_shared:
        unasked, pauses = "WHEN asks_breaker = 0 THEN 'closed'", "AND asks_pause = 1"
        elsewhere = f"WHEN elsewhere {_REFUSES} THEN 'elsewhere'"
    return f"""(SELECT *, CASE
      WHEN quota_limit IS NOT NULL AND cost > 0 AND present_used + cost > quota_limit THEN 'quota'
      WHEN effective = 'open' THEN 'circuit'
      WHEN effective = 'half_open' AND {probes} >= CAST(%(half_open_max_calls)s AS bigint) THEN 'circuit'
      WHEN now < cooldown_until {pauses} THEN 'cooling' {limits} {elsewhere}
      WHEN effective = 'half_open' THEN 'probe'
      ELSE 'admitted' END AS decision
    FROM (SELECT *,
        CASE WHEN is_over AND now < window_end THEN begin WHEN is_over THEN {d.greatest}(begin, window_end)
             ELSE window_start END AS present_start,
        CASE WHEN is_over THEN begin + quota_window ELSE window_end END AS present_end,
        CASE WHEN is_over THEN 0 ELSE used END AS present_used
      FROM (SELECT *,
          quota_limit IS NOT NULL AND (now >= window_end OR now < window_start - {SET_BACK}) AS is_over,
          floor(now / quota_window) * quota_window AS begin{lacks},
          CASE WHEN override <> '' AND (override_until IS NULL OR override_until > now) THEN override {unasked}
               WHEN state = 'open' AND NOT ({_STAYS_OPEN}) THEN 'half_open' ELSE state END AS effective
        FROM ({row}) AS row
      ) AS times) AS windows LIMIT 1) AS decided"""


def _admit(d: Dialect, decided: str, *, is_throttled: bool = False) -> str:
    limited, limits = "", ""
    if is_throttled:
        limited = ", running, bucket_full_at"
        limits = f""",
    CASE WHEN max_concurrent IS NULL THEN running
         WHEN decision IN ('admitted', 'probe') THEN {d.add.format(d.live, "call_lease")}
         WHEN {d.is_overlong.format(SET_BACK)} THEN {d.live} ELSE running END,
    CASE WHEN token_every IS NULL THEN bucket_full_at
         WHEN decision IN ('admitted', 'probe') THEN now + {d.greatest}(lacks, 0) + token_every
         ELSE now + lacks END"""
    return f"""
UPDATE provider_gates SET (state, generation, successes, open_until, probes, window_start, window_end, used,
  previous_start, previous_used, admissions, decision, decided_at, cooldown_until, turned_at, turned_from, held_from,
  recorded_exhaustion{limited}) = (
  SELECT CASE WHEN decision = 'probe' THEN 'half_open' ELSE state END,
    generation + CASE WHEN decision = 'probe' AND state = 'open' THEN 1 ELSE 0 END,
    CASE WHEN decision = 'probe' AND state = 'open' THEN 0 ELSE successes END,
    CASE WHEN decision = 'probe' THEN NULL ELSE open_until END,
    CASE WHEN decision = 'probe' THEN {d.add.format("probes", "probe_lease")} ELSE probes END,
    present_start, present_end,
    present_used + CASE WHEN quota_limit IS NOT NULL AND decision IN ('admitted', 'probe') THEN cost ELSE 0 END,
    CASE WHEN is_over THEN window_start ELSE previous_start END, CASE WHEN is_over THEN used ELSE previous_used END,
    admissions + CASE WHEN decision IN ('admitted', 'probe') THEN 1 ELSE 0 END, decision, now, cooldown_until,
    CASE WHEN decision = 'probe' AND state = 'open' THEN now ELSE turned_at END,
    CASE WHEN decision = 'probe' AND state = 'open' THEN state ELSE '' END,
    CASE WHEN decision = 'quota' AND COALESCE(recorded_exhaustion, 0) <> present_end THEN '{AVAILABLE}' ELSE '' END,
    CASE WHEN decision = 'quota' THEN present_end ELSE recorded_exhaustion END{limits}
  FROM {decided})"""


def _admitted(d: Dialect, row: str) -> str:
    """What an admission returns of a row."""
    return f"""{row}.decision, {row}.generation, {row}.admissions, {row}.quota_limit, {row}.window_start,
  CASE WHEN {row}.decision {_REFUSES} THEN {d.listed}({row}.decided_at, {row}.window_end, {row}.open_until,
    {row}.override, {row}.override_until, {row}.cooldown_until, {row}.probes, {row}.bucket_full_at) END,
  CASE WHEN {row}.quota_limit IS NOT NULL AND {row}.used <= CAST(%(cost)s AS bigint) THEN {row}.previous_start END,
  {marks(d, row)}"""


def admission_events(dialect: Dialect) -> str:
    """The events of an admission: a breaker that is probed, a window whose first call is refused."""
    why = f"CASE WHEN g.held_from = '' THEN '{COOLED_DOWN}' ELSE '{USED_UP}' END"
    return events(dialect, why=why, until="g.window_end")


def gate_settlement(dialect: Dialect, *, has_rates: bool = False, has_place: bool = False) -> str:
    """The statement that settles a call on its gate: breaker, retry budget, cooldown, refund, place in the bulkhead."""
    turned = _turned(dialect, _returned(dialect, has_rates=has_rates), has_rates=has_rates)
    settle = _settle(dialect, turned, has_rates=has_rates) + _let_go(dialect, has_place=has_place)
    return f"{settle} WHERE {_WHO} RETURNING *"


def usual_settlement(dialect: Dialect, *, is_shared: bool = False, has_place: bool = False) -> dict[str, str]:
    """The same for a success that was no probe, which changes no state; where it could, nothing is settled.

    It takes half the time. What people see of the gate follows within a second (`visible`).
    """
    tokens = f"""retry_tokens = {dialect.least}(CAST(%(capacity)s AS double precision),
  COALESCE(retry_tokens, CAST(%(capacity)s AS double precision)) + CAST(%(earned)s AS double precision)), """

    def settled(part: str, tokens: str) -> str:
        counts = f"AND CAST(%({part}verdict)s AS text) = 'success'" if is_shared else ""
        return f"""
UPDATE provider_gates SET {tokens}consecutive_failures = CASE WHEN state = 'closed'
    AND generation = CAST(%({part}generation)s AS bigint) {counts} THEN 0 ELSE consecutive_failures END,
  settlements = settlements + 1, decision = 'ended', decided_at = {dialect.clock}, succeeded_at = {dialect.clock},
  turned_from = '', held_from = ''"""

    tenant = settled("", tokens) + _let_go(dialect, has_place=has_place)
    closed = f"state <> 'half_open' AND COALESCE(decided_at, 0) <= {dialect.clock} + {SET_BACK}"
    if not is_shared:
        return {"g": f"{tenant} WHERE {_WHO} AND {closed} RETURNING {SETTLED_COLUMNS}"}
    return {
        "look": f"SELECT FROM provider_gates WHERE {_ACCOUNT} AND {closed} FOR UPDATE",
        "g": f"{tenant} FROM look WHERE {_WHO} AND {closed} RETURNING {SETTLED_COLUMNS}",
        "a": f"{settled('account_', '')} WHERE {_ACCOUNT} AND EXISTS (SELECT FROM g) RETURNING {SETTLED_COLUMNS}",
    }


def _let_go(d: Dialect, *, has_place: bool) -> str:
    """The end of a change that frees the call's place in the bulkhead, if it had one."""
    return f", running = {d.let_go}" if has_place else ""


def shared_settlement(dialect: Dialect, *, has_rates: bool = False, has_place: bool = False) -> dict[str, str]:
    """The same on two rows: whoever is shut out by the account's breaker is not tried again either."""
    d = dialect
    returned, turned = partial(_returned, d, has_rates=has_rates), partial(_turned, d, has_rates=has_rates)
    settle = partial(_settle, d, has_rates=has_rates)
    look = f"""SELECT CASE WHEN is_shut THEN 1 ELSE 0 END AS is_shut
      FROM {turned(returned("account_", "0", _ACCOUNT), is_shared=True)}"""
    if d.is_one:
        looked, decided = "look.is_shut", "g.decision"
    else:
        looked, decided = "(SELECT is_shut FROM look)", f"(SELECT decision FROM provider_gates WHERE {_WHO})"
    tenant = settle(turned(returned("tenant_", looked), is_shared=True)) + _let_go(d, has_place=has_place)
    account = settle(turned(returned("account_", "0"), is_shared=True), part="account_", decision=decided)
    if not d.is_one:
        return {"g": f"WITH look AS ({look}) {tenant} WHERE {_WHO}", "a": f"{account} WHERE {_ACCOUNT}"}
    return {
        "look": look,
        "g": f"{tenant} FROM look WHERE {_WHO} RETURNING provider_gates.*",
        "a": f"{account} FROM g WHERE {_ACCOUNT} RETURNING provider_gates.*",
    }


def _returned(d: Dialect, part: str = "", elsewhere: str = "", source: str = "", *, has_rates: bool = False) -> str:
    """The row of a gate, and what a call that comes back says of it."""
    known = """state generation consecutive_failures successes open_until probes retry_tokens window_start used
      settlements override override_until turned_at recorded_pause opened_by succeeded_at"""
    own = part.removeprefix("tenant_")
    row = f"""SELECT {_columns(known)}, {_pause(d)}, {d.clock} AS now,
              CAST(%(open_cooldown_seconds)s AS double precision) AS cooldown_seconds,
              provider_gates.generation = CAST(%({own}generation)s AS bigint) AS is_current,
              CAST(%({own}verdict)s AS text) AS verdict, CAST(%({own}cooldown)s AS double precision) AS cooldown,
              CAST(%(is_success)s AS bigint) AS is_success, CAST(%(capacity)s AS double precision) AS capacity"""
    if part:
        row += f", {_asks(part)}, {elsewhere} AS is_shut_elsewhere"
    if has_rates:
        row += f""", {_columns("recent shadow_openings shadow_opened_at")},
              CAST(floor(
                CASE WHEN CAST(%(rate_by_time)s AS bigint) = 1 THEN {d.clock} ELSE provider_gates.settlements END
                / CAST(%(rate_width)s AS double precision)) AS bigint) AS slice,
              CAST(%(failure_rate)s AS double precision) AS failure_rate,
              CAST(%(slow_rate)s AS double precision) AS slow_rate,
              CAST(%(minimum_calls)s AS bigint) AS minimum_calls"""
    return f"{row} {_locked(d, source)}"


def _rated(d: Dialect, facts: str) -> str:
    """The layers of rates: the calls of the window with this one, their numbers, and the rule that they break."""
    is_counted = "is_current AND state = 'closed' AND verdict IN ('success', 'failure')"
    counted = d.recent.format(
        slices=SLICES,
        failed="CASE WHEN verdict = 'failure' THEN 1 ELSE 0 END",
        slow="CAST(%(is_slow)s AS bigint)",
    )
    share = "CAST(round(100.0 * {0} / calls) AS bigint) || ' %% of ' || calls || ' calls {1}'"
    return f"""(SELECT *, CASE WHEN NOT is_counted OR calls < minimum_calls THEN ''
        WHEN failures >= failure_rate * calls THEN {share.format("failures", "failed")}
        WHEN slow >= slow_rate * calls THEN {share.format("slow", "were slow")} ELSE '' END AS broken
      FROM (SELECT *, {d.total.format(0)} AS calls, {d.total.format(1)} AS failures, {d.total.format(2)} AS slow
        FROM (SELECT *, {is_counted} AS is_counted, {counted} AS counted FROM {facts}) AS counts) AS totals)"""


def _turned(d: Dialect, row: str, *, is_shared: bool = False, has_rates: bool = False) -> str:
    """A gate's row with what a call's return makes of it, in layers, and whether the call may be tried again."""
    facts = f"""(SELECT *, is_current AND state <> 'open' AND verdict = 'failure' AS fails,
            is_current AND state <> 'open' AND verdict = 'success' AS succeeds,
            override <> '' AND (override_until IS NULL OR override_until > now) AS is_forced,
            COALESCE(retry_tokens, capacity) AS tokens
          FROM ({row}) AS row) AS facts"""
    by_rate = ""
    if has_rates:
        facts, by_rate = f"{_rated(d, facts)} AS rated", "OR (broken <> '' AND CAST(%(is_shadow)s AS bigint) = 0)"
    unasked = "WHEN asks_breaker = 0 THEN false" if is_shared else ""
    elsewhere = "OR is_shut_elsewhere = 1" if is_shared else ""
    return f"""(SELECT *, CASE
        WHEN is_success = 1 OR CAST(%(wants_retry)s AS bigint) = 0 THEN 'ended' WHEN is_shut {elsewhere} THEN 'shut'
        WHEN {d.least}(capacity, tokens) >= 1 THEN 'retry' ELSE 'suppressed' END AS decision
    FROM (SELECT *, CASE WHEN trips THEN 'open' WHEN closes THEN 'closed' ELSE state END AS next_state,
        CASE WHEN is_forced THEN override = 'open' {unasked} WHEN trips THEN now < now + cooldown_seconds
             ELSE state = 'open' AND {_STAYS_OPEN} END AS is_shut,
        CASE WHEN cooldown IS NULL OR cooldown <= 0 THEN '' WHEN COALESCE(cooldown_until, 0) <= now THEN '{NONE}'
             WHEN now + cooldown >= COALESCE(recorded_pause, 0) + {LONGER} THEN '{PAUSED}' ELSE '' END AS paused_from
      FROM (SELECT *,
          (fails AND (state = 'half_open' OR consecutive_failures + 1 >= CAST(%(failure_threshold)s AS bigint)))
            {by_rate} AS trips,
          succeeds AND state = 'half_open' AND successes + 1 >= CAST(%(success_threshold)s AS bigint) AS closes
        FROM {facts}) AS turns) AS states LIMIT 1) AS decided"""


def _settle(d: Dialect, turned: str, part: str = "", decision: str = "decision", *, has_rates: bool = False) -> str:
    """The change of a row. The retry budget is the tenant's alone; an account goes by the tenant's decision."""
    columns, values, opened_by = "", "", "''"
    if has_rates:
        # What a rule has seen is not looked at again, whether it opened the breaker or only would have.
        opened_by, columns = "broken", ", recent, would_open, shadow_openings, shadow_opened_at"
        values = f""",
    CASE WHEN trips OR closes OR broken <> '' THEN {d.empty} WHEN is_counted THEN counted ELSE recent END,
    CASE WHEN trips THEN '' ELSE broken END,
    shadow_openings + CASE WHEN broken <> '' AND NOT trips THEN 1 ELSE 0 END,
    CASE WHEN broken <> '' AND NOT trips THEN now ELSE shadow_opened_at END"""
    tokens = "retry_tokens"
    if not part:
        tokens = f"""CASE WHEN is_success = 1 THEN {d.least}(capacity, tokens + CAST(%(earned)s AS double precision))
         WHEN decision = 'retry' THEN {d.least}(capacity, tokens) - 1 ELSE tokens END"""
    return f"""
UPDATE provider_gates SET (state, generation, consecutive_failures, successes, open_until, probes, cooldown_until,
  retry_tokens, used, settlements, decision, decided_at, turned_at, turned_from, held_from, recorded_pause,
  opened_by, succeeded_at{columns}) = (
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
    CASE WHEN paused_from <> '' THEN now + cooldown ELSE recorded_pause END,
    CASE WHEN trips THEN {opened_by} ELSE opened_by END, CASE WHEN is_success = 1 THEN now ELSE succeeded_at END{values}
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


def settlement_events(dialect: Dialect, *, has_rates: bool = False) -> str:
    """The events of a settlement; a rate that opened the breaker is why, and one that would have is an event, too."""
    asked = "CAST(%(why)s AS text)"
    if not has_rates:
        return events(dialect, why=asked)
    opened = f"CASE WHEN g.turned_from = 'closed' AND g.opened_by <> '' THEN g.opened_by ELSE {asked} END"
    return f"""{events(dialect, why=opened)} UNION ALL
SELECT {_same(dialect, "g.would_open")}, 'shadow', 'closed', '{WOULD_OPEN}', NULL FROM {{gate}} WHERE g.would_open <> ''
"""


def _same(dialect: Dialect, why: str) -> str:
    """What all events have."""
    at = dialect.moment.format("g.decided_at")
    return f"g.tenant_id, g.provider_name, g.capability, g.generation, {at}, {why}, ''"


def events(dialect: Dialect, *, why: str, until: str = "g.cooldown_until") -> str:
    """The events that the decision has left marks of; `until` is when a pause ends, or a window."""
    moment, same = dialect.moment.format, _same(dialect, why)
    return f"""
INSERT INTO provider_events (tenant_id, provider_name, capability, generation, at, why, "by", kind, from_state,
  to_state, until)
SELECT {same}, 'breaker', g.turned_from, g.state, {moment("g.open_until")} FROM {{gate}} WHERE g.turned_from <> ''
UNION ALL
SELECT {same}, CASE WHEN g.held_from = '{AVAILABLE}' THEN 'exhaustion' ELSE 'pause' END, g.held_from,
  CASE WHEN g.held_from = '{AVAILABLE}' THEN '{EXHAUSTED}' ELSE '{PAUSED}' END, {moment(until)}
FROM {{gate}} WHERE g.held_from <> ''
"""


def marks(dialect: Dialect, row: str, *, has_rates: bool = False) -> str:
    """The marks of a decision that has changed something, as `core.events.Marks` has them; NULL without any."""
    would, rates = (f"OR {row}.would_open <> ''", f", {row}.opened_by, {row}.would_open") if has_rates else ("", "")
    return f"""CASE WHEN {row}.turned_from <> '' OR {row}.held_from <> '' {would} THEN {dialect.listed}(
    {row}.decided_at, {row}.generation, {row}.state, {row}.turned_from, {row}.held_from, {row}.open_until,
    CASE WHEN {row}.held_from = '{AVAILABLE}' THEN {row}.window_end ELSE {row}.cooldown_until END{rates}) END"""


PLAIN_GATE = f"SELECT * FROM provider_gates WHERE {_WHO}"
ACCOUNT_GATE = f"SELECT * FROM provider_gates WHERE {_ACCOUNT}"


def _columns(names: str) -> str:
    return ", ".join(f"provider_gates.{name}" for name in names.split())


# What the other parts of a usual settlement read of its gate.
SETTLED_COLUMNS = _columns("id tenant_id provider_name capability decision decided_at")
