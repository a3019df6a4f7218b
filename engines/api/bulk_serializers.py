"""Shapes of groups of dead letters, and of what is decided about all of a group."""

from typing import Any, ClassVar

from rest_framework import serializers

from engines.bulk import AT_ONCE, MOST, MOST_FIRST, Terms
from engines.models import BulkItem, BulkOperation, DeadLetterGroup
from ergon_site.access.api.bodies import DecisionSerializer


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


class BulkOperationSerializer(serializers.ModelSerializer[BulkOperation]):
    state = serializers.CharField(help_text="running, paused, done, cancelled, or stopped because replays failed.")
    filter = serializers.DictField(help_text="Which dead letters it processes.")

    class Meta:
        model = BulkOperation
        fields: ClassVar[Any] = [
            *("id", "verb", "group", "filter", "state", "note", "by", "reason", "expected", "cap", "canary", "rate"),
            *("done", "skipped", "failed", "created_at", "finished_at"),
        ]


class BulkItemSerializer(serializers.ModelSerializer[BulkItem]):
    dead_letter = serializers.IntegerField(source="letter_id")
    note = serializers.CharField(
        help_text="The id of the new transaction, or why the dead letter was skipped or failed."
    )

    class Meta:
        model = BulkItem
        fields: ClassVar[Any] = ["id", "dead_letter", "result", "note"]
