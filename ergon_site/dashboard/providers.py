"""Attention items, status line and doctor findings of providers: open breakers, overrides, quotas, outbox."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import OuterRef, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast, JSONObject

from engines.reads.blockers import Blocker
from engines.reads.doctor import finding
from engines.reads.doctor.finding import Finding
from ergon_site.access.cli.program import typed
from ergon_site.access.core.attention import Item, Severity
from ergon_site.access.core.durations import span
from ergon_site.access.core.roles import Right
from ergon_site.access.core.texts import sentence
from ergon_site.access.database.clock import database_time
from ergon_site.dashboard import engines
from ergon_site.dashboard.attention import LONGEST_TITLE, MOST_OF_A_KIND, SHOWN_OF_A_KIND, Act, Face, page
from providers import active_policy, calls, checks, registry
from providers.core.breaker import BreakerState
from providers.core.events import NONE, EventKind
from providers.core.exchange import Who
from providers.core.policy import ProviderPolicy, StoreFailure
from providers.models import Gate, ProviderEvent, ProviderPolicyRow
from providers.reads import health
from providers.reads.health import Standing

READ = (
    *("id", "tenant_id", "provider_name", "capability", "state", "consecutive_failures", "open_until"),
    *("quota_limit", "quota_window", "window_start", "window_end", "used"),
    *("override", "override_until", "override_by", "override_reason", "opened_by"),
)
STUCK_AFTER = timedelta(minutes=15)
# Of each breaker, the newest calls that failed or were refused; those that opened it came before that.
LOOKED_AT = 300
CALLS = """
calls_{place:d} (uid) AS (
    SELECT correlation_id FROM provider_execution_metrics
    WHERE tenant_id = %s AND provider_name = %s AND capability = %s AND created_at >= %s AND outcome <> 'success'
    ORDER BY created_at DESC LIMIT {most:d}
)
"""
BLOCKED = """
SELECT {place:d}, 'group', group_id, '', count(*) FROM engines_deadletter
WHERE state = 'open' AND uid IN (SELECT uid FROM calls_{place:d}) GROUP BY group_id
UNION ALL
SELECT {place:d}, 'pipeline', p.id, p.name, count(*) FROM engines_transactionrecord t
JOIN engines_pipeline p ON p.id = t.pipeline_id
WHERE t.state = 0 AND t.uid IN (SELECT uid FROM calls_{place:d}) GROUP BY p.id, p.name
UNION ALL
SELECT {place:d}, 'calls', 0, '', count(*) FROM calls_{place:d}
"""
LONGEST_DETAIL = 500
BEFORE_OPENING = timedelta(minutes=10)


def rows(now: datetime) -> QuerySet[Any, Any]:
    """The capabilities that need a person: a kind, a key, and each as a text; to be asked for together with others."""
    chosen = Gate.objects.filter(pk__in=health.concerning(now).values("pk")[:MOST_OF_A_KIND])
    events = ProviderEvent.objects.filter(**{name: OuterRef(name) for name in Who._fields}).order_by("-id")
    opened = events.filter(kind=EventKind.BREAKER.value, from_state=BreakerState.CLOSED.value)
    forced = events.filter(kind=EventKind.OVERRIDE.value).exclude(to_state=NONE)
    times = {"opened_at": Subquery(opened.values("at")[:1]), "forced_at": Subquery(forced.values("at")[:1])}
    row = Cast(JSONObject(**{name: name for name in READ}, **times), TextField())
    return chosen.order_by().annotate(kind=Value("provider"), row=row).values_list("kind", "pk", "row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A capability that needs attention, and since when its breaker has not been closed, or was forced."""

    standing: Standing
    since: datetime | None

    @property
    def key(self) -> str:
        return f"provider:{self.standing.gate.pk if self.standing.gate else 0}"


def troubles(texts: Iterable[str], now: datetime) -> list[Trouble]:
    found = []
    for text in texts:
        columns = json.loads(text)
        opened_at, forced_at = columns.pop("opened_at"), columns.pop("forced_at")
        standing = health.of_row(Gate(**columns), now)
        since = forced_at if standing.override else opened_at if standing.state is not BreakerState.CLOSED else None
        found.append(Trouble(standing=standing, since=_moment(since)))
    return found


