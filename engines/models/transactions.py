"""Transactions and their attempts, which are the hot tables, and what ended and waited minute by minute."""

from typing import Any, ClassVar

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.db.models.lookups import Exact

from engines.core.states import State
from engines.models.pipelines import Pipeline

STATES = [(state.value, state.word) for state in State]


class TransactionRecord(models.Model):
    """A transaction that is kept until it has ended, and a while longer."""

    uid = models.CharField("id", max_length=200)
    pipeline = models.ForeignKey(Pipeline, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False)
    state = models.SmallIntegerField(choices=STATES, db_default=State.PENDING.value, default=State.PENDING.value)
    priority = models.IntegerField(default=0)
    available_at = models.DateTimeField(db_default=Now())
    payload = models.JSONField(null=True)
    metadata = models.JSONField(default=dict)
    dedupe_key = models.CharField(max_length=200, null=True)
    correlation_id = models.CharField(max_length=200, null=True)
    parent_id = models.CharField(max_length=200, null=True)
    source = models.CharField(max_length=200, null=True)
    trace_context = models.JSONField(null=True)
    replay_of = models.BigIntegerField(null=True, help_text="The transaction that this one replays.")
    payload_changes = models.JSONField(null=True, help_text="Changes to the payload of the original.")
    lease_owner = models.BigIntegerField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    fencing_token = models.BigIntegerField(db_default=0, default=0)
    attempts = models.IntegerField("deliveries", db_default=0, default=0)
    rescues = models.SmallIntegerField(db_default=0, default=0)
    policy_version = models.BigIntegerField(null=True)
    result = models.JSONField(null=True)
    error = models.JSONField(null=True)
    category = models.SmallIntegerField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True, help_text="When its end was requested while it ran.")

    class Meta:
        verbose_name = "transaction"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(
                "pipeline", models.F("priority").desc(), "available_at", "id", name="t_claim", condition=Q(state=0)
            ),
            # For claims that go by age alone. "+ 0" keeps all other statements from it, which would have to sort.
            models.Index(
                fields=["pipeline", "available_at", "id"], name="t_age", condition=Q(Exact(F("state") + 0, 0))
            ),
            # Not "while running": statistics would say that there are no such rows, and plans would believe them.
            models.Index(fields=["lease_expires_at"], name="t_lease", condition=Q(lease_expires_at__isnull=False)),
            # Finished ones only: a burst onto an empty queue must not find a list index more tempting than t_claim.
            models.Index(
                "pipeline",
                "state",
                models.F("created_at").desc(),
                "id",
                name="t_list",
                condition=Q(finished_at__isnull=False),
            ),
            models.Index(fields=["state", "-id"], name="t_ended_badly", condition=Q(state__gt=2)),
            models.Index(
                fields=["correlation_id", "id"], name="t_correlation", condition=Q(correlation_id__isnull=False)
            ),
            models.Index(fields=["replay_of"], name="t_replays", condition=Q(replay_of__isnull=False)),
            models.Index(fields=["parent_id", "id"], name="t_children", condition=Q(parent_id__isnull=False)),
        ]
        constraints: ClassVar = [
            # By pattern: one index serves both the id and its beginning.
            models.UniqueConstraint(fields=["uid"], name="t_uid", opclasses=["varchar_pattern_ops"]),
            models.UniqueConstraint(
                fields=["pipeline", "dedupe_key"], name="t_dedupe", condition=Q(dedupe_key__isnull=False)
            ),
            models.CheckConstraint(condition=Q(state__gte=0, state__lte=4), name="t_state"),
            models.CheckConstraint(
                condition=Q(lease_expires_at__isnull=True, lease_owner__isnull=True)
                | Q(state=1, lease_expires_at__isnull=False, lease_owner__isnull=False),
                name="t_leased_while_running",
            ),
            models.CheckConstraint(
                condition=Q(state__lt=2, finished_at__isnull=True) | Q(state__gte=2, finished_at__isnull=False),
                name="t_finished",
            ),
        ]

    def __str__(self) -> str:
        return self.uid

    @property
    def word(self) -> str:
        return State(self.state).word

    @property
    def deliveries(self) -> int:
        """How often it was delivered: a parked retry is counted when it ends, and was delivered all the same."""
        is_parked = self.state == State.PENDING and bool((self.error or {}).get("is_parked"))
        return max(self.attempts, int(is_parked))

    @property
    def failure(self) -> dict[str, Any] | None:
        """The error of a transaction that failed or was put back."""
        return None if self.state == State.SUCCEEDED else self.error

    @property
    def result_note(self) -> str | None:
        """The part of the result that could not be stored, in words that follow "its result is"."""
        return self.error["message"] if self.state == State.SUCCEEDED and self.error else None


class Attempt(models.Model):
    """A try of a step. `delivery` is the fencing token of the lease that it ran under."""

    pk = models.CompositePrimaryKey("transaction_id", "delivery", "step", "number")
    transaction_id = models.BigIntegerField()
    delivery = models.BigIntegerField()
    step = models.SmallIntegerField()
    number = models.IntegerField()
    of_total = models.IntegerField()
    started_at = models.DateTimeField()
    duration = models.FloatField()
    outcome = models.SmallIntegerField()
    category = models.SmallIntegerField(null=True)
    error_type = models.TextField(null=True)
    message = models.TextField(null=True)
    traceback = models.TextField(null=True)
    policy_version = models.BigIntegerField(null=True)
    worker = models.BigIntegerField(null=True)
    trace_id = models.CharField(max_length=32, null=True)

    def __str__(self) -> str:
        return f"{self.transaction_id}/{self.delivery}: step {self.step}, attempt {self.number}"


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


class Durations(models.Model):
    """How long transactions took that ended in one minute, by the buckets of `core.histogram`.

    Of one pipeline, and (as pipeline 0) of all together. Apart from their counts, which every settlement writes:
    columns that it leaves alone would cost it time.
    """

    pk = models.CompositePrimaryKey("pipeline_id", "minute")
    pipeline_id = models.BigIntegerField()
    minute = models.DateTimeField()
    longest = models.FloatField(default=0)
    took_0 = models.BigIntegerField(default=0)
    took_1 = models.BigIntegerField(default=0)
    took_2 = models.BigIntegerField(default=0)
    took_3 = models.BigIntegerField(default=0)
    took_4 = models.BigIntegerField(default=0)
    took_5 = models.BigIntegerField(default=0)
    took_6 = models.BigIntegerField(default=0)
    took_7 = models.BigIntegerField(default=0)
    took_8 = models.BigIntegerField(default=0)
    took_9 = models.BigIntegerField(default=0)
    took_10 = models.BigIntegerField(default=0)
    took_11 = models.BigIntegerField(default=0)
    took_12 = models.BigIntegerField(default=0)
    took_13 = models.BigIntegerField(default=0)
    took_14 = models.BigIntegerField(default=0)
    took_15 = models.BigIntegerField(default=0)
    took_16 = models.BigIntegerField(default=0)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["minute"], name="engines_durations_minute")]

    def __str__(self) -> str:
        return f"{self.pipeline_id} at {self.minute:%H:%M}: at most {self.longest:.3g} s"


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
