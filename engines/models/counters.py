"""Numbers minute by minute: what ended, and what waited."""

from typing import ClassVar

from django.db import models

from engines.models.pipelines import Pipeline


class Throughput(models.Model):
    """Counts of a worker for a pipeline in one minute. Maintenance aggregates workers, and later minutes."""

    pk = models.CompositePrimaryKey("pipeline_id", "minute", "worker")
    pipeline = models.ForeignKey(Pipeline, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False)
    minute = models.DateTimeField()
    worker = models.BigIntegerField(default=0)
    succeeded = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    cancelled = models.BigIntegerField(default=0)
    seconds = models.FloatField(default=0, help_text="Seconds spent in handlers, all attempts included.")
    longest = models.FloatField(default=0)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["minute"], name="engines_throughput_minute")]

    def __str__(self) -> str:
        return f"{self.pipeline_id} at {self.minute:%H:%M}: {self.succeeded} succeeded, {self.failed} failed"


class WaitingSample(models.Model):
    """The pending transactions at one minute: of one pipeline, and (as pipeline 0) of all together."""

    pk = models.CompositePrimaryKey("pipeline_id", "minute")
    pipeline_id = models.BigIntegerField()
    minute = models.DateTimeField()
    waiting = models.BigIntegerField()
    is_capped = models.BooleanField(default=False, help_text="Whether there were more than were counted.")
    oldest_age = models.FloatField(null=True, help_text="Seconds since the oldest one was due.")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["minute"], name="engines_waiting_minute")]

    def __str__(self) -> str:
        return f"{self.pipeline_id} at {self.minute:%H:%M}: {self.waiting} waiting"
