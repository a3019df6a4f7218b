"""Calls: each attempt, their number in each minute, keys of requests, tasks that make calls, and their dead letters."""

from enum import StrEnum
from typing import ClassVar

from django.db import models
from django.db.models import Q, Value
from django.db.models.functions import Now

from providers.core.exchange import Outcome, Source
from providers.models.columns import KEY, NAME, TENANT, WHO, OfCapability, among, named, words


class TaskState(StrEnum):
    STARTED = "started"
    SUCCEEDED = "succeeded"
    RESCHEDULED = "rescheduled"
    FAILED = "failed"


class TaskExecution(models.Model):
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


class ProviderExecutionMetric(OfCapability):
    """An attempt, written once: the database refuses to change it, and to remove it before its time."""

    task_execution = models.ForeignKey(
        TaskExecution, null=True, blank=True, on_delete=models.PROTECT, related_name="metrics", db_index=False
    )
    operation = models.CharField(max_length=NAME)
    idempotency_key = models.CharField(max_length=KEY)
    correlation_id = models.CharField(max_length=KEY)
    attempt_number = models.PositiveIntegerField()
    max_attempts = models.PositiveIntegerField()
    duration_ms = models.FloatField()
    timeout_budget_ms = models.FloatField(null=True, blank=True)
    outcome = models.CharField(max_length=11, choices=words(Outcome))
    reason_code = models.CharField(max_length=30, null=True, blank=True)
    retryable = models.BooleanField()
    http_status = models.PositiveSmallIntegerField(null=True, blank=True)
    retry_suppressed = models.BooleanField(
        default=False, db_default=False, help_text="Not retried because the retry budget was used up."
    )
    policy_version = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="The policy version of the call; empty if the provider's class sets the policy.",
    )
    call_id = models.CharField(max_length=32, null=True, blank=True, help_text="The same for all attempts of a call.")
    source = models.CharField(
        max_length=8,
        choices=words(Source),
        # Never empty; but only so SQLite adds the column without making the table anew, which would lose its triggers.
        null=True,
        blank=True,
        db_default=Value(Source.PROVIDER.value),
        help_text="Whose answer it is: all but the provider's stand in for it.",
    )
    transaction_id = models.CharField(
        "transaction",
        max_length=KEY,
        null=True,
        blank=True,
        help_text="The transaction that it was made for, if its correlation id is another id.",
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "provider_execution_metrics"
        verbose_name = "attempt"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(
                fields=["tenant_id", "provider_name", "capability", "created_at"], name="provider_metric_capability"
            ),
            models.Index(fields=["tenant_id", "outcome", "created_at"], name="provider_metric_outcome"),
            models.Index(fields=["correlation_id"], name="provider_metric_correlation"),
            models.Index(
                fields=["transaction_id"],
                name="provider_metric_transaction",
                condition=Q(transaction_id__isnull=False),
            ),
            models.Index(
                fields=["task_execution"],
                name="provider_metric_task",
                condition=Q(task_execution__isnull=False),
            ),
        ]
        constraints: ClassVar = [
            among("outcome", Outcome, "provider_metric_outcome_known"),
            models.CheckConstraint(
                condition=Q(attempt_number__gte=1, max_attempts__gte=1, duration_ms__gte=0),
                name="provider_metric_numbers",
            ),
            named("provider_metric"),
        ]


class ProviderMinute(models.Model):
    """The calls of one capability in one minute: counts, and latencies in buckets."""

    gate_id = models.BigIntegerField()
    minute = models.BigIntegerField(help_text="Minutes since 1970.")
    attempts = models.PositiveIntegerField(default=0, db_default=0)
    successes = models.PositiveIntegerField(default=0, db_default=0)
    executions = models.PositiveIntegerField(default=0, db_default=0)
    successful_executions = models.PositiveIntegerField(default=0, db_default=0)
    refusals = models.PositiveIntegerField(default=0, db_default=0)
    cache_hits = models.PositiveIntegerField(default=0, db_default=0)
    stale_answers = models.PositiveIntegerField(default=0, db_default=0)
    fallbacks = models.PositiveIntegerField(default=0, db_default=0)
    buckets = models.JSONField(default=dict, db_default={}, help_text="How many attempts took how long, by bucket.")

    class Meta:
        db_table = "provider_minutes"
        ordering: ClassVar = ["gate_id", "minute"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["gate_id", "minute"], name="provider_minute_of")]

    def __str__(self) -> str:
        return f"{self.attempts} attempts in minute {self.minute}"


class Retention(models.Model):
    """From which time on calls are kept: the database lets go only of older ones. One row."""

    metrics_before = models.DateTimeField()

    class Meta:
        db_table = "provider_retention"

    def __str__(self) -> str:
        return f"calls before {self.metrics_before:%Y-%m-%d %H:%M} may be removed"


class ClaimState(StrEnum):
    CLAIMED = "claimed"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class IdempotencyClaim(OfCapability):
    """A request by its key: under way (for as long as its lease), succeeded with its answer, or failed."""

    key = models.CharField(max_length=KEY)
    operation = models.CharField(max_length=NAME)
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of the request.")
    state = models.CharField(max_length=9, choices=words(ClaimState), default=ClaimState.CLAIMED.value)
    token = models.CharField(max_length=32, help_text="Only its holder may record the outcome.")
    lease_until = models.FloatField(help_text="In progress until then, or its answer is repeated until then.")
    # A text, not a JSON column: an answer may hold what those refuse.
    answer = models.TextField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "provider_idempotency_claims"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [models.Index(fields=["lease_until"], name="provider_claim_lease")]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=[*WHO, "key"], name="provider_claim_key"),
            among("state", ClaimState, "provider_claim_state"),
            named("provider_claim"),
        ]


class CachedAnswer(OfCapability):
    """The newest answer to a request, for whoever asks the same again."""

    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of the request.")
    operation = models.CharField(max_length=NAME)
    answer = models.TextField()
    answered_at = models.FloatField()
    useful_until = models.FloatField(help_text="By the policy of the time; pruned then.")

    class Meta:
        db_table = "provider_cached_answers"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [models.Index(fields=["useful_until"], name="provider_answer_useful")]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=[*WHO, "fingerprint"], name="provider_answer_request"),
            named("provider_answer"),
        ]


class OutboxLetter(models.Model):
    """A dead letter, written with the terminal state and published to `queue.deadletter` afterwards."""

    payload = models.JSONField(help_text="The message that is published.")
    request = models.JSONField(default=dict, help_text="The request, for a replay.")
    dead_letter_id = models.BigIntegerField(null=True, help_text="The dead letter in the console.")
    created_at = models.DateTimeField(db_default=Now())
    published_at = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0, db_default=0, help_text="Failed tries to publish it.")

    class Meta:
        db_table = "provider_outbox_letters"
        verbose_name = "outbox letter"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["id"], name="provider_outbox_waiting", condition=Q(published_at__isnull=True)),
            models.Index(fields=["dead_letter_id"], name="provider_outbox_letter"),
        ]

    def __str__(self) -> str:
        return f"{self.payload.get('provider_name')} {self.payload.get('reason_code')}"
