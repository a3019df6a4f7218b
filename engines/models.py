"""Rows of the engines: policies and pipelines, transactions and their attempts, dead letters, workers, schedules.

Only the verbs write them. Hot tables carry no foreign keys in the database: each would cost more than the row itself,
and what they point at is never deleted.
"""

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from engines.core.states import GroupState, LetterState, State, WorkerState

STATES = [(state.value, state.word) for state in State]
DIRECTIONS = [("inbound", "inbound"), ("outbound", "outbound")]
KINDS = [("consumer", "consumer"), ("producer", "producer")]
NAME = 100


def _words(states: Any) -> list[tuple[str, str]]:
    return [(state.value, state.value) for state in states]


class Policy(models.Model):
    """How pipelines run: a name, and which of its versions is in force."""

    name = models.CharField(max_length=NAME, unique=True)
    kind = models.CharField(max_length=10, choices=KINDS)
    active = models.OneToOneField("PolicyVersion", null=True, on_delete=models.RESTRICT, related_name="+")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "policies"
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(kind__in=["consumer", "producer"]), name="engines_policy_kind"),
        ]

    def __str__(self) -> str:
        return self.name


class PolicyVersion(models.Model):
    """What a policy said at one time, by whom and why. Written once: the database refuses to change it."""

    policy = models.ForeignKey(Policy, on_delete=models.RESTRICT, related_name="versions")
    number = models.PositiveIntegerField()
    body = models.JSONField()
    changes = models.JSONField(default=list, help_text="What differs from the version in force when it was written.")
    author = models.CharField(max_length=150)
    reason = models.TextField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering: ClassVar = ["-number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["policy", "number"], name="engines_policyversion_number"),
        ]

    def __str__(self) -> str:
        return f"{self.policy.name} v{self.number}"


class Pipeline(models.Model):
    """A task or an executor, a connector and a policy, under a name; it can be paused."""

    name = models.CharField(max_length=NAME, unique=True)
    task = models.CharField(max_length=200, blank=True, help_text="The registered name of the task that runs here.")
    executor = models.CharField(max_length=NAME, blank=True, help_text="Or the executor that runs its handlers.")
    direction = models.CharField(max_length=10, choices=DIRECTIONS, default="inbound")
    connector = models.CharField(max_length=NAME, default="database", help_text="Where its transactions come from.")
    policy = models.ForeignKey(Policy, on_delete=models.RESTRICT, related_name="pipelines")
    priority = models.IntegerField(default=0, help_text="Of transactions that are submitted without one.")
    is_enabled = models.BooleanField(default=True, help_text="Served by a consumer that names no pipelines.")
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_by = models.CharField(max_length=150, blank=True)
    pause_reason = models.TextField(blank=True)
    keep_succeeded_days = models.PositiveIntegerField(default=7, help_text="Then succeeded ones are pruned.")
    keep_failed_days = models.PositiveIntegerField(default=90, help_text="Then failed ones are pruned.")
    redacted = models.JSONField(default=list, blank=True, help_text="Payload fields that pages hide until revealed.")
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


