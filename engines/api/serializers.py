"""Shapes of the engines' answers and bodies; bodies that are read by hand have one for the OpenAPI document."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from engines import dead_letters, policies
from engines.api import hiding
from engines.core import redaction
from engines.core.states import CATEGORY_OF
from engines.core.summary import FIELDS
from engines.dead_letters.bulk import AT_ONCE, MOST, MOST_FIRST, MOST_SELECTED, Terms
from engines.models import (
    DIRECTIONS,
    BulkItem,
    BulkOperation,
    DeadLetter,
    DeadLetterGroup,
    Pipeline,
    Policy,
    PolicyRehearsal,
    PolicyVersion,
    Schedule,
    TransactionRecord,
)
from engines.reads import depth
from engines.schedules import LONGEST_CRON
from ergon_site.access.api.bodies import LONGEST_NAME, DecisionSerializer, Text
from ergon_site.access.core.texts import LONGEST_REASON

VERSIONS_TOLD = 100
LONGEST_KEPT = 36_500
MOST_PATHS = 100


class Anything(serializers.JSONField):
    """Any JSON value."""


class SubmissionSerializer(serializers.Serializer[Any]):
    pipeline = serializers.CharField(max_length=100)
    payload = Anything(allow_null=True)
    id = serializers.CharField(max_length=200, required=False, allow_null=True, help_text="Generated if not given.")
    priority = serializers.IntegerField(
        min_value=-(2**31),
        max_value=2**31 - 1,
        required=False,
        allow_null=True,
        help_text="Higher priorities run first; default: the pipeline's.",
    )
    available_at = serializers.DateTimeField(required=False, allow_null=True, help_text="Not started before this time.")
    dedupe_key = serializers.CharField(
        max_length=200, required=False, allow_null=True, help_text="Unique within the pipeline."
    )
    correlation_id = serializers.CharField(max_length=200, required=False, allow_null=True)
    metadata = serializers.DictField(required=False, allow_null=True)


class BatchSerializer(serializers.Serializer[Any]):
    transactions = SubmissionSerializer(many=True, help_text="1 to 1,000 transactions, for one pipeline or several.")


class SubmittedSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    state = serializers.CharField()


class BatchItemSerializer(SubmittedSerializer):
    is_new = serializers.BooleanField(help_text="False if a transaction with this id or dedupe key existed.")


class BatchAnswerSerializer(serializers.Serializer[Any]):
    results = BatchItemSerializer(many=True, help_text="In the order of the transactions.")


class ReplaySerializer(DecisionSerializer):
    payload = Anything(required=False, allow_null=True, help_text="Replaces the original payload.")


class DraftSerializer(serializers.Serializer[Any]):
    policy = serializers.DictField(help_text="Fields that are left out take their defaults.")


class NewVersionSerializer(DecisionSerializer, DraftSerializer):
    kind = serializers.CharField(
        required=False, help_text="consumer or producer; required for a new policy, and only there."
    )


class TransactionSerializer(serializers.ModelSerializer[TransactionRecord]):
    """A transaction in a list: without payload, result and error."""

    id = serializers.CharField(source="uid")
    pipeline = serializers.CharField(source="pipeline.name")
    state = serializers.CharField(source="word")
    category = serializers.SerializerMethodField()
    deliveries = serializers.IntegerField()

    class Meta:
        model = TransactionRecord
        fields: ClassVar[Any] = [
            *("id", "pipeline", "state", "priority", "category", "deliveries", "rescues"),
            *("correlation_id", "dedupe_key", "parent_id", "source"),
            *("available_at", "created_at", "started_at", "cancel_requested_at", "finished_at"),
        ]

    def get_category(self, record: TransactionRecord) -> str | None:
        return CATEGORY_OF[record.category].value if record.category else None


class TransactionDetailSerializer(TransactionSerializer):
    """A transaction with everything that is kept of it."""

    payload = serializers.SerializerMethodField(help_text="Hidden fields are •••.")
    metadata = serializers.DictField()
    result = Anything()
    result_note = serializers.CharField(allow_null=True, help_text="Which part of the result could not be stored.")
    error = serializers.DictField(allow_null=True, source="failure")
    payload_changes = serializers.SerializerMethodField(help_text="Changes to the original payload of a replay.")
    replay_of = serializers.SerializerMethodField(help_text="The id of the transaction that this one replays.")
    replays = serializers.SerializerMethodField(help_text="The ids of the replays of this transaction.")
    dead_letter = serializers.SerializerMethodField(help_text="The number of its dead letter.")
    policy_version = serializers.SerializerMethodField(help_text="The policy version of the last run.")
    trace_context = serializers.DictField(allow_null=True)

    class Meta(TransactionSerializer.Meta):
        fields: ClassVar[Any] = [
            *TransactionSerializer.Meta.fields,
            *("payload", "metadata", "result", "result_note", "error"),
            *("lease_expires_at", "policy_version", "dead_letter"),
            *("replay_of", "replays", "payload_changes", "trace_context"),
        ]

    def get_payload(self, record: TransactionRecord) -> Any:
        return redaction.redact(record.payload, record.pipeline.redacted)

    def get_payload_changes(self, record: TransactionRecord) -> list[dict[str, Any]] | None:
        return hiding.changes(record.payload_changes, record.pipeline.redacted)

    def get_replay_of(self, record: TransactionRecord) -> str | None:
        return TransactionRecord.objects.filter(pk=record.replay_of or 0).values_list("uid", flat=True).first()

    def get_replays(self, record: TransactionRecord) -> list[str]:
        return list(TransactionRecord.objects.filter(replay_of=record.pk).order_by("pk").values_list("uid", flat=True))

    def get_dead_letter(self, record: TransactionRecord) -> int | None:
        return DeadLetter.objects.filter(transaction_id=record.pk).values_list("pk", flat=True).first()

    def get_policy_version(self, record: TransactionRecord) -> str | None:
        version = PolicyVersion.objects.select_related("policy").filter(pk=record.policy_version or 0).first()
        return str(version) if version else None


class ExplanationSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    state = serializers.CharField()
    sentence = serializers.CharField()
    facts = serializers.DictField()
    attempts = serializers.ListField(child=serializers.DictField())
    result = Anything(allow_null=True)
    error = serializers.DictField(allow_null=True)


class DeadLetterSerializer(serializers.ModelSerializer[DeadLetter]):
    """A dead letter in a list: without payload, traceback and details."""

    transaction = serializers.CharField(source="uid")

    class Meta:
        model = DeadLetter
        fields: ClassVar[Any] = [
            *("id", "group", "transaction", "source", "state", "step", "category", "error_type", "message"),
            *("created_at", "settled_at", "settled_by", "reason", "replayed_as"),
        ]


class DeadLetterDetailSerializer(DeadLetterSerializer):
    payload = serializers.SerializerMethodField(help_text="The payload that a replay uses; hidden fields are •••.")
    details = serializers.DictField()

    class Meta(DeadLetterSerializer.Meta):
        fields: ClassVar[Any] = [*DeadLetterSerializer.Meta.fields, "traceback", "details", "payload"]

    def get_payload(self, letter: DeadLetter) -> Any:
        return redaction.redact(dead_letters.payload_of(letter), dead_letters.redacted_of(letter))


class DeadLetterGroupSerializer(serializers.ModelSerializer[DeadLetterGroup]):
    state = serializers.CharField(help_text="open, muted, resolved or regressed.")
    open_count = serializers.IntegerField(help_text="The number of dead letters that can be replayed or discarded.")

    class Meta:
        model = DeadLetterGroup
        fields: ClassVar[Any] = [
            *("id", "source", "step", "category", "error_type", "message", "state", "open_count", "total"),
            *("first_seen_at", "last_seen_at", "decided_by", "decision_reason"),
        ]


class DiscardAllSerializer(DecisionSerializer):
    cap = serializers.IntegerField(
        required=False, min_value=1, max_value=MOST, help_text="Process at most this many; default 100,000."
    )


class ReplayAllSerializer(DiscardAllSerializer):
    canary = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_FIRST,
        help_text="Replay this many first; continue only if they succeed. Default 1; 0 for none.",
    )
    rate = serializers.FloatField(
        required=False, min_value=0.1, max_value=AT_ONCE, help_text=f"Replays per second; default {Terms().rate:g}."
    )


class SelectedSerializer(ReplayAllSerializer):
    """Rows to act on: by their ids, or all that a filter finds."""

    verb = Text(max_length=10, help_text="What is done to each.")
    ids = serializers.ListField(
        child=Text(max_length=200),
        required=False,
        max_length=MOST_SELECTED,
        help_text="Ids of transactions, names of pipelines and schedules, numbers of others, as texts.",
    )
    filter = serializers.DictField(
        child=Text(max_length=300, allow_blank=True), required=False, help_text="The filters of the console's list."
    )
    dry_run = serializers.BooleanField(required=False, help_text="Only count what would be done.")
    reason = Text(required=False, max_length=LONGEST_REASON, help_text="Recorded in the audit log.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs.get("dry_run") and "reason" not in attrs:
            raise serializers.ValidationError({"reason": "This field is required."})
        if ("ids" in attrs) is ("filter" in attrs):
            raise serializers.ValidationError({"ids": "Give either ids or a filter."})
        return attrs


class DryRunSerializer(serializers.Serializer[Any]):
    matched = serializers.IntegerField(help_text="Rows that it concerns; counted up to 10,000.")
    is_capped = serializers.BooleanField(help_text="Whether there are more than were counted.")
    examined = serializers.IntegerField(help_text="Rows that were looked at.")
    would = serializers.IntegerField(help_text="Of those, the rows that it would act on.")
    skipped = serializers.DictField(child=serializers.IntegerField(), help_text="Of those, the others, by reason.")


class ReplaysSerializer(serializers.Serializer[Any]):
    started = serializers.IntegerField()
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="Failed again.")
    cancelled = serializers.IntegerField()
    lost = serializers.IntegerField(help_text="Deleted before their end was seen.")
    running = serializers.IntegerField(help_text="Not ended yet.")


class BulkOperationSerializer(serializers.ModelSerializer[BulkOperation]):
    state = serializers.CharField(help_text="running, paused, done, cancelled, or stopped because replays failed.")
    filter = serializers.DictField(help_text="Which rows it processes.")
    dry_run = serializers.DictField(help_text="What it would have done when it was started; empty for old ones.")
    replays = ReplaysSerializer(allow_null=True, help_text="How the replays ended so far; null if it replays nothing.")

    class Meta:
        model = BulkOperation
        fields: ClassVar[Any] = [
            *("id", "kind", "verb", "group", "filter", "dry_run", "state", "note", "by", "reason"),
            *("expected", "cap", "canary", "rate", "done", "skipped", "failed", "replays", "created_at", "finished_at"),
        ]


class BulkItemSerializer(serializers.ModelSerializer[BulkItem]):
    dead_letter = serializers.IntegerField(source="letter_id", allow_null=True)
    target = serializers.IntegerField(allow_null=True, help_text="The number of the row.")
    note = serializers.CharField(help_text="The id of the new transaction, or why the row was skipped or refused.")
    outcome = serializers.CharField(
        help_text="Of a replay: running, succeeded, failed (again), cancelled or lost; else empty."
    )

    class Meta:
        model = BulkItem
        fields: ClassVar[Any] = ["id", "dead_letter", "target", "label", "result", "note", "outcome"]


class DepthSerializer(serializers.Serializer[Any]):
    pending = serializers.IntegerField(help_text="Pending transactions, due or not; counted up to 10,000.")
    is_capped = serializers.BooleanField(help_text="Whether there are more than were counted.")


class PipelineSerializer(serializers.ModelSerializer[Pipeline]):
    """A pipeline; the view counts what waits in all that it tells of, by one statement."""

    policy = serializers.CharField(source="policy.name")
    policy_version = serializers.IntegerField(source="policy.active.number", allow_null=True, read_only=True)
    paused = serializers.BooleanField(source="is_paused")
    depth = serializers.SerializerMethodField()
    redacted = serializers.ListField(child=serializers.CharField(), help_text="Hidden payload fields.")
    summary = serializers.ListField(child=serializers.CharField(), help_text="Payload fields shown in lists.")

    class Meta:
        model = Pipeline
        fields: ClassVar = [
            *("name", "task", "executor", "direction", "connector", "policy", "policy_version", "priority"),
            *("is_enabled", "paused", "paused_at", "paused_by", "pause_reason", "depth"),
            *("keep_succeeded_days", "keep_failed_days", "redacted", "summary"),
        ]

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
    summary = serializers.ListField(
        child=serializers.CharField(max_length=200),
        max_length=FIELDS,
        required=False,
        help_text="Payload fields that the console's lists show; without any, the first ones.",
    )


class NewPipelineSerializer(AmendmentSerializer):
    name = serializers.CharField(max_length=LONGEST_NAME)


class ScheduleSerializer(serializers.ModelSerializer[Schedule]):
    pipeline = serializers.CharField(source="pipeline.name")
    paused = serializers.BooleanField(source="is_paused", read_only=True)

    class Meta:
        model = Schedule
        fields: ClassVar[Any] = [
            *("name", "pipeline", "cron", "time_zone", "catch_up", "next_run_at", "last_run_at"),
            *("paused", "paused_at", "paused_by", "pause_reason", "created_at", "created_by"),
        ]


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


class PolicySerializer(serializers.ModelSerializer[Policy]):
    version = serializers.IntegerField(source="active.number")
    pipelines: Any = serializers.SlugRelatedField(slug_field="name", many=True, read_only=True)

    class Meta:
        model = Policy
        fields: ClassVar[Any] = ["name", "kind", "version", "pipelines"]


class PolicyVersionSerializer(serializers.ModelSerializer[PolicyVersion]):
    changes = serializers.ListField(child=serializers.DictField())

    class Meta:
        model = PolicyVersion
        fields: ClassVar[Any] = ["number", "author", "reason", "created_at", "changes"]


class RehearsalSerializer(serializers.ModelSerializer[PolicyRehearsal]):
    state = serializers.CharField(
        help_text="waiting, done, failed, or cancelled: by a newer one, or as its page was left."
    )
    version: Any = serializers.SlugRelatedField(
        slug_field="number", read_only=True, help_text="The version that was saved after it."
    )
    result = serializers.SerializerMethodField(help_text="The figures, once it is done.")

    class Meta:
        model = PolicyRehearsal
        fields: ClassVar[Any] = ["id", "state", "note", "version", "created_at", "finished_at", "result"]

    def get_result(self, rehearsal: PolicyRehearsal) -> dict[str, Any] | None:
        # Without the examples: ids of transactions are for those who may read transactions.
        return rehearsal.result and {name: value for name, value in rehearsal.result.items() if name != "examples"}


class PolicyDetailSerializer(PolicySerializer):
    policy = serializers.SerializerMethodField(help_text="The active version, complete.")
    versions = serializers.SerializerMethodField(help_text="The newest 100.")

    class Meta(PolicySerializer.Meta):
        fields: ClassVar[Any] = [*PolicySerializer.Meta.fields, "policy", "versions"]

    def get_policy(self, policy: Policy) -> dict[str, Any]:
        return policies.in_force(policy.pk).policy.to_dict()

    @extend_schema_field(PolicyVersionSerializer(many=True))
    def get_versions(self, policy: Policy) -> list[dict[str, Any]]:
        newest = policy.versions.order_by("-number")[:VERSIONS_TOLD]
        return list(PolicyVersionSerializer(newest, many=True).data)
