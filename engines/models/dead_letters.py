"""Terminal failures that wait for a person, in groups of one kind, and decisions about many of them at once."""

from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from engines.core.states import GroupState, LetterState

GROUP_STATES = [(state.value, state.value) for state in GroupState]
LETTER_STATES = [(state.value, state.value) for state in LetterState]
# A bulk operation of which not every replay has been seen to end.
REPLAYS_RUN = Q(
    verb="replay", done__gt=F("replays_succeeded") + F("replays_failed") + F("replays_cancelled") + F("replays_lost")
)


class DeadLetterGroup(models.Model):
    """Dead letters of one kind: the same failure of the same step of the same source."""

    fingerprint = models.CharField(max_length=32, unique=True)
    source = models.CharField(max_length=200, help_text="The pipeline or provider that failed.")
    step = models.CharField(max_length=20)
    category = models.CharField(max_length=10)
    error_type = models.CharField(max_length=200)
    message = models.TextField(help_text="Without the parts that vary, such as numbers and ids.")
    state = models.CharField(max_length=10, choices=GROUP_STATES, default=GroupState.OPEN.value)
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
    """The number of dead letters of a group in one hour: its trend."""

    group = models.ForeignKey(DeadLetterGroup, on_delete=models.CASCADE, related_name="hours")
    hour = models.DateTimeField()
    count = models.PositiveIntegerField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["group", "hour"], name="engines_group_hour")]

    def __str__(self) -> str:
        return f"{self.count} in the hour of {self.hour:%Y-%m-%d %H}:00"


class DeadLetter(models.Model):
    """A terminal failure that waits for a person, with all that is needed to understand and replay it."""

    group = models.ForeignKey(DeadLetterGroup, on_delete=models.RESTRICT, related_name="letters")
    transaction_id = models.BigIntegerField(
        null=True, unique=True, help_text="The transaction, if it is kept in the database."
    )
    draft_id = models.UUIDField(
        null=True, help_text="The failure that it tells of, if recording that may have to be tried again."
    )
    uid = models.CharField("transaction", max_length=200)
    source = models.CharField(max_length=200)
    state = models.CharField(max_length=10, choices=LETTER_STATES, default=LetterState.OPEN.value)
    step = models.CharField(max_length=20)
    category = models.CharField(max_length=10)
    error_type = models.CharField(max_length=200)
    message = models.TextField()
    traceback = models.TextField(blank=True)
    payload = models.JSONField(null=True, help_text="Only if no transaction in the database keeps it.")
    details = models.JSONField(
        default=dict, help_text="Attempts, policy, worker and trace, as far as the source knows them."
    )
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
            models.Index(
                fields=["group", "-settled_at"], name="engines_letter_settled_at", condition=Q(settled_at__isnull=False)
            ),
            models.Index(fields=["source", "-id"], name="engines_letter_source"),
            models.Index(fields=["category", "-id"], name="engines_letter_category"),
            models.Index(fields=["uid"], name="engines_letter_uid", opclasses=["varchar_pattern_ops"]),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(state="open", settled_at__isnull=True) | ~Q(state="open") & Q(settled_at__isnull=False),
                name="engines_letter_settled",
            ),
            models.UniqueConstraint(
                fields=["draft_id"], name="engines_letter_draft", condition=Q(draft_id__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.uid}: {self.error_type}"


class BulkOperation(models.Model):
    """A decision about many rows: by whom, why, which, at which rate, and the result of each."""

    STATES: ClassVar = [(word, word) for word in ("running", "paused", "done", "cancelled", "stopped")]

    verb = models.CharField(max_length=10)
    kind = models.CharField(
        max_length=20, default="dead_letter", db_default="dead_letter", help_text="The kind of rows it acts on."
    )
    group = models.ForeignKey(
        DeadLetterGroup,
        null=True,
        on_delete=models.RESTRICT,
        related_name="operations",
        help_text="The group of dead letters, if it concerns the open ones of a single group.",
    )
    filter = models.JSONField(default=dict)
    dry_run = models.JSONField(
        default=dict,
        db_default=models.Value({}, models.JSONField()),
        help_text="The number of rows that it would act on when it was started, and why others would be skipped.",
    )
    by = models.CharField(max_length=150)
    reason = models.TextField()
    state = models.CharField(max_length=10, choices=STATES, default="running")
    note = models.TextField(blank=True, help_text="Why it stopped automatically.")
    expected = models.PositiveIntegerField(help_text="Rows that it concerned when it was started.")
    cap = models.PositiveIntegerField(help_text="It processes at most this many.")
    canary = models.PositiveIntegerField(default=0, help_text="Replay this many first; continue only if they succeed.")
    rate = models.FloatField(default=10, help_text="Rows per second.")
    last_letter = models.BigIntegerField(default=0)
    cursor = models.TextField(default="", db_default="", help_text="Where it goes on in the rows of its filter.")
    done = models.PositiveIntegerField(default=0)
    skipped = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    # Of the replays that it has started: how they ended, counted as they end.
    replays_succeeded = models.PositiveIntegerField(default=0, db_default=0)
    replays_failed = models.PositiveIntegerField(default=0, db_default=0)
    replays_cancelled = models.PositiveIntegerField(default=0, db_default=0)
    replays_lost = models.PositiveIntegerField(default=0, db_default=0, help_text="Deleted before their end was seen.")
    followed = models.BigIntegerField(default=0, db_default=0, help_text="The last item whose replay was looked at.")
    created_at = models.DateTimeField(db_default=Now())
    moved_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "bulk operation"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["state", "id"], name="engines_bulk_state"),
            models.Index(fields=["id"], name="engines_bulk_followed", condition=REPLAYS_RUN),
        ]

    def __str__(self) -> str:
        return f"{self.verb} of {self.group}" if self.group_id else f"{self.verb} {self.kind.replace('_', ' ')}s"

    @property
    def processed(self) -> int:
        return self.done + self.skipped + self.failed


class BulkItem(models.Model):
    """The result of a bulk operation for one row."""

    operation = models.ForeignKey(BulkOperation, on_delete=models.CASCADE, related_name="items")
    letter = models.ForeignKey(DeadLetter, null=True, on_delete=models.CASCADE, related_name="+")
    target = models.BigIntegerField(null=True, help_text="The key of the row.")
    label = models.CharField(max_length=300, default="", db_default="", help_text="The row as people name it.")
    result = models.CharField(max_length=10, choices=[(word, word) for word in ("done", "skipped", "failed")])
    note = models.TextField(blank=True)
    outcome = models.CharField(
        max_length=10,
        default="",
        db_default="",
        help_text="How its replay ended: succeeded, failed, cancelled or lost; empty while it runs.",
    )

    class Meta:
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["operation", "letter"], name="engines_bulk_item")]
        indexes: ClassVar = [
            models.Index(fields=["operation", "id"], name="engines_bulk_runs", condition=Q(result="done", outcome="")),
        ]

    def __str__(self) -> str:
        return f"{self.label or self.letter}: {self.result}"
