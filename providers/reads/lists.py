"""Keyset queries of providers: which index leads, and what filters its rows."""

from collections.abc import Mapping

from django.db.models import Q

from ergon_site.access.core.texts import is_key
from ergon_site.access.database.clock import database_time
from ergon_site.access.keyset import KeysetQuery
from providers import rescheduled
from providers.core.breaker import BreakerState
from providers.core.errors import REASON_CODES
from providers.core.exchange import Outcome, Who
from providers.models import Gate, OutboxLetter, ProviderExecutionMetric, TaskExecution
from providers.models.calls import TaskState
from providers.reads import health

COLUMNS = {"tenant": "tenant_id", "provider": "provider_name", "capability": "capability"}
NEWEST = ("-started_at", "-id")
OFFERED = {
    "breaker": [*(state.value for state in BreakerState), "forced"],
    "quota": ["near", "spent", "none"],
    "outcome": [outcome.value for outcome in Outcome],
    "reason": list(REASON_CODES),
    "state": [state.value for state in TaskState],
    "published": ["waiting", "published"],
}


class ListingError(ValueError):
    """No list is filtered so."""


def gates(asked: Mapping[str, str]) -> KeysetQuery:
    """Capabilities, tenant by tenant."""
    _check(asked)
    now = database_time()
    rows = Gate.objects.alias(**health.conditions(now))
    rest = _named(asked)
    if text := asked.get("q", "").strip():
        rest &= Q(tenant_id=text) | Q(provider_name=text) | Q(capability=text)
    if "breaker" in asked:
        is_forced = Q(is_forced=True)
        rest &= is_forced if asked["breaker"] == "forced" else Q(effective=asked["breaker"])
    if "quota" in asked:
        rest &= {"near": Q(is_near=True), "spent": Q(is_spent=True)}.get(asked["quota"], Q(quota_limit__isnull=True))
    return KeysetQuery(rows=rows, order=("tenant_id", "provider_name", "capability"), rest=rest)


def attempts(asked: Mapping[str, str]) -> KeysetQuery:
    """Attempts, the newest first."""
    _check(asked)
    rows, given = ProviderExecutionMetric.objects.all(), {name for name in asked if asked[name]}
    rest = {name: _condition(name, asked[name]) for name in ("outcome", "reason", "task") if name in asked}
    named = {name: Q(**{COLUMNS[name]: asked[name]}) for name in COLUMNS if name in asked}
    order: tuple[str, ...] = ("-id",)
    correlation = asked.get("correlation") or asked.get("q", "").strip()
    if correlation:
        lead = Q(correlation_id=correlation)
    elif "task" in asked:
        lead = rest.pop("task")
    elif given >= set(COLUMNS):
        lead, order, named = _all(named), ("-created_at", "-id"), {}
    elif given >= {"tenant", "outcome"}:
        lead, order = named.pop("tenant") & rest.pop("outcome"), ("-created_at", "-id")
    else:
        lead = Q()
    others = _all({**named, **rest})
    return KeysetQuery(rows=rows.filter(lead), order=order, rest=others, is_counted=bool(lead))


def tasks(asked: Mapping[str, str]) -> KeysetQuery:
    """Invocations of tasks, the newest first."""
    _check(asked)
    rows, rest = TaskExecution.objects.all(), Q(state=asked["state"]) if "state" in asked else Q()
    if "task" in asked:
        rest &= Q(task_name=asked["task"])
    tenant = Q(tenant_id=asked["tenant"]) if "tenant" in asked else Q()
    if "waits_for" in asked:
        return KeysetQuery(rows=rescheduled.waiting(_waited_for(asked), database_time()), order=NEWEST, rest=rest)
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


def _check(asked: Mapping[str, str]) -> None:
    for name, words in OFFERED.items():
        if name in asked and asked[name] not in words:
            msg = f"{name} is one of {', '.join(words)}"
            raise ListingError(msg)


def _waited_for(asked: Mapping[str, str]) -> Who:
    provider, slash, capability = asked["waits_for"].partition("/")
    if not slash or "tenant" not in asked:
        msg = "the filter waits_for needs a tenant and provider/capability"
        raise ListingError(msg)
    return Who(asked["tenant"], provider, capability)


def _condition(name: str, text: str) -> Q:
    if name != "task":
        return Q(outcome=text) if name == "outcome" else Q(reason_code=text)
    if not is_key(text):
        msg = f"there is no task execution {text!r}"
        raise ListingError(msg)
    return Q(task_execution_id=int(text))


def _named(asked: Mapping[str, str]) -> Q:
    return _all({name: Q(**{COLUMNS[name]: asked[name]}) for name in COLUMNS if name in asked})


def _all(conditions: Mapping[str, Q]) -> Q:
    both = Q()
    for condition in conditions.values():
        both &= condition
    return both
