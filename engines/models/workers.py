"""Processes: those that run transactions, and the one that leads the others in their chores."""

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from engines.core.states import WorkerState
from engines.models.pipelines import NAME

RELEASE = 100
WORKER_STATES = [(state.value, state.value) for state in WorkerState]


class Worker(models.Model):
    """A process that runs transactions."""

    host = models.CharField(max_length=255)
    pid = models.IntegerField()
    pipelines = models.JSONField(default=list)
    state = models.CharField(max_length=10, choices=WORKER_STATES, default=WorkerState.RUNNING.value)
    in_flight = models.IntegerField(default=0)
    abandoned = models.IntegerField("abandoned attempts", default=0)
    settled = models.BigIntegerField(default=0)
    last_tally = models.BigIntegerField(
        default=0, db_default=0, help_text="The number of its last tally that is counted."
    )
    executors = models.JSONField(
        default=list,
        db_default=models.Value([], models.JSONField()),
        help_text="Status of its executors at the last heartbeat.",
    )
    release = models.CharField(
        max_length=RELEASE, blank=True, db_default="", default="", help_text="The release that it runs: ERGON_RELEASE."
    )
    lease = models.FloatField(help_text="Seconds without a heartbeat after which its transactions are rescued.")
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())
    stopped_at = models.DateTimeField(null=True)
    note = models.TextField(blank=True)

    class Meta:
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [models.Index(fields=["state", "-heartbeat_at"], name="engines_worker_alive")]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class Leadership(models.Model):
    """The leader lease of jobs that one process runs for all."""

    name = models.CharField(max_length=NAME, unique=True)
    holder = models.CharField(max_length=300)
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name}: {self.holder}"
