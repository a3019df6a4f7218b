"""Shapes of the engines' answers, and of bodies for the OpenAPI document."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from engines import dead_letters, policies
from engines.api import hiding
from engines.core import redaction
from engines.core.states import CATEGORY_OF
from engines.models import DeadLetter, Policy, PolicyVersion, TransactionRecord
from ergon_site.access.api.bodies import DecisionSerializer

VERSIONS_TOLD = 100


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


class NewVersionSerializer(DecisionSerializer):
    policy = serializers.DictField(help_text="Fields that are left out take their defaults.")
    kind = serializers.CharField(
        required=False, help_text="consumer or producer; required for a new policy, and only there."
    )


class TransactionSerializer(serializers.ModelSerializer[TransactionRecord]):
    """A transaction in a list: without payload, result and error."""

    id = serializers.CharField(source="uid")
    pipeline = serializers.CharField(source="pipeline.name")
    state = serializers.CharField(source="word")
    category = serializers.SerializerMethodField()
    deliveries = serializers.IntegerField(source="attempts")

    class Meta:
        model = TransactionRecord
        fields: ClassVar[Any] = [
            *("id", "pipeline", "state", "priority", "category", "deliveries", "rescues"),
            *("correlation_id", "dedupe_key", "parent_id", "source"),
            *("available_at", "created_at", "started_at", "finished_at"),
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
        return redaction.redact(dead_letters.payload_of(letter), hiding.of_letter(letter))


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
