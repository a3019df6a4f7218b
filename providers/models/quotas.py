"""Quotas: how many calls of a capability a tenant may make in each window."""

from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Greatest, Now

from providers.core.exchange import Who
from providers.core.gate import Admission
from providers.database import admitting
from providers.models.columns import WHO, OfCapability, named


class QuotaState(OfCapability):
    """A window of a quota. The gate decides; this is the settled state that people and the API see."""

    window_start = models.DateTimeField()
    window_end = models.DateTimeField()
    limit_count = models.BigIntegerField()
    used_count = models.BigIntegerField(default=0, db_default=0)
    # Computed by the database, so that it cannot drift.
    remaining_count = models.GeneratedField(
        expression=Greatest(F("limit_count") - F("used_count"), 0),
        output_field=models.BigIntegerField(),
        db_persist=True,
    )
    last_exhausted_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "provider_quota_states"
        verbose_name = "quota"
        ordering: ClassVar = ["-window_start", "-id"]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "window_end"], name="provider_quota_tenant_end")]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=[*WHO, "window_start"], name="provider_quota_window"),
            models.CheckConstraint(condition=Q(limit_count__gte=0, used_count__gte=0), name="provider_quota_counts"),
            models.CheckConstraint(condition=Q(window_end__gt=F("window_start")), name="provider_quota_ends"),
            named("provider_quota"),
        ]

    @classmethod
    def reserve(cls, *, tenant_id: str, provider_name: str, capability: str, cost: int = 1) -> Admission:
        """Use so much of the present window, through the gate; raises `ProviderQuotaExceededError` if it is spent."""
        return admitting.reserve(Who(tenant_id, provider_name, capability), cost=cost)
