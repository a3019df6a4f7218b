"""Boundaries over HTTP, for whoever operates them: gates, ceilings, retention."""

from collections.abc import Callable
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ergon_site.access import api_identity
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, shaped
from facts import provisioning
from facts.api import rights
from facts.api.problems import Refusing
from facts.core.errors import UnknownBoundaryError
from facts.models import Boundary
from facts.provisioning import LARGEST, Allowance


class BoundarySerializer(serializers.ModelSerializer[Boundary]):
    from_zone = serializers.CharField(source="from_zone.name")
    to_zone = serializers.CharField(source="to_zone.name")
    gate = serializers.CharField(help_text="normal, autonomous (closed) or reconciling.")
    backlog = serializers.SerializerMethodField(
        help_text="Facts that have not been handed over, or not been confirmed by the slowest local consumer."
    )
    is_remote = serializers.BooleanField(help_text="Whether its facts are pulled from a peer.")

    class Meta:
        model = Boundary
        fields: ClassVar[Any] = [
            *("id", "from_zone", "to_zone", "gate", "gate_at", "gate_by", "gate_reason", "failures", "alarm"),
            *("alarm_offset", "alarm_last", "heard_at", "retired_at"),
            *("first_offset", "next_offset", "frontier", "backlog", "stored_bytes", "handed_over_at", "is_remote"),
            *LARGEST,
        ]

    def get_backlog(self, boundary: Boundary) -> int:
        return provisioning.unconfirmed(boundary)


def _limit(name: str, help_text: str, **more: Any) -> serializers.IntegerField:
    return serializers.IntegerField(required=False, min_value=1, max_value=LARGEST[name], help_text=help_text, **more)


class LimitSerializer(DecisionSerializer):
    row_ceiling = _limit("row_ceiling", "Maximum number of facts; null for no limit.", allow_null=True)
    byte_ceiling = _limit("byte_ceiling", "Maximum bytes of canonical JSON; null for no limit.", allow_null=True)
    keep_days = _limit("keep_days", "Days after which facts that every consumer has confirmed may be removed.")
    dedupe_days = _limit(
        "dedupe_days",
        "Days that message ids are remembered after truncation; null for 30 days more than facts are kept.",
        allow_null=True,
    )


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
        boundary, asked = _found(request, boundary_id), shaped(DecisionSerializer, request.data)
        by = api_identity.caller_of(request).actor
        return Response(BoundarySerializer(type(self).turn(*boundary.zones, by=by, **asked)).data)


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
        by = api_identity.caller_of(request).actor
        allowance = Allowance(**{name: asked.get(name, getattr(boundary, name)) for name in LARGEST})
        limited = provisioning.limit(*boundary.zones, allowance, by=by, reason=asked["reason"])
        return Response(BoundarySerializer(limited).data)


def _found(request: Request, boundary_id: int) -> Boundary:
    boundary = Boundary.objects.select_related("from_zone", "to_zone").filter(pk=boundary_id).first()
    if boundary is None:
        msg = f"there is no boundary {boundary_id}"
        raise UnknownBoundaryError(msg)
    rights.check_operation(api_identity.caller_of(request), *boundary.zones)
    return boundary
