"""Boundaries over HTTP, for whoever operates them: gates, ceilings, retention."""

from collections.abc import Callable
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ergon_site.access import api_identity
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, shaped
from facts import provisioning
from facts.api import rights
from facts.api.boundary_serializers import BoundarySerializer, LimitSerializer
from facts.api.problems import Refusing
from facts.core.errors import UnknownBoundaryError
from facts.models import Boundary
from facts.provisioning import LARGEST, Allowance


class BoundariesView(Refusing, ListAPIView[Boundary]):
    """The boundaries at which this client speaks for a side; with the scope `platform`, all of them."""

    required_scope = "transactions:read"
    queryset = Boundary.objects.select_related("from_zone", "to_zone").prefetch_related("consumers")
    serializer_class = BoundarySerializer

    def get_queryset(self) -> QuerySet[Boundary]:
        return super().get_queryset().filter(rights.at_boundaries(api_identity.caller_of(self.request)))


class BoundaryView(Refusing, APIView):
    """A boundary: its gate, its buffers, its backlog."""

    required_scope = "transactions:read"

    @extend_schema(responses=BoundarySerializer)
    def get(self, request: Request, boundary_id: int) -> Response:
        return Response(BoundarySerializer(_found(request, boundary_id)).data)


class GateView(Refusing, APIView):
    required_scope = "transactions:operate"
    body_limit = DECISION_LIMIT
    turn: ClassVar[Callable[..., Boundary]]

    @extend_schema(request=DecisionSerializer, responses=BoundarySerializer)
    def post(self, request: Request, boundary_id: int) -> Response:
        zones, asked = _zones(request, boundary_id), shaped(DecisionSerializer, request.data)
        return _answer(type(self).turn(*zones, by=api_identity.caller_of(request).actor, **asked))


class OpenGateView(GateView):
    """Hand facts over again, and forget the alarm: somebody has looked."""

    turn = staticmethod(provisioning.open_gate)


class CloseGateView(GateView):
    """Hand nothing over until somebody opens it; both sides work on."""

    turn = staticmethod(provisioning.close_gate)


class LimitView(Refusing, APIView):
    """The limits of a store buffer: size and retention. Limits that are not named stay; nothing is removed."""

    required_scope = "transactions:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(request=LimitSerializer, responses=BoundarySerializer)
    def post(self, request: Request, boundary_id: int) -> Response:
        boundary, asked = _found(request, boundary_id), shaped(LimitSerializer, request.data)
        reason, zones = asked.pop("reason"), (boundary.from_zone.name, boundary.to_zone.name)
        allowance = Allowance(**{name: asked.get(name, getattr(boundary, name)) for name in LARGEST})
        return _answer(provisioning.limit(*zones, allowance, by=api_identity.caller_of(request).actor, reason=reason))


def _found(request: Request, boundary_id: int) -> Boundary:
    boundary = Boundary.objects.select_related("from_zone", "to_zone").filter(pk=boundary_id).first()
    if boundary is None:
        msg = f"there is no boundary {boundary_id}"
        raise UnknownBoundaryError(msg)
    rights.check_operation(api_identity.caller_of(request), boundary.from_zone.name, boundary.to_zone.name)
    return boundary


def _zones(request: Request, boundary_id: int) -> tuple[str, str]:
    boundary = _found(request, boundary_id)
    return boundary.from_zone.name, boundary.to_zone.name


def _answer(boundary: Any) -> Response:
    return Response(BoundarySerializer(boundary).data)