class Schedule(models.Model):
    """Submits the same transaction again and again; fired once, however many fire."""

    CATCH_UP: ClassVar = [
        ("one", "one run for all that were missed"),
        ("all", "every run that was missed"),
        ("none", "none that was missed"),
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
    replay_of = models.BigIntegerField(null=True, help_text="The record that this one runs again.")
    payload_changes = models.JSONField(null=True, help_text="How the payload differs from that record's.")
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

    class Meta:
        verbose_name = "transaction"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(
                "pipeline", models.F("priority").desc(), "available_at", "id", name="t_claim", condition=Q(state=0)
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


class Attempt(models.Model):
    """One try of one step. `delivery` is the fencing token of the lease that it ran under."""

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


class DeadLetterGroup(models.Model):
    """Dead letters of one kind: the same failure of the same step of the same source."""

    fingerprint = models.CharField(max_length=32, unique=True)
    source = models.CharField(max_length=200, help_text="The pipeline or provider that failed.")
    step = models.CharField(max_length=20)
    category = models.CharField(max_length=10)
    error_type = models.CharField(max_length=200)
    message = models.TextField(help_text="Without what differs from case to case.")
    state = models.CharField(max_length=10, choices=_words(GroupState), default=GroupState.OPEN.value)
    total = models.PositiveIntegerField(default=0)
    open_count = models.IntegerField(default=0)
    first_seen_at = models.DateTimeField(db_default=Now())
    last_seen_at = models.DateTimeField(db_default=Now())
    decided_by = models.CharField(max_length=150, blank=True)
    decision_reason = models.TextField(blank=True)

    class Meta:
        verbose_name = "dead-letter group"
        ordering: ClassVar = ["-last_seen_at", "-id"]
        indexes: ClassVar = [
            models.Index(fields=["-last_seen_at", "-id"], name="engines_group_newest"),
            models.Index(fields=["state", "-last_seen_at"], name="engines_group_state"),
            models.Index(fields=["source", "-last_seen_at"], name="engines_group_source"),
        ]

    def __str__(self) -> str:
        return f"{self.error_type}: {self.message}" if self.message else self.error_type


class DeadLetterHour(models.Model):
    """How many dead letters of a group came in one hour: its trend."""

    group = models.ForeignKey(DeadLetterGroup, on_delete=models.CASCADE, related_name="hours")
    hour = models.DateTimeField()
    count = models.PositiveIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["group", "hour"], name="engines_group_hour"),
        ]

    def __str__(self) -> str:
        return f"{self.count} in the hour of {self.hour:%Y-%m-%d %H}:00"


class DeadLetter(models.Model):
    """A terminal failure that waits for a person, with all that is needed to understand and replay it."""

    group = models.ForeignKey(DeadLetterGroup, on_delete=models.RESTRICT, related_name="letters")
    transaction_id = models.BigIntegerField(null=True, unique=True, help_text="Its record, where there is one.")
    uid = models.CharField("transaction", max_length=200)
    source = models.CharField(max_length=200)
    state = models.CharField(max_length=10, choices=_words(LetterState), default=LetterState.OPEN.value)
    step = models.CharField(max_length=20)
    category = models.CharField(max_length=10)
    error_type = models.CharField(max_length=200)
    message = models.TextField()
    traceback = models.TextField(blank=True)
    payload = models.JSONField(null=True, help_text="Only where no record keeps it.")
    details = models.JSONField(default=dict, help_text="What else its source knows: attempts, policy, worker, trace.")
    created_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True)
    settled_by = models.CharField(max_length=150, blank=True)
    reason = models.TextField(blank=True)
    replayed_as = models.CharField(max_length=200, blank=True)

    class Meta:
        verbose_name = "dead letter"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["group", "-id"], name="engines_letter_group"),
            models.Index(fields=["state", "-id"], name="engines_letter_state"),
            models.Index(fields=["source", "-id"], name="engines_letter_source"),
            models.Index(fields=["category", "-id"], name="engines_letter_category"),
            models.Index(fields=["uid"], name="engines_letter_uid", opclasses=["varchar_pattern_ops"]),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(state="open", settled_at__isnull=True) | ~Q(state="open") & Q(settled_at__isnull=False),
                name="engines_letter_settled",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.uid}: {self.error_type}"


