"""Groups of dead letters over HTTP, and what is decided about all of a group at once."""

from http import HTTPStatus
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engines import bulk, dead_letters
from engines.api import filters, tenants
from engines.api.bulk_serializers import (
    BulkOperationSerializer,
    DeadLetterGroupSerializer,
    DiscardAllSerializer,
    ReplayAllSerializer,
)
from engines.api.problems import Refusing
from engines.bulk import Terms
from engines.core.states import GroupState
from engines.models import DeadLetterGroup
from ergon_site.access import api_identity
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, shaped
from ergon_site.access.api.schema import also_refuses
from ergon_site.access.api_identity import Caller

# A person who replays many is shown these first, too.
CANARY = 1


class GroupsView(Refusing, ListAPIView[DeadLetterGroup]):
    """Kinds of failures, those that were first seen last before the others."""

    required_scope = "transactions:read"
    serializer_class = DeadLetterGroupSerializer

    def get_queryset(self) -> QuerySet[DeadLetterGroup]:
        return tenants.visible_groups(api_identity.caller_of(self.request), filters.groups(self.request.GET))

    def paginate_queryset(self, queryset: Any) -> Any:
        return tenants.narrowed(api_identity.caller_of(self.request), super().paginate_queryset(queryset) or ())

    @extend_schema(parameters=filters.FOR_GROUPS)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)


class GroupView(Refusing, APIView):
    """A group of dead letters, with its number of open ones."""

    required_scope = "transactions:read"

    @extend_schema(responses=DeadLetterGroupSerializer)
    def get(self, request: Request, group_id: int) -> Response:
        group, caller = dead_letters.find_group(group_id), api_identity.caller_of(request)
        tenants.check_group(caller, group)
        return Response(_group_body(caller, group))


class DecideView(Refusing, APIView):
    required_scope = "dead_letters:operate"
    body_limit = DECISION_LIMIT
    state: ClassVar[GroupState]

    @extend_schema(request=DecisionSerializer, responses=DeadLetterGroupSerializer)
    def post(self, request: Request, group_id: int) -> Response:
        asked, caller = shaped(DecisionSerializer, request.data), api_identity.caller_of(request)
        tenants.check_all(caller, dead_letters.find_group(group_id))
        group = dead_letters.decide(group_id, self.state, by=caller.actor, **asked)
        return Response(_group_body(caller, group))


class MuteView(DecideView):
    """Mute a group: it no longer asks for attention; further dead letters are still recorded."""

    state = GroupState.MUTED


class ResolveView(DecideView):
    """The cause is gone. If it fails so again, the group comes back as regressed."""

    state = GroupState.RESOLVED


class ReopenView(DecideView):
    """Reopen a group: it asks for attention again."""

    state = GroupState.OPEN


class ReplayAllView(Refusing, APIView):
    """Replay the open dead letters of a group: a few first, then the rest at a pace, until replays fail again."""

    required_scope = "dead_letters:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(
        request=ReplayAllSerializer,
        responses={(201, "application/json"): BulkOperationSerializer, **also_refuses(409)},
    )
    def post(self, request: Request, group_id: int) -> Response:
        asked = {"canary": CANARY, **shaped(ReplayAllSerializer, request.data)}
        return _begun(request, "replay", group_id, asked)


class DiscardAllView(Refusing, APIView):
    """Decide that the open dead letters of a group will not be replayed."""

    required_scope = "dead_letters:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(
        request=DiscardAllSerializer,
        responses={(201, "application/json"): BulkOperationSerializer, **also_refuses(409)},
    )
    def post(self, request: Request, group_id: int) -> Response:
        asked = {"rate": bulk.AT_ONCE, **shaped(DiscardAllSerializer, request.data)}
        return _begun(request, "discard", group_id, asked)


def _group_body(caller: Caller, group: DeadLetterGroup) -> Any:
    return DeadLetterGroupSerializer(tenants.narrowed(caller, [group])[0]).data


def _begun(request: Request, verb: str, group_id: int, asked: dict[str, Any]) -> Response:
    caller, reason = api_identity.caller_of(request), asked.pop("reason")
    tenants.check_all(caller, dead_letters.find_group(group_id))
    operation = bulk.begin(verb, group_id, Terms(**asked), by=caller.actor, reason=reason)
    return Response(BulkOperationSerializer(bulk.find(operation.pk)).data, status=HTTPStatus.CREATED)
