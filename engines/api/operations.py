"""Bulk operations over HTTP: how far each is, what came of each dead letter, and stopping it."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engines import bulk
from engines.api import filters, tenants
from engines.api.bulk_serializers import BulkItemSerializer, BulkOperationSerializer
from engines.api.problems import Refusing
from engines.models import BulkItem, BulkOperation
from ergon_site.access import api_identity
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, shaped
from ergon_site.access.api.schema import also_refuses

NUMBER = OpenApiParameter("operation_id", OpenApiTypes.INT, OpenApiParameter.PATH)


class OperationsView(Refusing, ListAPIView[BulkOperation]):
    """Decisions about many dead letters, newest first."""

    required_scope = "transactions:read"
    serializer_class = BulkOperationSerializer

    def get_queryset(self) -> QuerySet[BulkOperation]:
        return tenants.visible_operations(api_identity.caller_of(self.request), filters.operations(self.request.GET))

    @extend_schema(parameters=filters.FOR_OPERATIONS)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)


class OperationView(Refusing, APIView):
    """A bulk operation: its author, reason and progress."""

    required_scope = "transactions:read"

    @extend_schema(responses=BulkOperationSerializer)
    def get(self, request: Request, operation_id: int) -> Response:
        operation = bulk.find(operation_id)
        tenants.check_operation(api_identity.caller_of(request), operation)
        return Response(BulkOperationSerializer(operation).data)


class ItemsView(Refusing, ListAPIView[BulkItem]):
    """The results of a bulk operation, by dead letter, newest first."""

    required_scope = "transactions:read"
    serializer_class = BulkItemSerializer
    queryset = BulkItem.objects.none()

    def get_queryset(self) -> QuerySet[BulkItem]:
        operation, caller = bulk.find(self.kwargs["operation_id"]), api_identity.caller_of(self.request)
        tenants.check_operation(caller, operation)
        return tenants.visible_items(caller, operation)

    @extend_schema(parameters=[NUMBER])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)


class TurnView(Refusing, APIView):
    required_scope = "dead_letters:operate"
    body_limit = DECISION_LIMIT
    state: ClassVar[str]

    @extend_schema(
        request=DecisionSerializer,
        responses={(200, "application/json"): BulkOperationSerializer, **also_refuses(409)},
    )
    def post(self, request: Request, operation_id: int) -> Response:
        asked, caller = shaped(DecisionSerializer, request.data), api_identity.caller_of(request)
        found = bulk.find(operation_id)
        tenants.check_operation(caller, found)
        tenants.check_all(caller, found.group)
        operation = bulk.turn(operation_id, self.state, by=caller.actor, **asked)
        return Response(BulkOperationSerializer(operation).data)


class PauseOperationView(TurnView):
    """Nothing more is touched until it is resumed."""

    state = "paused"


class ResumeOperationView(TurnView):
    """Resume a bulk operation where it was paused."""

    state = "running"


class CancelOperationView(TurnView):
    """Cancel a bulk operation. Finished items stay as they are."""

    state = "cancelled"
