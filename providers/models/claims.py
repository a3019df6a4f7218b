"""Requests that must not be made twice."""

from enum import StrEnum
from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from providers.models.columns import KEY, NAME, WHO, OfCapability, among, named, words


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
