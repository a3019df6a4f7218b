"""The shared ground's own resources."""

from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ergon_site.access import callers
from ergon_site.access.api.serializers import AuditEntrySerializer, ClientSerializer
from ergon_site.access.models import ApiToken, AuditEntry


class ClientView(APIView):
    """The client that asks: its scopes, zones and the token's expiry."""

    required_scope = None

    @extend_schema(responses=ClientSerializer)
    def get(self, request: Request) -> Response:
        token = ApiToken.objects.select_related("client").get(pk=callers.of(request).token_id)
        return Response(ClientSerializer(token).data)


class AuditEntriesView(ListAPIView[AuditEntry]):
    """The audit log, newest first."""

    required_scope = "platform"
    queryset = AuditEntry.objects.all()
    serializer_class = AuditEntrySerializer
