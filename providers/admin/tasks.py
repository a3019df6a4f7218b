"""Task executions: each invocation of a Celery task that calls providers."""

from typing import Any, ClassVar

from django.http import HttpRequest
from unfold.decorators import display

from ergon_site.access.console.cells import UNKNOWN, column, tag, unbroken, words
from ergon_site.access.console.lists import typed
from ergon_site.access.console.pages import registered
from ergon_site.access.core.durations import span
from providers.admin import cells
from providers.admin.lists import TENANT, KeysetDetailPage, offered
from providers.models import ProviderExecutionMetric, TaskExecution
from providers.reads import lists

SHOWN = 50


@registered(TaskExecution)
class TaskExecutionsPage(KeysetDetailPage):
    looked_for = staticmethod(lists.tasks)
    detail_template = "console/task_execution.html"
    empty_text = "Each run of a CeleryProviderTask is recorded here."
    list_display = ("begun", "task", "word", "lasted", "whose", "celery_id")
    list_filter: ClassVar = [
        *(offered("state", kind="task execution"), TENANT, typed("task", help_text="Full name")),
        typed("waits_for", "waits for", help_text="provider/capability, with a tenant"),
    ]
    search_help_text = "A Celery task id"
    export_fields = ("id", "task_name", "celery_task_id", "tenant_id", "state", "started_at", "finished_at")

    begun = column("started", lambda row: row.started_at)
    task = column("task", lambda row: words(row.task_name))
    word = column("state", lambda row: tag(row.state, "task execution"))

    @display(description="duration")
    def lasted(self, row: TaskExecution) -> str:
        if row.finished_at is None:
            return UNKNOWN
        return unbroken(span((row.finished_at - row.started_at).total_seconds()))

    whose = column("tenant", lambda row: words(row.tenant_id))
    celery_id = column("Celery id", lambda row: words(row.celery_task_id))

    def details(self, request: HttpRequest, row: TaskExecution) -> dict[str, Any]:
        made = ProviderExecutionMetric.objects.filter(task_execution=row).order_by("id")[:SHOWN]
        return {
            "task": row,
            "word": self.word(row),
            "lasted": self.lasted(row),
            "others": [cells.attempt(one) for one in made],
        }