def items(troubles: Iterable[Trouble]) -> Iterator[Item]:
    """An attention item for each capability: an open breaker, an override, a quota that is nearly used up."""
    behind = page("providers_gate_changelist")
    for trouble in troubles:
        one = trouble.standing
        key = one.gate.pk if one.gate else 0
        reset = Act(title="Reset breaker", name="providers_gate_reset", key=key, right=Right.OPERATE)
        yield Item(
            key=trouble.key,
            severity=_severity(one),
            title=f"{_named(one)}: {_headline(one)}"[:LONGEST_TITLE],
            detail=" ".join([_whose(one), *map(sentence, sentences(one))])[:LONGEST_DETAIL],
            since=trouble.since,
            cause=_cause(trouble),
            shown=Face(
                address=page("providers_gate_change", key),
                behind=behind,
                acts=(reset,) if one.override or one.state is not BreakerState.CLOSED else (),
            ),
        )


def blocked(troubles: Sequence[Trouble]) -> tuple[dict[int, dict[str, int]], list[Item]]:
    """What breakers that are not closed have caused, by one statement.

    Dead letters and waiting transactions whose calls failed or were refused: of each group how many by which breaker,
    and an item for what waits in each pipeline. Handlers call under the id of their transaction. The newest calls of a
    few breakers are looked at; what an account of all tenants blocks is not known by its key.
    """
    not_closed = [one for one in troubles if one.standing.state is not BreakerState.CLOSED]
    chosen = [one for one in not_closed if not one.standing.who.is_account][:SHOWN_OF_A_KIND]
    rows = _blocked_by(chosen)
    groups: dict[int, dict[str, int]] = {}
    for key, kind, of, _, count in rows:
        if kind == "group":
            groups.setdefault(of, {})[key] = count
    capped = {key for key, kind, *_, count in rows if kind == "calls" and count == LOOKED_AT}
    waits = [
        engines.waiting(f"held:{key}:{of}", name, count, key, is_capped=key in capped)
        for key, kind, of, name, count in rows
        if kind == "pipeline"
    ]
    return groups, waits


def _blocked_by(troubles: Sequence[Trouble]) -> list[tuple[str, str, int, str, int]]:
    if not troubles:
        return []
    looks, parts, parameters = [], [], list[Any]()
    for place, one in enumerate(troubles):
        since = (one.since or one.standing.read_at) - BEFORE_OPENING
        looks.append(CALLS.format(place=place, most=LOOKED_AT))
        parameters += [*one.standing.who, connection.ops.adapt_datetimefield_value(since)]
        parts.append(BLOCKED.format(place=place))
    with connection.cursor() as cursor:
        cursor.execute(f"WITH {', '.join(looks)} {' UNION ALL '.join(parts)}", parameters)
        return [(troubles[place].key, *row) for place, *row in cursor.fetchall()]


def status(troubles: Sequence[Trouble]) -> str:
    """The providers in one sentence."""
    stands = [one.standing for one in troubles]
    counts = {
        "{} open": sum(one.state is BreakerState.OPEN for one in stands),
        "{} half open": sum(one.state is BreakerState.HALF_OPEN for one in stands),
        "{} forced closed": sum(one.override == "closed" for one in stands),
        "{} near or at the end of a quota": sum(health.is_near(one.quota) for one in stands),
    }
    told = ", ".join(text.format(f"{count:,}") for text, count in counts.items() if count)
    least = "at least " if len(stands) == MOST_OF_A_KIND else ""
    return f"Capabilities: {least}{told}." if told else "Every breaker is closed, and no quota is nearly used up."


def _headline(one: Standing) -> str:
    if one.override:
        return f"forced {one.override} by {one.override_by}"
    if one.state is not BreakerState.CLOSED:
        return f"breaker {one.state.value.replace('_', ' ')}"
    return next(sentences(one))


def _severity(one: Standing) -> Severity:
    if one.override:
        return Severity.NOTICE
    if one.state is BreakerState.OPEN or (one.quota and not one.quota.remaining):
        return Severity.CRITICAL
    return Severity.WARNING


