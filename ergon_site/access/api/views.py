"""The shared ground's own resources."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ergon_site.access import api_identity
from ergon_site.access.api.conventions import Conventional
from ergon_site.access.models import ApiClient, ApiToken, AuditEntry


class ClientSerializer(serializers.Serializer[Any]):
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


class ClientView(Conventional, APIView):
    """The client that asks: its scopes, zones and when what let it in expires."""

    required_scope = None

    @extend_schema(responses=ClientSerializer)
    def get(self, request: Request) -> Response:
        caller = api_identity.caller_of(request)
        if caller.token_id is None:
            client = ApiClient.objects.get(pk=caller.client_id)
            told: dict[str, Any] = {"client": client, "prefix": None, "expires_at": client.certificate_expires_at}
        else:
            token = ApiToken.objects.select_related("client").get(pk=caller.token_id)
            told = {"client": token.client, "prefix": token.prefix, "expires_at": token.expires_at}
        return Response(ClientSerializer(told).data)


class AuditEntriesView(Conventional, ListAPIView[AuditEntry]):
    """The audit log, newest first."""

    required_scope = "platform"
    queryset = AuditEntry.objects.all()
    serializer_class = AuditEntrySerializer
