"""The state of each capability: the gate that is asked before every call, and what people see of quota and health."""

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Greatest, Now

from providers.core.breaker import BreakerState
from providers.core.exchange import Who
from providers.core.gate import EVERY, SET_BACK, Admission, Window
from providers.database import admitting
from providers.models.columns import TENANT, WHO, OfCapability, among, named, words


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
    turned_at = models.FloatField(null=True, help_text="When the breaker last changed its state.")
    succeeded_at = models.FloatField(null=True, help_text="When the last success was settled.")
    opened_by = models.CharField(
        max_length=60,
        default="",
        db_default="",
        help_text="The rate that opened it; empty for failures in a row.",
    )
    recent = models.JSONField(
        default=dict, db_default={}, help_text="Of the latest calls, in slices: how many, failed, slow."
    )
    would_open = models.CharField(
        max_length=60, default="", db_default="", help_text="The rate by which the last call would have opened it."
    )
    shadow_openings = models.BigIntegerField(default=0, db_default=0)
    shadow_opened_at = models.FloatField(null=True)
    account = models.CharField(
        max_length=TENANT, default=EVERY, db_default=EVERY, help_text="The gate that all tenants of an account share."
    )
    is_shared = models.BooleanField(default=False, db_default=False, help_text="Whether that gate exists.")
    turned_from = models.CharField(
        max_length=9, default="", db_default="", help_text="The state before the last decision, if that changed it."
    )
    held_from = models.CharField(
        max_length=9, default="", db_default="", help_text="Likewise of a pause (none, paused) or quota (available)."
    )
    recorded_pause = models.FloatField(null=True, help_text="The end of the last pause that is an event.")
    recorded_exhaustion = models.FloatField(
        null=True, help_text="The end of the last window whose refusal is an event."
    )
    running = models.JSONField(
        default=dict, db_default={}, help_text="When each running call expires, if the bulkhead is the fleet's."
    )
    bucket_full_at = models.FloatField(null=True, help_text="When the rate limit's bucket has all its tokens again.")
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

    def override_at(self, now: datetime) -> str:
        """An operator's word that holds: open, closed or nothing."""
        holds = self.override_until is None or self.override_until > now.timestamp()
        return self.override if holds else ""

    def effective_state(self, now: datetime) -> BreakerState:
        """What an operator says, or what the breaker amounts to by now: after its cooldown it is half open."""
        if override := self.override_at(now):
            return BreakerState(override)
        seconds = now.timestamp()
        is_turning = seconds >= (self.open_until or 0.0) or (self.turned_at or 0.0) > seconds + SET_BACK
        is_half_open = self.state == BreakerState.OPEN and is_turning
        return BreakerState.HALF_OPEN if is_half_open else BreakerState(self.state)

    def pause_at(self, now: datetime) -> float | None:
        """When the pause ends that the provider asked for; one from before the clock was set back is over."""
        is_known = (self.decided_at or 0.0) <= now.timestamp() + SET_BACK
        return self.cooldown_until if is_known else None

    def window_at(self, now: datetime) -> Window | None:
        """The quota's window of this time; None without a quota."""
        if self.quota_window is None or self.window_start is None or self.window_end is None:
            return None
        return Window(self.window_start, self.window_end, self.used).at(now.timestamp(), self.quota_window)

    @property
    def is_limited(self) -> bool:
        return self.quota_limit is not None


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
        return admitting.reserve(Who.of(tenant_id, provider_name, capability), cost=cost)


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
