"""Rows of the boundary. Facts are written once: the database refuses to change them, or to remove them out of order."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from facts.core.artifacts import Damage
from facts.core.gates import Gate
from facts.core.peers import token_name


class Retirable(models.Model):
    """Something that people can retire: its row stays, and it is not used any more."""

    retired_at = models.DateTimeField(null=True)
    retired_by = models.CharField(max_length=150, null=True)  # noqa: DJ001 (older code leaves it out)
    retired_reason = models.TextField(null=True)  # noqa: DJ001

    class Meta:
        abstract = True

    @property
    def is_retired(self) -> bool:
        return self.retired_at is not None


class Zone(Retirable):
    """A place with a life of its own; names are matched exactly."""

    name = models.CharField(max_length=256, unique=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


class Boundary(Retirable):
    """From one zone to another: the counters of its store buffer, the frontier of its forward buffer, its gate."""

    from_zone = models.ForeignKey(Zone, on_delete=models.PROTECT, related_name="+")
    to_zone = models.ForeignKey(Zone, on_delete=models.PROTECT, related_name="+")
    next_offset = models.BigIntegerField(db_default=0, default=0, help_text="The offset of the next fact.")
    first_offset = models.BigIntegerField(
        db_default=0, default=0, help_text="The offset of the oldest fact that has not been removed."
    )
    removed_offset = models.BigIntegerField(
        null=True, help_text="Facts below this offset have been removed; empty if none."
    )
    stored_bytes = models.BigIntegerField(db_default=0, default=0)
    row_ceiling = models.BigIntegerField(
        null=True, blank=True, help_text="Maximum number of facts; empty means no limit."
    )
    byte_ceiling = models.BigIntegerField(null=True, blank=True, help_text="Maximum bytes; empty means no limit.")
    keep_days = models.PositiveIntegerField(
        default=30, help_text="Facts older than this may be removed once every consumer has confirmed them."
    )
    dedupe_days = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Days that message ids are remembered after truncation; empty means 30 more than keep_days.",
    )
    frontier = models.BigIntegerField(
        db_default=-1, default=-1, help_text="The forward buffer is complete up to this offset."
    )
    gate = models.CharField(max_length=12, choices=[(one.value, one.value) for one in Gate], default=Gate.NORMAL.value)
    gate_at = models.DateTimeField(db_default=Now())
    gate_by = models.CharField(max_length=150, blank=True, help_text="Who closed it; empty if failures did.")
    gate_reason = models.TextField(blank=True)
    failures = models.PositiveIntegerField(default=0, help_text="Consecutive failed handoffs.")
    alarm = models.TextField(blank=True, help_text="Why handoff has stopped until a person decides.")
    alarm_offset = models.BigIntegerField(null=True, help_text="The first offset that the alarm names, if any.")
    alarm_last = models.BigIntegerField(null=True, help_text="The last offset that the alarm names.")
    source_url = models.URLField(
        max_length=500, blank=True, help_text="The address of the peer to pull from; empty means this database."
    )
    # A name in ERGON_PEER_TOKENS; earlier releases wrote a path, which is never opened (see `source_token`).
    source_token_file = models.CharField(
        max_length=500, blank=True, help_text="The name of the file with the peer's token."
    )
    source_consumer = models.CharField(max_length=100, blank=True, help_text="The consumer at the peer to read as.")
    # Empty means no: with a default, SQLite would make the table anew, and triggers of other tables refer to it.
    with_artifacts = models.BooleanField(
        null=True, help_text="Whether artifacts are pulled from the peer before the facts that refer to them."
    )
    source_head = models.BigIntegerField(null=True, help_text="The peer's newest offset, as of its last answer.")
    heard_at = models.DateTimeField(null=True, help_text="When the last handoff from the peer was completed.")
    handed_over_at = models.DateTimeField(null=True)
    held_by = models.CharField(max_length=150, null=True, help_text="The process that forwards this boundary.")  # noqa: DJ001
    held_until = models.DateTimeField(null=True, help_text="When another process may take over.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "boundaries"
        ordering: ClassVar = ["from_zone__name", "to_zone__name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["from_zone", "to_zone"], name="facts_boundary_pair"),
            models.CheckConstraint(condition=~Q(from_zone=models.F("to_zone")), name="facts_boundary_two_zones"),
            models.CheckConstraint(
                condition=Q(first_offset__gte=0, next_offset__gte=0, frontier__gte=-1), name="facts_boundary_offsets"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.from_zone} → {self.to_zone}"

    @property
    def zones(self) -> tuple[str, str]:
        return self.from_zone.name, self.to_zone.name

    @property
    def is_remote(self) -> bool:
        return bool(self.source_url)

    @property
    def source_token(self) -> str:
        """The name of the peer's token in ERGON_PEER_TOKENS."""
        return token_name(self.source_token_file)


