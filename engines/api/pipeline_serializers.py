"""Shapes of pipelines and schedules, and of what they are to be."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from engines.api.serializers import Anything
from engines.core import redaction
from engines.models import DIRECTIONS, Pipeline, Schedule
from engines.reads import depth
from engines.schedules import LONGEST_CRON
from ergon_site.access.api.bodies import LONGEST_NAME, DecisionSerializer

LONGEST_KEPT = 36_500
MOST_PATHS = 100


class DepthSerializer(serializers.Serializer[Any]):
    pending = serializers.IntegerField(help_text="Pending transactions, due or not; counted up to 10,000.")
    is_capped = serializers.BooleanField(help_text="Whether there are more than were counted.")


class PipelineSerializer(serializers.ModelSerializer[Pipeline]):
    """A pipeline; the view counts what waits in all that it tells of, by one statement."""

    policy = serializers.CharField(source="policy.name")
    policy_version = serializers.SerializerMethodField()
    paused = serializers.BooleanField(source="is_paused")
    depth = serializers.SerializerMethodField()
    redacted = serializers.ListField(child=serializers.CharField(), help_text="Hidden payload fields.")

    class Meta:
        model = Pipeline
        fields: ClassVar = [
            *("name", "task", "executor", "direction", "connector", "policy", "policy_version", "priority"),
            *("is_enabled", "paused", "paused_at", "paused_by", "pause_reason", "depth"),
            *("keep_succeeded_days", "keep_failed_days", "redacted"),
        ]

    def get_policy_version(self, pipeline: Pipeline) -> int | None:
        return pipeline.policy.active.number if pipeline.policy.active else None

    @extend_schema_field(DepthSerializer)
    def get_depth(self, pipeline: Pipeline) -> dict[str, Any]:
        found = self.context["waiting"][pipeline.pk]
        return {"pending": min(found.count, depth.COUNTED), "is_capped": found.is_capped}


class AmendmentSerializer(DecisionSerializer):
    """The fields of a pipeline."""

    task = serializers.CharField(max_length=200, required=False, help_text="The registered name of the task.")
    executor = serializers.CharField(
        max_length=LONGEST_NAME, required=False, help_text="The executor that runs the handlers, instead of a task."
    )
    direction = serializers.ChoiceField(choices=DIRECTIONS, required=False)
    connector = serializers.CharField(
        max_length=LONGEST_NAME, required=False, help_text="The source of its transactions."
    )
    policy = serializers.CharField(max_length=LONGEST_NAME, required=False, help_text="The name of the policy.")
    priority = serializers.IntegerField(min_value=-(2**31), max_value=2**31 - 1, required=False)
    is_enabled = serializers.BooleanField(
        required=False, help_text="Served by consumers that are started without pipeline names."
    )
    keep_succeeded_days = serializers.IntegerField(min_value=1, max_value=LONGEST_KEPT, required=False)
    keep_failed_days = serializers.IntegerField(min_value=1, max_value=LONGEST_KEPT, required=False)
    redacted = serializers.ListField(
        child=serializers.CharField(max_length=200),
        max_length=MOST_PATHS,
        required=False,
        help_text="Hidden payload fields: paths such as customer.email, args.0 or items[].price.",
    )


class NewPipelineSerializer(AmendmentSerializer):
    name = serializers.CharField(max_length=LONGEST_NAME)


class ScheduleSerializer(serializers.ModelSerializer[Schedule]):
    pipeline = serializers.CharField(source="pipeline.name")
    paused = serializers.SerializerMethodField()

    class Meta:
        model = Schedule
        fields: ClassVar[Any] = [
            *("name", "pipeline", "cron", "time_zone", "catch_up", "next_run_at", "last_run_at"),
            *("paused", "paused_at", "paused_by", "pause_reason", "created_at", "created_by"),
        ]

    def get_paused(self, schedule: Schedule) -> bool:
        return schedule.paused_at is not None


class ScheduleDetailSerializer(ScheduleSerializer):
    payload = serializers.SerializerMethodField(help_text="The payload of each run; hidden fields are •••.")

    class Meta(ScheduleSerializer.Meta):
        fields: ClassVar[Any] = [*ScheduleSerializer.Meta.fields, "payload"]

    def get_payload(self, schedule: Schedule) -> Any:
        return redaction.redact(schedule.payload, schedule.pipeline.redacted)


class NewScheduleSerializer(DecisionSerializer):
    name = serializers.CharField(max_length=LONGEST_NAME)
    pipeline = serializers.CharField(max_length=LONGEST_NAME, help_text="The pipeline that each run submits to.")
    cron = serializers.CharField(
        max_length=LONGEST_CRON, help_text="Minute, hour, day of month, month, day of week: 30 6 * * 1-5"
    )
    time_zone = serializers.CharField(
        max_length=64, required=False, help_text="The time zone of cron, such as Europe/Berlin; default UTC."
    )
    payload = Anything(required=False, allow_null=True, help_text="The payload of each run; default null.")
    catch_up = serializers.ChoiceField(
        choices=Schedule.CATCH_UP, required=False, help_text="What to do with missed runs; default one."
    )
