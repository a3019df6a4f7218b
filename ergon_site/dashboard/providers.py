"""Attention items, status line and doctor findings of providers: open breakers, overrides, quotas, outbox."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

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
from ergon_site.dashboard.attention import LONGEST_TITLE, MOST_OF_A_KIND, Act, Face, listed, page
from ergon_site.dashboard.breakers import Outage, Trouble
from providers import active_policy, calls, checks, registry
from providers.core.breaker import BreakerState
from providers.core.events import NONE, EventKind
from providers.core.exchange import Who
from providers.core.gate import EVERY
from providers.core.policy import ProviderPolicy, StoreFailure
from providers.models import Gate, ProviderEvent, ProviderPolicyRow
from providers.reads import health
from providers.reads.health import Standing

READ = (
    *("id", "tenant_id", "provider_name", "capability", "state", "consecutive_failures", "open_until"),
    *("quota_limit", "quota_window", "window_start", "window_end", "used"),
    *("override", "override_until", "override_by", "override_reason", "opened_by", "account"),
)
STUCK_AFTER = timedelta(minutes=15)
LONGEST_DETAIL = 500
# As many tenants as a sentence names.
NAMED = 5


def rows(now: datetime) -> QuerySet[Any, Any]:
    """The capabilities that need a person: a kind, a key, and each as a text; to be asked for together with others."""
    chosen = Gate.objects.filter(pk__in=health.concerning(now).values("pk")[:MOST_OF_A_KIND])
    events = ProviderEvent.objects.filter(**{name: OuterRef(name) for name in Who._fields}).order_by("-id")
    opened = events.filter(kind=EventKind.BREAKER.value, from_state=BreakerState.CLOSED.value)
    forced = events.filter(kind=EventKind.OVERRIDE.value).exclude(to_state=NONE)
    times = {"opened_at": Subquery(opened.values("at")[:1]), "forced_at": Subquery(forced.values("at")[:1])}
    row = Cast(JSONObject(**{name: name for name in READ}, **times), TextField())
    return chosen.order_by().annotate(kind=Value("provider"), row=row).values_list("kind", "pk", "row")


def troubles(texts: Iterable[str], now: datetime) -> list[Trouble]:
    found = []
    for text in texts:
        columns = json.loads(text)
        opened_at, forced_at = columns.pop("opened_at"), columns.pop("forced_at")
        standing = health.of_row(Gate(**columns), now)
        since = forced_at if standing.override else opened_at if standing.state is not BreakerState.CLOSED else None
        found.append(Trouble(standing=standing, since=_moment(since)))
    return found


def items(outages: Iterable[Outage], *, is_capped: bool) -> Iterator[Item]:
    """An attention item for each outage and capability: open breakers, an override, a quota that is nearly used up."""
    return (_gathered(one, is_capped=is_capped) if one.is_gathered else _alone(one) for one in outages)


def _alone(outage: Outage) -> Item:
    trouble = outage.first
    one = trouble.standing
    reset = Act(title="Reset breaker", name="providers_gate_reset", key=trouble.pk, right=Right.OPERATE)
    return Item(
        key=outage.key,
        severity=Severity.NOTICE if outage.caused_by else _severity(one),
        title=f"{_named(one)}: {_headline(one)}"[:LONGEST_TITLE],
        detail=" ".join([_whose(one), *map(sentence, sentences(one))])[:LONGEST_DETAIL],
        since=trouble.since,
        cause=_cause(outage),
        gathered_as=outage.gathered_as,
        caused_by=(outage.caused_by,) if outage.caused_by else (),
        shown=Face(
            address=page("providers_gate_change", trouble.pk),
            behind=page("providers_gate_changelist"),
            acts=(reset,) if one.override or trouble.is_blocking else (),
        ),
    )


def _gathered(outage: Outage, *, is_capped: bool) -> Item:
    """Breakers of one provider that are not closed: a person is told of one outage."""
    stands = [one.standing for one in outage.troubles]
    provider, count = stands[0].who.provider_name, len(stands)
    whose = "accounts' breakers" if all(one.who.is_account for one in stands) else "breakers"
    states = sorted({one.state.value for one in stands}, reverse=True)
    state = " or ".join(states).replace("_", " ")
    only = {"breaker": states[0]} if len(states) == 1 else {}
    names = list(dict.fromkeys(_name(one) for one in stands))
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return Item(
        key=outage.key,
        severity=Severity.NOTICE if outage.caused_by else max(map(_severity, stands)),
        title=f"{provider}: {count:,}{'+' if is_capped else ''} {whose} {state}"[:LONGEST_TITLE],
        detail=f"Of {', '.join(names[:NAMED])}{more}."[:LONGEST_DETAIL],
        since=outage.since,
        cause=_cause(outage),
        gathered_as=outage.gathered_as,
        count=count,
        is_capped=is_capped,
        caused_by=(outage.caused_by,) if outage.caused_by else (),
        shown=Face(
            address=listed("providers_gate_changelist", provider=provider, **only),
            behind=page("providers_gate_changelist"),
        ),
    )


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


def _cause(outage: Outage) -> str:
    """One override or opening, the newest of several; a quota that fills again in its next window is the same."""
    return outage.newest.isoformat() if outage.newest else ""


def _moment(text: str | None) -> datetime | None:
    """SQLite keeps times as texts, in UTC."""
    at = datetime.fromisoformat(text) if text else None
    return at.replace(tzinfo=UTC) if at and at.tzinfo is None else at


def _named(one: Standing) -> str:
    return one.who.title if one.who.is_account else f"{one.who.provider_name} {one.who.capability}"


def _whose(one: Standing) -> str:
    return "All that share the account." if one.who.is_account else f"Tenant {one.who.tenant_id}."


def _name(one: Standing) -> str:
    """A tenant's or an account's name among others."""
    name = one.who.tenant_id.removeprefix(EVERY) if one.who.is_account else one.who.tenant_id
    return name or "all tenants"


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
