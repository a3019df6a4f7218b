"""Shapes of the shared ground's answers."""

from typing import ClassVar

from rest_framework import serializers

from ergon_site.access.models import ApiClient, AuditEntry


class ClientSerializer(serializers.ModelSerializer[ApiClient]):
    """A client as it sees itself."""

    token_prefix = serializers.CharField(source="presented.prefix")
    expires_at = serializers.DateTimeField(source="presented.expires_at", allow_null=True)

    class Meta:
        model = ApiClient
        fields: ClassVar = [
            "name",
            "scopes",
            "zones",
            "target_zones",
            "consumers",
            "buckets",
            "tenants",
            "token_prefix",
            "expires_at",
        ]


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    class Meta:
        model = AuditEntry
        fields: ClassVar = ["id", "at", "actor", "action", "target", "reason", "before", "after"]