class BoundarySample(models.Model):
    """How far a boundary was at one minute."""

    pk = models.CompositePrimaryKey("boundary_id", "minute")
    boundary_id = models.BigIntegerField()
    minute = models.DateTimeField()
    newest = models.BigIntegerField(help_text="The offset of the newest fact.")
    reached = models.BigIntegerField(help_text="The offset up to which every reader has the facts.")
    backlog = models.BigIntegerField()
    lag = models.FloatField(help_text="Seconds since the oldest fact of the backlog was written.")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["minute"], name="facts_sample_minute")]

    def __str__(self) -> str:
        return f"{self.boundary_id} at {self.minute:%H:%M}: {self.newest}"


class Written(models.Model):
    """The columns of a fact in either buffer."""

    # A trigger keeps boundaries that have facts: to check the key of every fact would cost as much as to insert it.
    boundary = models.ForeignKey(
        Boundary, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    offset = models.BigIntegerField()
    message_id = models.CharField(max_length=1000)
    subject = models.CharField(max_length=2000)
    predicate = models.CharField(max_length=500)
    correlation_id = models.CharField(max_length=256, null=True)  # noqa: DJ001 (most have none, and no index entry)
    causation_id = models.CharField(max_length=1000, null=True)  # noqa: DJ001
    content = models.TextField(help_text="Envelope and fact as canonical JSON.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the content.")
    written_at = models.DateTimeField(db_default=Now())

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.message_id} at {self.offset}"


def _indexes(buffer: str) -> list[models.Index]:
    """The indexes of either buffer; most facts have no entry in the last two."""
    return [
        models.Index(fields=["subject", "offset"], name=f"facts_{buffer}_subject"),
        *(
            models.Index(
                fields=[f"{name}_id", "offset"],
                name=f"facts_{buffer}_{name}",
                condition=Q((f"{name}_id__isnull", False)),
            )
            for name in ("correlation", "causation")
        ),
    ]


class Fact(Written):
    """A fact in the store buffer of its boundary."""

    pk = models.CompositePrimaryKey("boundary_id", "offset")
    transaction_id = models.CharField(  # noqa: DJ001 (most have none, and no index entry)
        max_length=200, null=True, help_text="The transaction whose handler appended it."
    )

    class Meta:
        ordering: ClassVar = ["boundary_id", "offset"]
        indexes: ClassVar = [
            *_indexes("fact"),
            models.Index(
                fields=["transaction_id", "offset"],
                name="facts_fact_transaction",
                condition=Q(transaction_id__isnull=False),
            ),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["boundary", "message_id"], name="facts_fact_message"),
            models.CheckConstraint(condition=Q(offset__gte=0), name="facts_fact_offset"),
        ]


class ForwardedFact(Written):
    """A fact in the forward buffer, with the offset that it has at its source."""

    pk = models.CompositePrimaryKey("boundary_id", "offset")

    class Meta:
        ordering: ClassVar = ["boundary_id", "offset"]
        indexes: ClassVar = _indexes("forwarded")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["boundary", "message_id"], name="facts_forwarded_message"),
        ]


