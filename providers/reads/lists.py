"""Keyset queries of providers: which index leads, and what filters its rows."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Concat

from ergon_site.access.core.texts import is_key
from ergon_site.access.database.clock import database_time
from ergon_site.access.keyset import KeysetQuery, ListingError
from providers.core.breaker import BreakerState
from providers.core.errors import REASON_CODES
from providers.core.events import EventKind
from providers.core.exchange import Outcome, Source, Who
from providers.models import Gate, OutboxLetter, ProviderEvent, ProviderExecutionMetric, TaskExecution
from providers.models.calls import TaskState
from providers.reads import health

COLUMNS = {"tenant": "tenant_id", "provider": "provider_name", "capability": "capability"}
# Nobody who was sent away stays for longer than half of this.
WITHIN = timedelta(hours=1)
FOUND_AMONG = 2_000
NEWEST = ("-started_at", "-id")
OFFERED = {
    "breaker": [*(state.value for state in BreakerState), "forced"],
    "quota": ["near", "spent", "none"],
    "outcome": [outcome.value for outcome in Outcome],
    "reason": list(REASON_CODES),
    "source": [source.value for source in Source],
    "state": [state.value for state in TaskState],
    "published": ["waiting", "published"],
    "kind": [kind.value for kind in EventKind],
}


def gates(asked: Mapping[str, str]) -> KeysetQuery:
    """Capabilities, tenant by tenant."""
    _check(asked)
    now = database_time()
    rows = Gate.objects.alias(**health.conditions(now))
    rest = Q(**{column: asked[name] for name, column in COLUMNS.items() if name in asked})
    if text := asked.get("q", "").strip():
        rest &= Q(tenant_id=text) | Q(provider_name=text) | Q(capability=text)
    if "breaker" in asked:
        rest &= Q(is_forced=True) if asked["breaker"] == "forced" else Q(effective=asked["breaker"])
    if "quota" in asked:
        rest &= {"near": Q(is_near=True), "spent": Q(is_spent=True)}.get(asked["quota"], Q(quota_limit__isnull=True))
    return KeysetQuery(rows=rows, order=("tenant_id", "provider_name", "capability"), rest=rest)


def find_gates(text: str, most: int) -> QuerySet[Gate]:
    """Those whose provider and capability contain the text, among the newest."""
    newest = Gate.objects.order_by("-pk")
    # As a bound, which ends the walk through the index; a plan might look for the text among all rows first.
    last = Coalesce(Subquery(newest.values("pk")[FOUND_AMONG : FOUND_AMONG + 1]), 0)
    named = newest.alias(name=Concat("provider_name", Value("/"), "capability"))
    return named.filter(name__icontains=text, pk__gte=last)[:most]


def attempts(asked: Mapping[str, str]) -> KeysetQuery:
    """Attempts, the newest first."""
    _check(asked)
    rows, given = ProviderExecutionMetric.objects.all(), {name for name in asked if asked[name]}
    if not is_key(asked.get("task", "1")):
        msg = f"there is no task execution {asked['task']!r}"
        raise ListingError(msg)
    columns = {"outcome": "outcome", "reason": "reason_code", "source": "source", "task": "task_execution_id"}
    rest = {name: Q(**{column: asked[name]}) for name, column in columns.items() if name in asked}
    named = {name: Q(**{COLUMNS[name]: asked[name]}) for name in COLUMNS if name in asked}
    order: tuple[str, ...] = ("-id",)
    correlation = asked.get("correlation") or asked.get("q", "").strip()
    if correlation:
        lead = Q(correlation_id=correlation)
    elif "task" in asked:
        lead = rest.pop("task")
    elif given >= set(COLUMNS):
        lead, order, named = Q(*named.values()), ("-created_at", "-id"), {}
    elif given >= {"tenant", "outcome"}:
        lead, order = named.pop("tenant") & rest.pop("outcome"), ("-created_at", "-id")
    else:
        lead = Q()
    others = Q(*named.values(), *rest.values())
    return KeysetQuery(rows=rows.filter(lead), order=order, rest=others, is_counted=bool(lead))


def events(asked: Mapping[str, str]) -> KeysetQuery:
    """Events, the newest first."""
    _check(asked)
    named = {name: Q(**{column: asked[name]}) for name, column in COLUMNS.items() if name in asked}
    others = {name: Q(**{name: asked[name]}) for name in ("kind", "by") if name in asked}
    lead = named.pop("tenant", Q())
    if len(named) == len(COLUMNS) - 1 and lead:
        lead, named = Q(lead, *named.values()), {}
    return KeysetQuery(rows=ProviderEvent.objects.filter(lead), rest=Q(*named.values(), *others.values()))


def tasks(asked: Mapping[str, str]) -> KeysetQuery:
    """Invocations of tasks, the newest first."""
    _check(asked)
    rows, rest = TaskExecution.objects.all(), Q(state=asked["state"]) if "state" in asked else Q()
    if "task" in asked:
        rest &= Q(task_name=asked["task"])
    tenant = Q(tenant_id=asked["tenant"]) if "tenant" in asked else Q()
    if "waits_for" in asked:
        provider, slash, capability = asked["waits_for"].partition("/")
        if not slash or not tenant:
            msg = "the filter waits_for needs a tenant and provider/capability"
            raise ListingError(msg)
        who = Who(asked["tenant"], provider, capability)
        return KeysetQuery(rows=rescheduled(who, database_time()), order=NEWEST, rest=rest)
    if text := asked.get("q", "").strip():
        return KeysetQuery(rows=rows.filter(celery_task_id=text), rest=rest & tenant)
    if tenant:
        return KeysetQuery(rows=rows.filter(tenant), order=NEWEST, rest=rest)
    return KeysetQuery(rows=rows, rest=rest, is_counted=False)


def letters(asked: Mapping[str, str]) -> KeysetQuery:
    """Letters on their way to the queue, the newest first."""
    _check(asked)
    rows = OutboxLetter.objects.defer("request")
    if asked.get("published") == "waiting":
        return KeysetQuery(rows=rows.filter(published_at__isnull=True))
    rest = Q(published_at__isnull=False) if "published" in asked else Q()
    return KeysetQuery(rows=rows, rest=rest, is_counted=False)


def rescheduled(who: Who, now: datetime) -> QuerySet[TaskExecution]:
    """Tasks that were sent away and have not come back: their last invocations that called a capability, of an hour."""
    sent_away = TaskExecution.objects.filter(
        tenant_id=who.tenant_id, started_at__gte=now - WITHIN, state=TaskState.RESCHEDULED.value
    )
    came_back = TaskExecution.objects.filter(celery_task_id=OuterRef("celery_task_id"), pk__gt=OuterRef("pk"))
    return sent_away.filter(Exists(_calls(who)), ~Exists(came_back)).order_by("-started_at", "-id")


def preview_rescheduled(who: Who, now: datetime, *, shown: int) -> list[Any]:
    """The newest of them, with what each asked, why it was sent away, and since when it comes and goes."""
    last_call = _calls(who).order_by("-id")
    same = TaskExecution.objects.filter(celery_task_id=OuterRef("celery_task_id")).order_by("pk")
    rows = rescheduled(who, now).annotate(
        operation=Subquery(last_call.values("operation")[:1]),
        reason=Subquery(last_call.values("reason_code")[:1]),
        first_at=Subquery(same.values("started_at")[:1]),
    )
    return list(rows[:shown])


def _check(asked: Mapping[str, str]) -> None:
    for name, words in OFFERED.items():
        if name in asked and asked[name] not in words:
            msg = f"{name} is one of {', '.join(words)}"
            raise ListingError(msg)


def _calls(who: Who) -> QuerySet[ProviderExecutionMetric]:
    made = ProviderExecutionMetric.objects.filter(task_execution=OuterRef("pk"))
    return made.filter(provider_name=who.provider_name, capability=who.capability)
