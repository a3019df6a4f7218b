"""Invocations of Celery tasks that call providers."""

from enum import StrEnum
from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from providers.models.columns import TENANT, among, words


class TaskState(StrEnum):
    STARTED = "started"
    SUCCEEDED = "succeeded"
    RESCHEDULED = "rescheduled"
    FAILED = "failed"


class TaskExecution(models.Model):
    """An invocation of a task."""

    task_name = models.CharField(max_length=200)
    celery_task_id = models.CharField(max_length=200, db_index=True)
    tenant_id = models.CharField("tenant", max_length=TENANT)
    state = models.CharField(
        max_length=11, choices=words(TaskState), default=TaskState.STARTED.value, db_default="started"
    )
    started_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "task_executions"
        verbose_name = "task execution"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "-started_at"], name="task_execution_tenant")]
        constraints: ClassVar = [among("state", TaskState, "task_execution_state")]

    def __str__(self) -> str:
        return f"{self.task_name} {self.celery_task_id}"
