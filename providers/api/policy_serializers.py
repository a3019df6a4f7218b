"""Shapes of the policies of providers."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from ergon_site.access.api.bodies import DecisionSerializer
from providers.models import ProviderPolicyRow, ProviderPolicyVersion

VERSIONS_TOLD = 100


class NewProviderVersionSerializer(DecisionSerializer):
    policy = serializers.DictField(help_text="Fields that are left out take their defaults.")


class ProviderPolicyVersionSerializer(serializers.ModelSerializer[ProviderPolicyVersion]):
    changes = serializers.ListField(child=serializers.DictField())

    class Meta:
        model = ProviderPolicyVersion
        fields: ClassVar[Any] = ["number", "author", "reason", "created_at", "changes"]


class ProviderPolicySerializer(serializers.ModelSerializer[ProviderPolicyRow]):
    version = serializers.IntegerField(source="active.number")

    class Meta:
        model = ProviderPolicyRow
        fields: ClassVar[Any] = ["provider_name", "capability", "version"]


class ProviderPolicyDetailSerializer(ProviderPolicySerializer):
    policy = serializers.SerializerMethodField(help_text="The active version, complete.")
    versions = serializers.SerializerMethodField(help_text="The newest 100.")

    class Meta(ProviderPolicySerializer.Meta):
        fields: ClassVar[Any] = [*ProviderPolicySerializer.Meta.fields, "policy", "versions"]

    def get_policy(self, row: ProviderPolicyRow) -> dict[str, Any]:
        return row.in_force.policy.to_dict()

    @extend_schema_field(ProviderPolicyVersionSerializer(many=True))
    def get_versions(self, row: ProviderPolicyRow) -> list[dict[str, Any]]:
        newest = row.versions.order_by("-number")[:VERSIONS_TOLD]
        return list(ProviderPolicyVersionSerializer(newest, many=True).data)
