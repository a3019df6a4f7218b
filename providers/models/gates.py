"""The gate before each capability: the one row that is asked before every call."""

from datetime import UTC, datetime
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from providers.core.breaker import Breaker, BreakerState
from providers.core.gate import Gate as GateValue, Override
from providers.core.quota import Quota
from providers.models.columns import WHO, OfCapability, words


class Gate(OfCapability):
    """Breaker, quota window, cooldown, retry budget and an operator's override of one capability.

    Times are seconds since 1970. No index but the key's, so that an update never has to touch one.
    """

    state = models.CharField(max_length=9, choices=words(BreakerState), default="closed", db_default="closed")
    generation = models.BigIntegerField(default=0, db_default=0)
    consecutive_failures = models.IntegerField(default=0, db_default=0)
    successes = models.IntegerField(default=0, db_default=0, help_text="Successful probes since it is half open.")
    open_until = models.FloatField(null=True)
    probes = models.JSONField(default=dict, db_default={}, help_text="When each running probe expires.")
    cooldown_until = models.FloatField(null=True, help_text="The provider requested a pause until this time.")
    quota_limit = models.BigIntegerField(null=True)
    quota_window = models.FloatField(null=True, help_text="Seconds.")
    window_start = models.FloatField(null=True)
    window_end = models.FloatField(null=True)
    used = models.BigIntegerField(default=0, db_default=0)
    previous_start = models.FloatField(null=True)
    previous_used = models.BigIntegerField(default=0, db_default=0)
    retry_tokens = models.FloatField(null=True, help_text="Empty means a full budget.")
    override = models.CharField(max_length=6, blank=True, default="", db_default="")
    override_until = models.FloatField(null=True)
    override_reason = models.TextField(blank=True, default="", db_default="")
    override_by = models.CharField(max_length=150, blank=True, default="", db_default="")
    admissions = models.BigIntegerField(default=0, db_default=0)
    settlements = models.BigIntegerField(default=0, db_default=0)
    decision = models.CharField(max_length=10, default="", db_default="", help_text="The last decision.")
    decided_at = models.FloatField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "provider_gates"
        verbose_name = "capability"
        verbose_name_plural = "capabilities"
        ordering: ClassVar = [*WHO]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=WHO, name="provider_gate_of"),
            # Two checks, and those that tell most: each is read anew by every admission.
            models.CheckConstraint(
                condition=Q(state__in=["closed", "half_open"]) | Q(state="open", open_until__isnull=False),
                name="provider_gate_breaker",
            ),
            models.CheckConstraint(
                condition=Q(quota_limit__isnull=True)
                | Q(
                    quota_limit__gte=0,
                    quota_window__gt=0,
                    window_start__isnull=False,
                    window_end__isnull=False,
                    used__gte=0,
                ),
                name="provider_gate_quota",
            ),
        ]

    @property
    def value(self) -> GateValue:
        """The row as the value that the rules know."""
        return GateValue(
            breaker=Breaker(
                BreakerState(self.state),
                self.generation,
                self.consecutive_failures,
                self.successes,
                self.open_until,
                self.probes,
            ),
            quota=self._quota(),
            cooldown_until=self.cooldown_until,
            tokens=self.retry_tokens,
            override=Override(BreakerState(self.override), self.override_until) if self.override else None,
            admissions=self.admissions,
        )

    def effective_state(self, now: datetime) -> BreakerState:
        """The effective state of the breaker, overrides included."""
        return self.value.state_at(now.timestamp())

    @property
    def is_limited(self) -> bool:
        return self.quota_limit is not None

    def _quota(self) -> Quota | None:
        limit, window, start, end = self.quota_limit, self.quota_window, self.window_start, self.window_end
        if limit is None or window is None or start is None or end is None:
            return None
        return Quota(limit, window, start, end, self.used, self.previous_start, self.previous_used)


def moment(seconds: float) -> datetime:
    """A time of the gate, for people."""
    return datetime.fromtimestamp(seconds, UTC)