class RememberedMessage(models.Model):
    """A message id whose fact was truncated. A repeat still gets its offset, other content is still a conflict."""

    pk = models.CompositePrimaryKey("boundary_id", "message_id")
    boundary = models.ForeignKey(Boundary, on_delete=models.PROTECT, related_name="+", db_index=False)
    message_id = models.CharField(max_length=1000)
    offset = models.BigIntegerField()
    digest = models.CharField(max_length=64)
    truncated_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes: ClassVar = [models.Index(fields=["boundary", "truncated_at"], name="facts_remembered_age")]

    def __str__(self) -> str:
        return f"{self.message_id} at {self.offset}"


class SkippedFact(models.Model):
    """An offset whose fact an administrator decided not to receive. The row explains it for ever."""

    pk = models.CompositePrimaryKey("boundary_id", "offset")
    boundary = models.ForeignKey(Boundary, on_delete=models.PROTECT, related_name="skipped", db_index=False)
    offset = models.BigIntegerField()
    alarm = models.TextField(help_text="Why it was not received.")
    skipped_at = models.DateTimeField(db_default=Now())
    skipped_by = models.CharField(max_length=150)
    reason = models.TextField()

    class Meta:
        ordering: ClassVar = ["boundary_id", "offset"]

    def __str__(self) -> str:
        return f"offset {self.offset}"


class Consumer(Retirable):
    """A reader of a boundary, in order and at its own pace. The cursor is the last confirmed offset."""

    name = models.CharField(max_length=100, unique=True)
    boundary = models.ForeignKey(Boundary, on_delete=models.PROTECT, related_name="consumers")
    cursor = models.BigIntegerField(default=-1)
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=150)
    fetched_at = models.DateTimeField(null=True)
    confirmed_at = models.DateTimeField(null=True)
    held_by = models.CharField(max_length=150, null=True, help_text="The worker process that reads as this consumer.")  # noqa: DJ001
    held_until = models.DateTimeField(null=True, help_text="When another process may take over.")
    started = models.JSONField(
        null=True,
        help_text="By offset: how often a fact was started without finishing after a process had died.",
    )

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(cursor__gte=-1), name="facts_consumer_cursor"),
        ]

    def __str__(self) -> str:
        return self.name


class Artifact(models.Model):
    """Bytes under a key, written once."""

    bucket = models.CharField(max_length=63)
    key = models.CharField(max_length=1024)
    digest = models.CharField(max_length=71, help_text="sha256: and 64 hexadecimal digits.")
    size = models.BigIntegerField()
    media_type = models.CharField(max_length=255)
    stored_as = models.CharField(max_length=300, help_text="Its name in the storage.")
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=150)
    put_at = models.DateTimeField(db_default=Now(), help_text="When it was last uploaded; the age of an orphan.")
    is_referenced = models.BooleanField(default=False, db_default=False)
    is_whole = models.BooleanField(
        default=True, db_default=True, help_text="False if the upload may have been interrupted."
    )
    damage = models.CharField(
        max_length=10,
        choices=[(one.value, one.value) for one in Damage],
        default="",
        db_default="",
        blank=True,
        help_text="What was wrong with the stored bytes when they were last read; empty if nothing.",
    )
    verified_at = models.DateTimeField(null=True, help_text="When the bytes were last compared with the digest.")

    class Meta:
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["put_at"], name="facts_artifact_orphans", condition=Q(is_referenced=False)),
            models.Index(fields=["id"], name="facts_artifact_damaged", condition=~Q(damage="")),
            models.Index(fields=["verified_at"], name="facts_artifact_verified"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["bucket", "key"], name="facts_artifact_key"),
            models.UniqueConstraint(fields=["stored_as"], name="facts_artifact_stored_as"),
        ]

    def __str__(self) -> str:
        return f"{self.bucket}/{self.key}"


class ArtifactReference(models.Model):
    """A fact that is about an artifact."""

    artifact = models.ForeignKey(Artifact, on_delete=models.PROTECT, related_name="references")
    boundary = models.ForeignKey(Boundary, on_delete=models.PROTECT, related_name="+")
    offset = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["artifact", "boundary", "offset"], name="facts_reference_once"),
        ]

    def __str__(self) -> str:
        return f"offset {self.offset}"
