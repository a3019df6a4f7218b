"""Shapes of boundaries, as those who operate them see them."""

from typing import Any, ClassVar

from rest_framework import serializers

from ergon_site.access.api.bodies import DecisionSerializer
from facts import provisioning
from facts.models import Boundary
from facts.provisioning import LARGEST


class BoundarySerializer(serializers.ModelSerializer[Boundary]):
    from_zone = serializers.CharField(source="from_zone.name")
    to_zone = serializers.CharField(source="to_zone.name")
    gate = serializers.CharField(help_text="normal, autonomous (closed) or reconciling.")
    backlog = serializers.SerializerMethodField(
        help_text="Facts that have not been handed over, or not been confirmed by the slowest local consumer."
    )
    is_remote = serializers.BooleanField(help_text="Whether its facts are pulled from a peer.")

    class Meta:
        model = Boundary
        fields: ClassVar[Any] = [
            *("id", "from_zone", "to_zone", "gate", "gate_at", "gate_by", "gate_reason", "failures", "alarm"),
            *("alarm_offset", "alarm_last", "heard_at", "retired_at"),
            *("first_offset", "next_offset", "frontier", "backlog", "stored_bytes", "handed_over_at", "is_remote"),
            *LARGEST,
        ]

    def get_backlog(self, boundary: Boundary) -> int:
        return provisioning.unconfirmed(boundary)


class LimitSerializer(DecisionSerializer):
    row_ceiling = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=LARGEST["row_ceiling"],
        help_text="Maximum number of facts; null for no limit.",
    )
    byte_ceiling = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=LARGEST["byte_ceiling"],
        help_text="Maximum bytes of canonical JSON; null for no limit.",
    )
    keep_days = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=LARGEST["keep_days"],
        help_text="Days after which facts that every consumer has confirmed may be removed.",
    )
    dedupe_days = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=LARGEST["dedupe_days"],
        help_text="Days that message ids are remembered after truncation; null for 30 days more than facts are kept.",
    )
