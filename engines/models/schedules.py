"""Schedules, which submit transactions by a cron expression."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from engines.models.pipelines import Pipeline
from engines.models.wording import NAME


class Schedule(models.Model):
    """Submits the same transaction again and again; fired once, however many fire."""

    CATCH_UP: ClassVar = [
        ("one", "one run for all missed runs"),
        ("all", "every missed run"),
        ("none", "no missed run"),
    ]

    name = models.CharField(max_length=NAME, unique=True)
    pipeline = models.ForeignKey(Pipeline, on_delete=models.RESTRICT, related_name="schedules")
    cron = models.CharField(max_length=NAME, help_text="Minute, hour, day of month, month, day of week.")
    time_zone = models.CharField(max_length=64, default="UTC")
    payload = models.JSONField(default=dict, null=True, blank=True)
    catch_up = models.CharField(max_length=4, choices=CATCH_UP, default="one")
    next_run_at = models.DateTimeField()
    last_run_at = models.DateTimeField(null=True, blank=True)
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_by = models.CharField(max_length=150, blank=True)
    pause_reason = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering: ClassVar = ["name"]
        indexes: ClassVar = [
            models.Index(fields=["next_run_at"], condition=Q(paused_at=None), name="engines_schedule_due"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(catch_up__in=["one", "all", "none"]), name="engines_schedule_catch_up"),
        ]

    def __str__(self) -> str:
        return self.name
