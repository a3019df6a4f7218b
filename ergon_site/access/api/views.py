"""The shared ground's own resources."""

from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ergon_site.access import api_identity
from ergon_site.access.api.serializers import AuditEntrySerializer, ClientSerializer, Presented
from ergon_site.access.api_identity import Caller
from ergon_site.access.models import ApiClient, ApiToken, AuditEntry


class ClientView(APIView):
    """The client that asks: its scopes, zones and when what let it in expires."""

    required_scope = None

    @extend_schema(responses=ClientSerializer)
    def get(self, request: Request) -> Response:
        return Response(ClientSerializer(_presented(api_identity.caller_of(request))).data)


class AuditEntriesView(ListAPIView[AuditEntry]):
    """The audit log, newest first."""

    required_scope = "platform"
    queryset = AuditEntry.objects.all()
    serializer_class = AuditEntrySerializer


def _presented(caller: Caller) -> Presented:
    if caller.token_id is None:
        client = ApiClient.objects.get(pk=caller.client_id)
        return Presented(client=client, prefix=None, expires_at=client.certificate_expires_at)
    token = ApiToken.objects.select_related("client").get(pk=caller.token_id)
    return Presented(client=token.client, prefix=token.prefix, expires_at=token.expires_at)