class Worker(models.Model):
    """A process that runs transactions."""

    host = models.CharField(max_length=255)
    pid = models.IntegerField()
    pipelines = models.JSONField(default=list)
    state = models.CharField(max_length=10, choices=_words(WorkerState), default=WorkerState.RUNNING.value)
    in_flight = models.IntegerField(default=0)
    abandoned = models.IntegerField("abandoned attempts", default=0)
    settled = models.BigIntegerField(default=0)
    lease = models.FloatField(help_text="Seconds without a heartbeat after which its work is rescued.")
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())
    stopped_at = models.DateTimeField(null=True)
    note = models.TextField(blank=True)

    class Meta:
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [models.Index(fields=["state", "-heartbeat_at"], name="engines_worker_alive")]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class Throughput(models.Model):
    """What a worker did for a pipeline in one minute. Maintenance folds workers, and later minutes, together."""

    pk = models.CompositePrimaryKey("pipeline_id", "minute", "worker")
    pipeline = models.ForeignKey(Pipeline, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False)
    minute = models.DateTimeField()
    worker = models.BigIntegerField(default=0)
    succeeded = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    cancelled = models.BigIntegerField(default=0)
    seconds = models.FloatField(default=0, help_text="Spent in handlers, all attempts together.")
    longest = models.FloatField(default=0)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["minute"], name="engines_throughput_minute")]

    def __str__(self) -> str:
        return f"{self.pipeline_id} at {self.minute:%H:%M}: {self.succeeded} succeeded, {self.failed} failed"


class WaitingSample(models.Model):
    """What waited at one minute: in one pipeline, if anything did, and (as pipeline 0) in all of them together."""

    pk = models.CompositePrimaryKey("pipeline_id", "minute")
    pipeline_id = models.BigIntegerField()
    minute = models.DateTimeField()
    waiting = models.BigIntegerField()
    is_capped = models.BooleanField(default=False, help_text="More than were counted.")
    oldest_age = models.FloatField(null=True, help_text="Seconds for which the first one was due.")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["minute"], name="engines_waiting_minute")]

    def __str__(self) -> str:
        return f"{self.pipeline_id} at {self.minute:%H:%M}: {self.waiting} waiting"


class Leadership(models.Model):
    """Who does the chores that one process does for all, and until when."""

    name = models.CharField(max_length=NAME, unique=True)
    holder = models.CharField(max_length=300)
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name}: {self.holder}"


class BulkOperation(models.Model):
    """One decision about many dead letters: who, why, which, how fast, and what came of each."""

    STATES: ClassVar = [(word, word) for word in ("running", "paused", "done", "cancelled", "stopped")]
    VERBS: ClassVar = [("replay", "replay"), ("discard", "discard")]

    verb = models.CharField(max_length=10, choices=VERBS)
    group = models.ForeignKey(DeadLetterGroup, on_delete=models.RESTRICT, related_name="operations")
    filter = models.JSONField(default=dict)
    by = models.CharField(max_length=150)
    reason = models.TextField()
    state = models.CharField(max_length=10, choices=STATES, default="running")
    note = models.TextField(blank=True, help_text="Why it stopped by itself.")
    expected = models.PositiveIntegerField(help_text="How many it would concern when it was begun.")
    cap = models.PositiveIntegerField(help_text="It never touches more.")
    canary = models.PositiveIntegerField(default=0, help_text="So many first; the rest once they have succeeded.")
    rate = models.FloatField(default=10, help_text="Per second.")
    last_letter = models.BigIntegerField(default=0)
    done = models.PositiveIntegerField(default=0)
    skipped = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    moved_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "bulk operation"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [models.Index(fields=["state", "id"], name="engines_bulk_state")]

    def __str__(self) -> str:
        return f"{self.verb} of {self.group}"


class BulkItem(models.Model):
    """What a bulk operation did with one dead letter."""

    operation = models.ForeignKey(BulkOperation, on_delete=models.CASCADE, related_name="items")
    letter = models.ForeignKey(DeadLetter, on_delete=models.CASCADE, related_name="+")
    result = models.CharField(max_length=10, choices=[(word, word) for word in ("done", "skipped", "failed")])
    note = models.TextField(blank=True)

    class Meta:
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["operation", "letter"], name="engines_bulk_item"),
        ]

    def __str__(self) -> str:
        return f"{self.letter}: {self.result}"
