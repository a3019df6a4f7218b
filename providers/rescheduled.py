"""Tasks that were sent away for now and have not come back: what waits for a capability."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet, Subquery

from providers.core.exchange import Who
from providers.models import ProviderExecutionMetric, TaskExecution
from providers.models.calls import TaskState

# Nobody stays away for longer than half of this.
WITHIN = timedelta(hours=1)


def waiting(who: Who, now: datetime) -> QuerySet[TaskExecution]:
    """The last invocations of those that called this capability within the last hour, found by tenant and time."""
    sent_away = TaskExecution.objects.filter(
        tenant_id=who.tenant_id, started_at__gte=now - WITHIN, state=TaskState.RESCHEDULED.value
    )
    came_back = TaskExecution.objects.filter(celery_task_id=OuterRef("celery_task_id"), pk__gt=OuterRef("pk"))
    return sent_away.filter(Exists(_calls(who)), ~Exists(came_back)).order_by("-started_at", "-id")


def preview(who: Who, now: datetime, *, shown: int) -> list[Any]:
    """The newest of them, with what each asked, why it was sent away, and since when it comes and goes."""
    last_call = _calls(who).order_by("-id")
    same = TaskExecution.objects.filter(celery_task_id=OuterRef("celery_task_id")).order_by("pk")
    rows = waiting(who, now).annotate(
        operation=Subquery(last_call.values("operation")[:1]),
        reason=Subquery(last_call.values("reason_code")[:1]),
        first_at=Subquery(same.values("started_at")[:1]),
    )
    return list(rows[:shown])


def _calls(who: Who) -> QuerySet[ProviderExecutionMetric]:
    made = ProviderExecutionMetric.objects.filter(task_execution=OuterRef("pk"))
    return made.filter(provider_name=who.provider_name, capability=who.capability)
