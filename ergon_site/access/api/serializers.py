"""Shapes of the shared ground's answers."""

from typing import ClassVar

from rest_framework import serializers

from ergon_site.access.models import ApiToken, AuditEntry


class ClientSerializer(serializers.Serializer[ApiToken]):
    """A client as it sees itself, through the token that it presented."""

    name = serializers.CharField(source="client.name")
    scopes = serializers.ListField(source="client.scopes", child=serializers.CharField())
    zones = serializers.ListField(source="client.zones", child=serializers.CharField())
    target_zones = serializers.ListField(source="client.target_zones", child=serializers.CharField())
    consumers = serializers.ListField(source="client.consumers", child=serializers.CharField())
    buckets = serializers.ListField(source="client.buckets", child=serializers.CharField())
    tenants = serializers.ListField(source="client.tenants", child=serializers.UUIDField())
    token_prefix = serializers.CharField(source="prefix")
    expires_at = serializers.DateTimeField(allow_null=True)


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    class Meta:
        model = AuditEntry
        fields: ClassVar = ["id", "at", "actor", "action", "target", "reason", "before", "after"]
