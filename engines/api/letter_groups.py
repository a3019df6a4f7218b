"""Groups of dead letters over HTTP, and the bulk operations on them."""

from http import HTTPStatus
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from engines import dead_letters
from engines.api import tenants
from engines.api.bulk import operation_body
from engines.api.problems import Refusing, answers
from engines.api.serializers import (
    BulkItemSerializer,
    BulkOperationSerializer,
    DeadLetterGroupSerializer,
    DiscardAllSerializer,
    ReplayAllSerializer,
)
from engines.core.states import GroupState
from engines.dead_letters import bulk, bulk_replays
from engines.dead_letters.bulk import Terms
from engines.models import BulkItem, BulkOperation, DeadLetterGroup
from engines.reads import dead_letters as lists, filters
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, shaped
from ergon_site.access.api_identity import Caller

BEGUN = answers(BulkOperationSerializer, 409, status=201)
NUMBER = OpenApiParameter("operation_id", OpenApiTypes.INT, OpenApiParameter.PATH)
GROUP_FILTERS = [
    OpenApiParameter("state", str, enum=filters.GROUP_STATES),
    OpenApiParameter("source", str, description="The pipeline or provider that failed."),
    OpenApiParameter("category", str, enum=filters.CATEGORY_NAMES),
]
OPERATION_FILTERS = [
    OpenApiParameter("state", str, enum=filters.OPERATION_STATES),
    OpenApiParameter("group", int, description="The number of the dead-letter group."),
]


@extend_schema_view(get=extend_schema(parameters=GROUP_FILTERS))
class GroupsView(Refusing, ListAPIView[DeadLetterGroup]):
    """Kinds of failures, those that were first seen last before the others."""

    required_scope = "transactions:read"
    serializer_class = DeadLetterGroupSerializer

    def get_queryset(self) -> QuerySet[DeadLetterGroup]:
        return tenants.visible_groups(self.caller, lists.groups(self.request.GET))

    def paginate_queryset(self, queryset: Any) -> Any:
        return tenants.narrowed(self.caller, super().paginate_queryset(queryset) or ())


class GroupView(Refusing, APIView):
    """A group of dead letters, with its number of open ones."""

    required_scope = "transactions:read"

    @extend_schema(responses=DeadLetterGroupSerializer)
    def get(self, request: Request, group_id: int) -> Response:
        group = dead_letters.find_group(group_id)
        tenants.check_group(self.caller, group)
        return Response(_group_body(self.caller, group))


class DecideView(Refusing, APIView):
    required_scope = "dead_letters:operate"
    body_limit = DECISION_LIMIT
    state: ClassVar[GroupState]

    @extend_schema(request=DecisionSerializer, responses=DeadLetterGroupSerializer)
    def post(self, request: Request, group_id: int) -> Response:
        asked = shaped(DecisionSerializer, request.data)
        tenants.check_all(self.caller, dead_letters.find_group(group_id))
        group = dead_letters.decide(group_id, self.state, by=self.caller.actor, **asked)
        return Response(_group_body(self.caller, group))


class MuteView(DecideView):
    """Mute a group: it no longer asks for attention; further dead letters are still recorded."""

    state = GroupState.MUTED


class ResolveView(DecideView):
    """The cause is gone. If it fails so again, the group comes back as regressed."""

    state = GroupState.RESOLVED


class ReopenView(DecideView):
    """Reopen a group: it asks for attention again."""

    state = GroupState.OPEN


class BeginView(Refusing, APIView):
    required_scope = "dead_letters:operate"
    body_limit = DECISION_LIMIT
    verb: ClassVar[str]
    shape: ClassVar[type[Serializer[Any]]]
    defaults: ClassVar[dict[str, Any]]

    def post(self, request: Request, group_id: int) -> Response:
        asked = {**self.defaults, **shaped(self.shape, request.data)}
        reason = asked.pop("reason")
        tenants.check_all(self.caller, dead_letters.find_group(group_id))
        operation = bulk.begin(self.verb, group_id, Terms(**asked), by=self.caller.actor, reason=reason)
        return Response(operation_body(operation), status=HTTPStatus.CREATED)


@extend_schema_view(post=extend_schema(request=ReplayAllSerializer, responses=BEGUN))
class ReplayAllView(BeginView):
    """Replay the open dead letters of a group: a few first, then the rest at a pace, until replays fail again."""

    # A person who replays many is shown one first, too.
    verb, shape, defaults = "replay", ReplayAllSerializer, {"canary": 1}


@extend_schema_view(post=extend_schema(request=DiscardAllSerializer, responses=BEGUN))
class DiscardAllView(BeginView):
    """Decide that the open dead letters of a group will not be replayed."""

    verb, shape, defaults = "discard", DiscardAllSerializer, {"rate": bulk.AT_ONCE}


def _group_body(caller: Caller, group: DeadLetterGroup) -> Any:
    return DeadLetterGroupSerializer(tenants.narrowed(caller, [group])[0]).data


@extend_schema_view(get=extend_schema(parameters=OPERATION_FILTERS))
class OperationsView(Refusing, ListAPIView[BulkOperation]):
    """Decisions about many rows, newest first."""

    required_scope = "transactions:read"
    serializer_class = BulkOperationSerializer

    def get_queryset(self) -> QuerySet[BulkOperation]:
        return tenants.visible_operations(self.caller, lists.operations(self.request.GET))

    def paginate_queryset(self, queryset: Any) -> Any:
        return bulk_replays.with_figures(super().paginate_queryset(queryset) or ())


class OperationView(Refusing, APIView):
    """A bulk operation: its author, reason and progress."""

    required_scope = "transactions:read"

    @extend_schema(responses=BulkOperationSerializer)
    def get(self, request: Request, operation_id: int) -> Response:
        operation = bulk.find(operation_id)
        tenants.check_operation(self.caller, operation)
        return Response(operation_body(operation))


@extend_schema_view(get=extend_schema(parameters=[NUMBER]))
class ItemsView(Refusing, ListAPIView[BulkItem]):
    """The results of a bulk operation, by row, newest first."""

    required_scope = "transactions:read"
    serializer_class = BulkItemSerializer
    queryset = BulkItem.objects.none()
    operation: BulkOperation

    def get_queryset(self) -> QuerySet[BulkItem]:
        operation = bulk.find(self.kwargs["operation_id"])
        tenants.check_operation(self.caller, operation)
        self.operation = operation
        return tenants.visible_items(self.caller, operation)

    def paginate_queryset(self, queryset: Any) -> Any:
        return bulk_replays.with_outcomes(self.operation, super().paginate_queryset(queryset) or ())


class TurnView(Refusing, APIView):
    required_scope = "dead_letters:operate"
    body_limit = DECISION_LIMIT
    state: ClassVar[str]

    @extend_schema(request=DecisionSerializer, responses=answers(BulkOperationSerializer, 409))
    def post(self, request: Request, operation_id: int) -> Response:
        asked = shaped(DecisionSerializer, request.data)
        found = bulk.find(operation_id)
        tenants.check_operation(self.caller, found)
        tenants.check_turning(self.caller, found)
        return Response(operation_body(bulk.turn(operation_id, self.state, by=self.caller.actor, **asked)))


class PauseOperationView(TurnView):
    """Nothing more is touched until it is resumed."""

    state = "paused"


class ResumeOperationView(TurnView):
    """Resume a bulk operation where it was paused."""

    state = "running"


class CancelOperationView(TurnView):
    """Cancel a bulk operation. Finished items stay as they are."""

    state = "cancelled"
