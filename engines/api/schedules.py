"""Schedules over HTTP: what is submitted again and again."""

from http import HTTPStatus

from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engines import schedules
from engines.api import bodies
from engines.api.pipeline_serializers import NewScheduleSerializer, ScheduleDetailSerializer, ScheduleSerializer
from engines.api.problems import Refusing
from engines.models import Schedule
from engines.schedules import Plan
from ergon_site.access import api_identity
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, shaped
from ergon_site.access.api.pagination import ByName
from ergon_site.access.api.schema import also_refuses


class SchedulesView(Refusing, ListAPIView[Schedule]):
    """All schedules by name, without payloads."""

    required_scope = {"GET": "transactions:read", "POST": "transactions:operate"}
    queryset = Schedule.objects.select_related("pipeline").defer("payload")
    serializer_class = ScheduleSerializer
    pagination_class = ByName

    @property
    def body_limit(self) -> int:
        return bodies.payload_limit()

    @extend_schema(
        request=NewScheduleSerializer,
        responses={(201, "application/json"): ScheduleDetailSerializer, **also_refuses(409)},
    )
    def post(self, request: Request) -> Response:
        """Submit a payload to a pipeline at the times of a cron expression."""
        plan = shaped(NewScheduleSerializer, request.data)
        name, reason = plan.pop("name"), plan.pop("reason")
        schedule = schedules.create(name, Plan(**plan), by=api_identity.caller_of(request).actor, reason=reason)
        return Response(ScheduleDetailSerializer(schedules.find(schedule.name)).data, status=HTTPStatus.CREATED)


class ScheduleView(Refusing, APIView):
    """A schedule and what it submits."""

    required_scope = "transactions:read"

    @extend_schema(responses=ScheduleDetailSerializer)
    def get(self, request: Request, name: str) -> Response:
        return Response(ScheduleDetailSerializer(schedules.find(name)).data)


class PauseScheduleView(Refusing, APIView):
    """Pause a schedule: it submits nothing until it is resumed."""

    required_scope = "transactions:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(request=DecisionSerializer, responses=ScheduleSerializer)
    def post(self, request: Request, name: str) -> Response:
        schedule = schedules.pause(name, by=api_identity.caller_of(request).actor, **bodies.decision(request.data))
        return Response(ScheduleSerializer(schedule).data)


class ResumeScheduleView(Refusing, APIView):
    """Resume a schedule with its next run; missed runs are not made up for."""

    required_scope = "transactions:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(request=DecisionSerializer, responses=ScheduleSerializer)
    def post(self, request: Request, name: str) -> Response:
        schedule = schedules.resume(name, by=api_identity.caller_of(request).actor, **bodies.decision(request.data))
        return Response(ScheduleSerializer(schedule).data)
