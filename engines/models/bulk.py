"""Decisions about many dead letters at once."""

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from engines.models.dead_letters import DeadLetter, DeadLetterGroup


class BulkOperation(models.Model):
    """A decision about many dead letters: by whom, why, which, at which rate, and the result of each."""

    STATES: ClassVar = [(word, word) for word in ("running", "paused", "done", "cancelled", "stopped")]
    VERBS: ClassVar = [("replay", "replay"), ("discard", "discard")]

    verb = models.CharField(max_length=10, choices=VERBS)
    group = models.ForeignKey(DeadLetterGroup, on_delete=models.RESTRICT, related_name="operations")
    filter = models.JSONField(default=dict)
    by = models.CharField(max_length=150)
    reason = models.TextField()
    state = models.CharField(max_length=10, choices=STATES, default="running")
    note = models.TextField(blank=True, help_text="Why it stopped automatically.")
    expected = models.PositiveIntegerField(help_text="Open dead letters when it was started.")
    cap = models.PositiveIntegerField(help_text="It processes at most this many.")
    canary = models.PositiveIntegerField(default=0, help_text="Replay this many first; continue only if they succeed.")
    rate = models.FloatField(default=10, help_text="Replays per second.")
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
    """The result of a bulk operation for one dead letter."""

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
