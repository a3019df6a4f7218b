"""Shapes of groups of dead letters, and of what is decided about all of a group."""

from typing import Any, ClassVar

from rest_framework import serializers

from engines.bulk import AT_ONCE, MOST, MOST_FIRST, Terms
from engines.models import BulkItem, BulkOperation, DeadLetterGroup
from ergon_site.access.api.bodies import DecisionSerializer


class DeadLetterGroupSerializer(serializers.ModelSerializer[DeadLetterGroup]):
    state = serializers.CharField(help_text="open, muted, resolved or regressed.")
    open_count = serializers.IntegerField(help_text="So many would be replayed or discarded.")

    class Meta:
        model = DeadLetterGroup
        fields: ClassVar[Any] = [
            *("id", "source", "step", "category", "error_type", "message", "state", "open_count", "total"),
            *("first_seen_at", "last_seen_at", "decided_by", "decision_reason"),
        ]


class DiscardAllSerializer(DecisionSerializer):
    cap = serializers.IntegerField(
        required=False, min_value=1, max_value=MOST, help_text="It never touches more; 100,000 if not given."
    )


class ReplayAllSerializer(DiscardAllSerializer):
    canary = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_FIRST,
        help_text="So many first, the rest once they have succeeded; 1 if not given, 0 for none.",
    )
    rate = serializers.FloatField(
        required=False, min_value=0.1, max_value=AT_ONCE, help_text=f"Per second; {Terms().rate:g} if not given."
    )


class BulkOperationSerializer(serializers.ModelSerializer[BulkOperation]):
    state = serializers.CharField(help_text="running, paused, done, cancelled, or stopped by itself.")
    filter = serializers.DictField(help_text="Which dead letters it is about.")

    class Meta:
        model = BulkOperation
        fields: ClassVar[Any] = [
            *("id", "verb", "group", "filter", "state", "note", "by", "reason", "expected", "cap", "canary", "rate"),
            *("done", "skipped", "failed", "created_at", "finished_at"),
        ]


class BulkItemSerializer(serializers.ModelSerializer[BulkItem]):
    dead_letter = serializers.IntegerField(source="letter_id")
    note = serializers.CharField(help_text="The id of what runs now, or why it was skipped or failed.")

    class Meta:
        model = BulkItem
        fields: ClassVar[Any] = ["id", "dead_letter", "result", "note"]
