"""Shapes of the boundary's bodies, for the OpenAPI document; the rules themselves are in the core."""

from typing import Any

from rest_framework import serializers

from facts.conf import settings
from facts.core.limits import LONGEST_TEXT

LIMITS = settings().limits


class EnvelopeSerializer(serializers.Serializer[Any]):
    message_id = serializers.CharField(max_length=LIMITS.message_id)
    from_zone = serializers.CharField(max_length=LONGEST_TEXT)
    to_zone = serializers.CharField(max_length=LONGEST_TEXT)
    produced_at_unix_ms = serializers.IntegerField(min_value=0, max_value=2**53 - 1)
    correlation_id = serializers.CharField(max_length=LONGEST_TEXT, required=False)
    causation_id = serializers.CharField(max_length=LIMITS.causation_id, required=False)
    labels = serializers.DictField(child=serializers.CharField(max_length=LIMITS.label_value), required=False)
    object_media_type = serializers.CharField(max_length=LONGEST_TEXT, required=False)
    object_schema = serializers.CharField(max_length=LONGEST_TEXT, required=False)


class StatementSerializer(serializers.Serializer[Any]):
    subject = serializers.CharField(max_length=LIMITS.subject, help_text="kind:id or kind:scope/id")
    predicate = serializers.RegexField(r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$", max_length=LIMITS.predicate)
    object_json = serializers.JSONField()


class FactSerializer(serializers.Serializer[Any]):
    envelope = EnvelopeSerializer()
    fact = StatementSerializer()


class FactBatchSerializer(serializers.Serializer[Any]):
    facts = FactSerializer(many=True, min_length=1, max_length=1000)  # type: ignore[call-arg]


class AppendedSerializer(serializers.Serializer[Any]):
    offset = serializers.IntegerField(min_value=0)
    message_id = serializers.CharField()
    duplicate = serializers.BooleanField()


class AppendResultSerializer(serializers.Serializer[Any]):
    status = serializers.IntegerField(
        help_text="201 for a new fact, 200 for a repeated one, or the status of the problem."
    )
    offset = serializers.IntegerField(required=False)
    message_id = serializers.CharField(required=False)
    duplicate = serializers.BooleanField(required=False)
    problem = serializers.JSONField(required=False)


class AppendResultsSerializer(serializers.Serializer[Any]):
    results = AppendResultSerializer(many=True)


class FetchedSerializer(FactSerializer):
    offset = serializers.IntegerField(min_value=0)


class FoundSerializer(FetchedSerializer):
    message_id = serializers.CharField()


class FactPageSerializer(serializers.Serializer[Any]):
    facts = FetchedSerializer(many=True)
    cursor = serializers.IntegerField(min_value=-1, help_text="The last confirmed offset; -1 if none.")


class ConfirmSerializer(serializers.Serializer[Any]):
    offset = serializers.IntegerField(min_value=0)


class ConfirmedSerializer(serializers.Serializer[Any]):
    cursor_advanced_to = serializers.IntegerField(min_value=-1)


class ConsumerSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    from_zone = serializers.CharField()
    to_zone = serializers.CharField()
    cursor = serializers.IntegerField(min_value=-1)
    newest = serializers.IntegerField(min_value=-1, help_text="The offset of the newest fact; -1 if there is none.")


class ObjectSerializer(serializers.Serializer[Any]):
    bucket = serializers.CharField()
    key = serializers.CharField()
    digest = serializers.CharField()
    size = serializers.IntegerField(min_value=0)
    media_type = serializers.CharField()
