"""VERBS of a task's invocations: begin, end. Each is a row, which its calls point at."""

from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import Max, Q
from django.db.models.functions import Now

from ergon_site.access.database.clock import database_time
from providers import calls
from providers.core.exchange import Outcome, Source
from providers.models import ProviderExecutionMetric, TaskExecution
from providers.models.calls import TaskState

# Seconds that the database has for an answer.
LONGEST = 5.0


class Invocation(NamedTuple):
    """An invocation of a task; earlier reschedules and its first start count."""

    id: int | None = None
    since_first: timedelta = timedelta()
    dead_letter_reason: str | None = None  # the reason of its dead letter, if an earlier delivery left one
    attempts_made: int = 0  # of the call, by earlier ones
    unfinished: int = 0  # earlier ones that did not come to an end: their processes are gone, or still at it


# The database is away: whether the call may be made without it is for the call itself to say.
UNKEPT = Invocation()


def begin(task_name: str, celery_task_id: str, tenant_id: str) -> Invocation:
    """Write down that a task was invoked, and see what came of it before."""
    rows = TaskExecution.objects.filter(celery_task_id=celery_task_id)
    try:
        with calls.answered_within(LONGEST):
            earlier = rows.order_by("pk").first()
            row = TaskExecution.objects.create(task_name=task_name, celery_task_id=celery_task_id, tenant_id=tenant_id)
            if earlier is None:
                return Invocation(row.pk)
            # Left by an invocation that was then killed.
            calls_made = ProviderExecutionMetric.objects.filter(task_execution__in=rows)
            dead = calls_made.filter(outcome=Outcome.DEAD_LETTER.value)
            # What was refused took no time, and what stood in was no attempt.
            made = calls_made.filter(duration_ms__gt=0, source=Source.PROVIDER.value)
            last = made.aggregate(number=Max("attempt_number"))["number"]
            return Invocation(
                row.pk,
                since_first=database_time() - earlier.started_at,
                attempts_made=last or 0,
                dead_letter_reason=dead.values_list("reason_code", flat=True).first(),
                unfinished=rows.filter(pk__lt=row.pk, state=TaskState.STARTED.value).count(),
            )
    except calls.LOST:
        return UNKEPT


def name_tenant(invocation: Invocation, tenant_id: str) -> None:
    """Write down whose it is, once that is known."""
    _update(invocation, ~Q(tenant_id=tenant_id), tenant_id=tenant_id)


def end(invocation: Invocation, state: TaskState) -> bool:
    """Write down how it ended; whether that was possible."""
    return _update(invocation, Q(), state=state.value, finished_at=Now())


def _update(invocation: Invocation, where: Q, **columns: Any) -> bool:
    if invocation.id is None:
        return False
    try:
        with calls.answered_within(LONGEST):
            TaskExecution.objects.filter(where, pk=invocation.id).update(**columns)
    except calls.LOST:
        return False
    return True
