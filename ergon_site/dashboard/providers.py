"""Attention items and doctor findings of providers: open breakers, overrides, quotas, outbox."""

import json
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet, TextField, Value
from django.db.models.functions import Cast, JSONObject
from django.urls import reverse

from engines.reads.blockers import Blocker
from engines.reads.doctor import finding
from engines.reads.doctor.finding import Finding
from ergon_site.access.cli.program import typed
from ergon_site.access.core.durations import span
from ergon_site.access.core.texts import sentence
from ergon_site.access.database.clock import database_time
from ergon_site.dashboard.attention import Concern, capped
from providers import active_policy, calls, checks, registry
from providers.core.breaker import BreakerState
from providers.core.policy import ProviderPolicy, StoreFailure
from providers.models import Gate, ProviderPolicyRow
from providers.reads import health
from providers.reads.health import Standing

SHOWN = 200
READ = (
    *("id", "tenant_id", "provider_name", "capability", "state", "consecutive_failures", "open_until"),
    *("quota_limit", "quota_window", "window_start", "window_end", "used"),
    *("override", "override_until", "override_by", "override_reason", "opened_by"),
)
STUCK_AFTER = timedelta(minutes=15)


def rows(now: datetime) -> QuerySet[Any, Any]:
    """The capabilities that need a person: a kind, a key, and each as a text; to be asked for together with others."""
    chosen = Gate.objects.filter(pk__in=health.concerning(now).values("pk")[:SHOWN])
    row = Cast(JSONObject(**{name: name for name in READ}), TextField())
    return chosen.order_by().annotate(kind=Value("provider"), row=row).values_list("kind", "pk", "row")


def concerns(texts: Iterable[str], now: datetime) -> Iterator[Concern]:
    found = (
        Concern(
            title=f"{_named(one)}: {first}"[:200],
            detail=" ".join([_whose(one), *map(sentence, others)]),
            address=reverse("ergon:providers_gate_change", args=[one.gate.pk if one.gate else 0]),
        )
        for one in (health.of_row(Gate(**json.loads(text)), now) for text in texts)
        for first, *others in [sentences(one)]
    )
    return capped(found, reverse("ergon:providers_gate_changelist"))


def _named(one: Standing) -> str:
    return one.who.title if one.who.is_account else f"{one.who.provider_name} {one.who.capability}"


def _whose(one: Standing) -> str:
    return "All that share the account." if one.who.is_account else f"Tenant {one.who.tenant_id}."


def findings() -> Iterator[Finding]:
    """The same for the doctor; none of it is a fault of this deployment, so all are worth a look."""
    now = database_time()
    found = [health.of_row(gate, now) for gate in health.concerning(now)[:SHOWN]]
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