def _cause(trouble: Trouble) -> str:
    """One override or opening; a quota that fills again in its next window is the same."""
    return trouble.since.isoformat() if trouble.since else trouble.standing.state.value


def _moment(text: str | None) -> datetime | None:
    """SQLite keeps times as texts, in UTC."""
    at = datetime.fromisoformat(text) if text else None
    return at.replace(tzinfo=UTC) if at and at.tzinfo is None else at


def _named(one: Standing) -> str:
    return one.who.title if one.who.is_account else f"{one.who.provider_name} {one.who.capability}"


def _whose(one: Standing) -> str:
    return "All that share the account." if one.who.is_account else f"Tenant {one.who.tenant_id}."


def findings() -> Iterator[Finding]:
    """The same for the doctor; none of it is a fault of this deployment, so all are worth a look."""
    now = database_time()
    found = [health.of_row(gate, now) for gate in health.concerning(now)[:MOST_OF_A_KIND]]
    for one in found:
        text = f"{one.gate}: {', '.join(sentences(one))}"
        yield finding.warning("providers", text, f"see {typed('breaker show')}, {typed('quota show')}")
    age = health.oldest_letter_age()
    if age is not None and age > STUCK_AFTER.total_seconds():
        count = f"{health.waiting_letters():,} dead letters are not published, the oldest for {span(age)}"
        yield finding.warning("outbox of providers", count, f"check that the broker is up and {typed('maintain')} runs")
    if waiting := calls.waiting():
        text = f"outcomes that wait on this host for the database: {waiting:,}"
        hint = f"they are settled by the next call or by {typed('maintain')}; the log says if one cannot be"
        yield finding.warning("journal of providers", text, hint)
    for row in ProviderPolicyRow.objects.select_related("active").filter(active__isnull=False):
        for message in checks.of_policy(ProviderPolicy.from_dict(row.in_force.policy.to_dict()), None):
            yield finding.warning("policies of providers", f"{row}: {message.msg}", message.hint or "change the policy")
    for name in uncounted():
        text = f"{name} has quotas, but its calls are not counted while the database is unavailable"
        yield finding.warning("quotas of providers", text, "set on_store_failure to closed, or drop the quotas")
    if not found:
        yield finding.ok("providers", "every breaker is closed, and no quota is nearly used up")


def hindrances(ids: Collection[str]) -> Iterator[Blocker]:
    """Open breakers of what was called under these ids; handlers give the id of their transaction."""
    for one in health.open_among(health.called_under(ids)):
        yield Blocker(one.what, one.until)


def uncounted() -> Iterator[str]:
    """Providers that have quotas, and whose policy is to call on without the database."""
    rows = {row.key: row.in_force.policy for row in ProviderPolicyRow.objects.select_related("active")}
    limited = Gate.objects.filter(quota_limit__isnull=False).order_by()
    for key in limited.values_list("provider_name", "capability").distinct():
        kind = registry.classes().get(key)
        policy = rows.get(key) or (active_policy.defaults_of(kind) if kind else None)
        if policy is not None and policy.to_dict()["on_store_failure"] == StoreFailure.LOCAL:
            yield " ".join(key)


def sentences(one: Standing) -> Iterator[str]:
    """The warnings of a capability, as sentences."""
    if one.override:
        until = f" for {span((one.override_until - one.read_at).total_seconds())} more" if one.override_until else ""
        yield f"forced {one.override}{until} by {one.override_by}: {one.override_reason}"
    elif one.state is BreakerState.OPEN:
        wait = span((one.reopens_at - one.read_at).total_seconds()) if one.reopens_at else "a moment"
        why = one.opened_by or f"{one.failures:,} consecutive failures"
        yield f"the breaker is open after {why}, next probe in {wait}"
    elif one.state is BreakerState.HALF_OPEN:
        yield "the breaker is half open: the next calls probe the provider"
    if one.quota and health.is_near(one.quota):
        left = span((one.quota.end - one.read_at).total_seconds())
        used = "used up" if not one.quota.remaining else f"{int(one.quota.percent)} % used"
        yield f"the quota is {used}: {one.quota.used:,} of {one.quota.limit:,}, {left} left in the window"
