"""Policies, the pipelines that they govern, and the schedules that submit to those."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from engines.core.errors import PolicyError
from engines.core.policy import ConsumerPolicy, ProducerPolicy
from ergon_site.access.policies.models import PolicyRow, VersionRow

NAME = 100
DIRECTIONS = [("inbound", "inbound"), ("outbound", "outbound")]
KINDS = [("consumer", "consumer"), ("producer", "producer")]
VALUES: dict[str, type[ConsumerPolicy | ProducerPolicy]] = {"consumer": ConsumerPolicy, "producer": ProducerPolicy}


class Policy(PolicyRow):
    """A policy of pipelines: a name, and its active version."""

    name = models.CharField(max_length=NAME, unique=True)
    kind = models.CharField(max_length=10, choices=KINDS)
    active = models.OneToOneField("PolicyVersion", null=True, on_delete=models.RESTRICT, related_name="+")

    class Meta:
        verbose_name_plural = "policies"
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(kind__in=["consumer", "producer"]), name="engines_policy_kind"),
        ]

    @property
    def value_class(self) -> type[ConsumerPolicy | ProducerPolicy]:
        if self.kind not in VALUES:
            msg = f"a policy is of the kind consumer or producer, not {self.kind!r}"
            raise PolicyError(msg)
        return VALUES[self.kind]


class PolicyVersion(VersionRow):
    """A version of a policy, with author and reason. Append-only: the database refuses to change it."""

    policy = models.ForeignKey(Policy, on_delete=models.RESTRICT, related_name="versions")


class PolicyRehearsal(models.Model):
    """A policy that was tried on recorded transactions before it was saved, and the figures of that."""

    STATES: ClassVar = [(word, word) for word in ("waiting", "done", "failed", "cancelled")]

    policy = models.ForeignKey(Policy, on_delete=models.RESTRICT, related_name="rehearsals")
    version = models.ForeignKey(
        PolicyVersion,
        null=True,
        on_delete=models.RESTRICT,
        related_name="rehearsals",
        help_text="The version that was saved after it.",
    )
    body = models.JSONField()
    by = models.CharField(max_length=150)
    state = models.CharField(max_length=10, choices=STATES, default="waiting")
    note = models.TextField(blank=True, help_text="Why it failed.")
    result = models.JSONField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["id"], condition=Q(state="waiting"), name="engines_rehearsal_waiting")
        ]

    def __str__(self) -> str:
        return f"rehearsal {self.pk} of {self.policy}"


class Pausable(models.Model):
    """A row that can be paused: since when, by whom and why."""

    paused_at = models.DateTimeField(null=True, blank=True)
    paused_by = models.CharField(max_length=150, blank=True)
    pause_reason = models.TextField(blank=True)

    class Meta:
        abstract = True

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None


class Pipeline(Pausable):
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
    keep_succeeded_days = models.PositiveIntegerField(
        default=7, help_text="Days until succeeded transactions are pruned."
    )
    keep_failed_days = models.PositiveIntegerField(default=90, help_text="Days until failed transactions are pruned.")
    redacted = models.JSONField(default=list, blank=True, help_text="Payload fields that are hidden until revealed.")
    summary = models.JSONField(
        default=list,
        db_default=models.Value([], models.JSONField()),
        blank=True,
        help_text="Payload fields that lists of transactions show; without any, the first ones.",
    )
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


class Schedule(Pausable):
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
