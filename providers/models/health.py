"""The health of a provider's capability."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from providers.core.breaker import BreakerState
from providers.models.columns import WHO, OfCapability, among, named, words


class ProviderHealthState(OfCapability):
    """The health of a capability as of the last call that was settled."""

    breaker_state = models.CharField(
        max_length=9, choices=words(BreakerState), default=BreakerState.CLOSED.value, db_default="closed"
    )
    consecutive_failures = models.PositiveIntegerField(default=0, db_default=0)
    success_rate_1h = models.FloatField(
        null=True, blank=True, help_text="Success rate of attempts; empty without attempts."
    )
    p95_latency_ms_1h = models.FloatField(null=True, blank=True, help_text="Duration of attempts, within 7 %.")
    execution_rate_1h = models.FloatField(
        null=True, blank=True, help_text="Success rate of executions, retries included."
    )
    last_error_code = models.CharField(max_length=30, null=True, blank=True)
    last_error_at = models.DateTimeField(null=True, blank=True)
    last_success_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(db_default=Now())
    attempts_1h = models.PositiveBigIntegerField(default=0, db_default=0)
    rated_at = models.FloatField(null=True, help_text="When the rates were last computed.")
    rated_settlement = models.BigIntegerField(
        default=-1, db_default=-1, help_text="The last settlement included: older figures never replace newer ones."
    )

    class Meta:
        db_table = "provider_health_states"
        verbose_name = "provider health"
        verbose_name_plural = "provider health"
        ordering: ClassVar = [*WHO]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "breaker_state"], name="provider_health_breaker")]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=WHO, name="provider_health_of"),
            among("breaker_state", BreakerState, "provider_health_state"),
            models.CheckConstraint(
                condition=Q(success_rate_1h__isnull=True) | Q(success_rate_1h__gte=0, success_rate_1h__lte=1),
                name="provider_health_rate",
            ),
            named("provider_health"),
        ]
