"""VERBS of a task's invocations: begin, end. Each is a row, which its calls point at."""

from datetime import timedelta
from typing import NamedTuple

from django.db.models.functions import Now

from ergon_site.access.database.clock import database_time
from providers import calls
from providers.core.exchange import Outcome
from providers.models import ProviderExecutionMetric, TaskExecution
from providers.models.calls import TaskState


class Invocation(NamedTuple):
    """An invocation of a task; earlier reschedules and its first start count."""

    id: int | None = None
    since_first: timedelta = timedelta()
    dead_letter_reason: str | None = None  # the reason of its dead letter, if an earlier delivery left one
    unfinished: int = 0  # earlier ones that did not come to an end: their processes are gone, or still at it


# The database is away: whether the call may be made without it is for the call itself to say.
UNKEPT = Invocation()


def begin(task_name: str, celery_task_id: str, tenant_id: str) -> Invocation:
    """Write down that a task was invoked, and see what came of it before."""
    try:
        with calls.lost_connections_closed():
            return _begin(task_name, celery_task_id, tenant_id)
    except calls.LOST:
        return UNKEPT


def name_tenant(invocation: Invocation, tenant_id: str) -> None:
    """Write down whose it is, once that is known."""
    if invocation.id is None:
        return
    try:
        with calls.lost_connections_closed():
            TaskExecution.objects.filter(pk=invocation.id).exclude(tenant_id=tenant_id).update(tenant_id=tenant_id)
    except calls.LOST:
        return


def end(invocation: Invocation, state: TaskState) -> None:
    """Write down how it ended. Nothing depends on that, so an end without a database is one all the same."""
    if invocation.id is None:
        return
    try:
        with calls.lost_connections_closed():
            TaskExecution.objects.filter(pk=invocation.id).update(state=state.value, finished_at=Now())
    except calls.LOST:
        return


def _begin(task_name: str, celery_task_id: str, tenant_id: str) -> Invocation:
    earlier = TaskExecution.objects.filter(celery_task_id=celery_task_id).order_by("pk").first()
    row = TaskExecution.objects.create(task_name=task_name, celery_task_id=celery_task_id, tenant_id=tenant_id)
    if earlier is None:
        return Invocation(row.pk)
    before = TaskExecution.objects.filter(celery_task_id=celery_task_id, pk__lt=row.pk)
    return Invocation(
        row.pk,
        since_first=database_time() - earlier.started_at,
        dead_letter_reason=_dead_letter_reason(celery_task_id),
        unfinished=before.filter(state=TaskState.STARTED.value).count(),
    )


def _dead_letter_reason(celery_task_id: str) -> str | None:
    """The reason of a dead letter that was left by an invocation that was then killed."""
    rows = TaskExecution.objects.filter(celery_task_id=celery_task_id)
    ended = ProviderExecutionMetric.objects.filter(task_execution__in=rows, outcome=Outcome.DEAD_LETTER.value)
    return ended.values_list("reason_code", flat=True).first()
