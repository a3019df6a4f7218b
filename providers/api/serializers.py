"""Shapes of the answers about providers."""

from typing import Any, ClassVar

from rest_framework import serializers

from ergon_site.access.core.texts import LONGEST_REASON
from providers.core.breaker import BreakerState
from providers.models import ProviderEvent, ProviderExecutionMetric
from providers.reads.health import Standing

STATES = [state.value for state in BreakerState]


class QuotaSerializer(serializers.Serializer[Any]):
    limit_count = serializers.IntegerField(source="limit")
    used_count = serializers.IntegerField(source="used")
    remaining_count = serializers.IntegerField(source="remaining")
    window_end = serializers.DateTimeField(source="end")


class HealthSerializer(serializers.Serializer[Standing]):
    """A capability of a provider: its effective breaker, the attempts of the last hour, its quota."""

    provider_name = serializers.CharField(source="who.provider_name")
    capability = serializers.CharField(source="who.capability")
    breaker_state = serializers.ChoiceField(choices=STATES, source="effective")
    success_rate_1h = serializers.FloatField(
        source="rates.success", allow_null=True, help_text="Success rate of attempts."
    )
    p95_latency_ms_1h = serializers.FloatField(
        source="rates.p95", allow_null=True, help_text="Duration of attempts, within 7 %."
    )
    quota = QuotaSerializer(allow_null=True)
    last_error_code = serializers.CharField(source="health.last_error_code", default=None, allow_null=True)
    last_error_at = serializers.DateTimeField(source="health.last_error_at", default=None, allow_null=True)
    last_success_at = serializers.DateTimeField(default=None, allow_null=True)


class SummarySerializer(serializers.Serializer[Any]):
    tenant_id = serializers.UUIDField()
    generated_at = serializers.DateTimeField()
    providers = HealthSerializer(many=True)


class StandingSerializer(HealthSerializer):
    """The same, with what operators need besides."""

    tenant_id = serializers.CharField(source="who.tenant_id")
    execution_rate_1h = serializers.FloatField(
        source="rates.execution", allow_null=True, help_text="Success rate of executions, retries included."
    )
    attempts_1h = serializers.IntegerField(source="rates.attempts")
    refusals_1h = serializers.IntegerField(source="rates.refusals")
    cache_hits_1h = serializers.IntegerField(source="rates.cache_hits", help_text="Calls that a kept answer saved.")
    stale_answers_1h = serializers.IntegerField(
        source="rates.stale_answers", help_text="Kept answers in the place of failures."
    )
    fallbacks_1h = serializers.IntegerField(source="rates.fallbacks", help_text="Fallbacks in the place of failures.")
    consecutive_failures = serializers.IntegerField(source="failures")
    open_until = serializers.DateTimeField(source="reopens_at", allow_null=True)
    cooldown_until = serializers.DateTimeField(
        allow_null=True, help_text="The provider requested a pause until this time."
    )
    override = serializers.SerializerMethodField(help_text="open or closed, as set by an operator.")
    override_until = serializers.DateTimeField(allow_null=True)
    override_by = serializers.CharField(allow_null=True)
    override_reason = serializers.CharField(allow_null=True)

    def get_override(self, one: Standing) -> str | None:
        return one.override or None


class StandingsSerializer(serializers.Serializer[Any]):
    results = StandingSerializer(many=True)
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


class OverrideSerializer(serializers.Serializer[Any]):
    tenant_id = serializers.UUIDField()
    action = serializers.ChoiceField(choices=["reset", "force-open", "force-close"])
    reason = serializers.CharField(max_length=LONGEST_REASON, help_text="Recorded in the audit log.")
    seconds = serializers.FloatField(
        required=False,
        allow_null=True,
        help_text="How long the override lasts: default 1800; null means until it is reset.",
    )


class MetricSerializer(serializers.ModelSerializer[ProviderExecutionMetric]):
    """An attempt."""

    class Meta:
        model = ProviderExecutionMetric
        fields: ClassVar[Any] = [
            *("id", "tenant_id", "task_execution_id", "provider_name", "capability", "operation", "idempotency_key"),
            *("correlation_id", "attempt_number", "max_attempts", "duration_ms", "timeout_budget_ms", "outcome"),
            *("reason_code", "retryable", "http_status", "retry_suppressed", "policy_version", "source"),
            "created_at",
        ]


class EventSerializer(serializers.ModelSerializer[ProviderEvent]):
    """A change of a breaker, pause, quota or override."""

    class Meta:
        model = ProviderEvent
        fields: ClassVar[Any] = [
            *("id", "tenant_id", "provider_name", "capability", "kind", "from_state", "to_state", "why"),
            *("generation", "at", "until", "by"),
        ]
