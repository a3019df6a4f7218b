"""Pipelines: a task or an executor, under a name and a policy."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from engines.models.policies import Policy
from engines.models.wording import NAME

DIRECTIONS = [("inbound", "inbound"), ("outbound", "outbound")]


class Pipeline(models.Model):
    """A task or an executor, a connector and a policy, under a name; it can be paused."""

    name = models.CharField(max_length=NAME, unique=True)
    task = models.CharField(max_length=200, blank=True, help_text="The registered name of the task.")
    executor = models.CharField(
        max_length=NAME, blank=True, help_text="The executor that runs the handlers, instead of a task."
    )
    direction = models.CharField(max_length=10, choices=DIRECTIONS, default="inbound")
    connector = models.CharField(max_length=NAME, default="database", help_text="The source of its transactions.")
    policy = models.ForeignKey(Policy, on_delete=models.RESTRICT, related_name="pipelines")
    priority = models.IntegerField(default=0, help_text="For transactions submitted without a priority.")
    is_enabled = models.BooleanField(
        default=True, help_text="Served by consumers that are started without pipeline names."
    )
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_by = models.CharField(max_length=150, blank=True)
    pause_reason = models.TextField(blank=True)
    keep_succeeded_days = models.PositiveIntegerField(
        default=7, help_text="Days until succeeded transactions are pruned."
    )
    keep_failed_days = models.PositiveIntegerField(default=90, help_text="Days until failed transactions are pruned.")
    redacted = models.JSONField(default=list, blank=True, help_text="Payload fields that are hidden until revealed.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(task="", executor__gt="") | Q(task__gt="", executor=""),
                name="engines_pipeline_task_or_executor",
            ),
            models.CheckConstraint(condition=Q(direction__in=["inbound", "outbound"]), name="engines_pipeline_way"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None
