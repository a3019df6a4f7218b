"""Shapes of the shared ground's answers."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from rest_framework import serializers

from ergon_site.access.models import ApiClient, AuditEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """A client, and what let it in: the token of that prefix, or without one its certificate."""

    client: ApiClient
    prefix: str | None
    expires_at: datetime | None


class ClientSerializer(serializers.Serializer[Presented]):
    """A client as it sees itself, through the token or the certificate that it presented."""

    name = serializers.CharField(source="client.name")
    scopes = serializers.ListField(source="client.scopes", child=serializers.CharField())
    zones = serializers.ListField(source="client.zones", child=serializers.CharField())
    target_zones = serializers.ListField(source="client.target_zones", child=serializers.CharField())
    consumers = serializers.ListField(source="client.consumers", child=serializers.CharField())
    buckets = serializers.ListField(source="client.buckets", child=serializers.CharField())
    tenants = serializers.ListField(source="client.tenants", child=serializers.UUIDField())
    certificate = serializers.CharField(source="client.certificate", allow_null=True)
    token_prefix = serializers.CharField(source="prefix", allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    class Meta:
        model = AuditEntry
        fields: ClassVar = ["id", "at", "actor", "action", "target", "reason", "before", "after"]
