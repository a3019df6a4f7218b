"""Dead letters on their way to whoever listens."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


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
