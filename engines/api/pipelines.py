"""Pipelines over HTTP, and the schedules that submit to them."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engines import pipelines, schedules
from engines.api import hiding
from engines.api.bodies import TakesPayload
from engines.api.problems import Refusing, answers
from engines.api.serializers import (
    AmendmentSerializer,
    NewPipelineSerializer,
    NewScheduleSerializer,
    PipelineSerializer,
    ScheduleDetailSerializer,
    ScheduleSerializer,
)
from engines.models import Pipeline, Schedule
from engines.reads import depth
from engines.reads.depth import Waiting
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, shaped
from ergon_site.access.api.pagination import ByName

PLAN_LIMIT = 64 * 1024


def pipeline_body(pipeline: Pipeline) -> Any:
    return PipelineSerializer(pipeline, context={"waiting": depth.depths([pipeline.pk])}).data


def schedule_body(schedule: Schedule) -> Any:
    return ScheduleSerializer(schedule).data


class PipelinesView(Refusing, ListAPIView[Pipeline]):
    """All pipelines by name: what they run, under which policy, whether they are paused and how many wait."""

    required_scope = {"GET": "transactions:read", "POST": "transactions:operate"}
    queryset = Pipeline.objects.select_related("policy__active")
    serializer_class = PipelineSerializer
    pagination_class = ByName
    body_limit = PLAN_LIMIT
    waiting: dict[int, Waiting]

    def paginate_queryset(self, queryset: Any) -> Any:
        page = super().paginate_queryset(queryset)
        self.waiting = depth.depths([pipeline.pk for pipeline in page or ()])
        return page

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "waiting": getattr(self, "waiting", {})}

    @extend_schema(request=NewPipelineSerializer, responses=answers(PipelineSerializer, 409, status=201))
    def post(self, request: Request) -> Response:
        """Make a pipeline. The task need not be known here yet."""
        plan = shaped(NewPipelineSerializer, request.data)
        name, reason = plan.pop("name"), plan.pop("reason")
        pipeline = pipelines.create(name, pipelines.Plan(**plan), by=self.caller.actor, reason=reason)
        return Response(pipeline_body(pipeline), status=HTTPStatus.CREATED)


class PipelineView(Refusing, APIView):
    """A pipeline, and how many wait in it."""

    required_scope = "transactions:read"

    @extend_schema(responses=PipelineSerializer)
    def get(self, request: Request, name: str) -> Response:
        return Response(pipeline_body(pipelines.find(name)))


class AmendView(Refusing, APIView):
    """Change what a pipeline is; what is not named stays. A task takes the place of an executor, or the other way."""

    required_scope = "transactions:operate"
    body_limit = PLAN_LIMIT

    @extend_schema(request=AmendmentSerializer, responses=PipelineSerializer)
    def post(self, request: Request, name: str) -> Response:
        plan = shaped(AmendmentSerializer, request.data)
        hiding.check_bared(self.caller, pipelines.find(name), plan.get("redacted"))
        reason = plan.pop("reason")
        pipeline = pipelines.amend(name, pipelines.amendment(**plan), by=self.caller.actor, reason=reason)
        return Response(pipeline_body(pipeline))


class DecisionView(Refusing, APIView):
    """Carries out a verb on what goes by a name, for a reason."""

    required_scope = "transactions:operate"
    body_limit = DECISION_LIMIT
    verb: ClassVar[Callable[..., Any]]
    told: ClassVar[Callable[..., Any]]

    def post(self, request: Request, name: str) -> Response:
        row = self.verb(name, by=self.caller.actor, **shaped(DecisionSerializer, request.data))
        return Response(self.told(row))


@extend_schema_view(post=extend_schema(request=DecisionSerializer, responses=PipelineSerializer))
class PauseView(DecisionView):
    """Stop claims at once; what runs is let end."""

    verb, told = staticmethod(pipelines.pause), staticmethod(pipeline_body)


@extend_schema_view(post=extend_schema(request=DecisionSerializer, responses=PipelineSerializer))
class ResumeView(DecisionView):
    """Let claims go on."""

    verb, told = staticmethod(pipelines.resume), staticmethod(pipeline_body)


class SchedulesView(TakesPayload, Refusing, ListAPIView[Schedule]):
    """All schedules by name, without payloads."""

    required_scope = {"GET": "transactions:read", "POST": "transactions:operate"}
    queryset = Schedule.objects.select_related("pipeline").defer("payload")
    serializer_class = ScheduleSerializer
    pagination_class = ByName

    @extend_schema(request=NewScheduleSerializer, responses=answers(ScheduleDetailSerializer, 409, status=201))
    def post(self, request: Request) -> Response:
        """Submit a payload to a pipeline at the times of a cron expression."""
        plan = shaped(NewScheduleSerializer, request.data)
        name, reason = plan.pop("name"), plan.pop("reason")
        schedule = schedules.create(name, schedules.Plan(**plan), by=self.caller.actor, reason=reason)
        return Response(ScheduleDetailSerializer(schedules.find(schedule.name)).data, status=HTTPStatus.CREATED)


class ScheduleView(Refusing, APIView):
    """A schedule and what it submits."""

    required_scope = "transactions:read"

    @extend_schema(responses=ScheduleDetailSerializer)
    def get(self, request: Request, name: str) -> Response:
        return Response(ScheduleDetailSerializer(schedules.find(name)).data)


@extend_schema_view(post=extend_schema(request=DecisionSerializer, responses=ScheduleSerializer))
class PauseScheduleView(DecisionView):
    """Pause a schedule: it submits nothing until it is resumed."""

    verb, told = staticmethod(schedules.pause), staticmethod(schedule_body)


@extend_schema_view(post=extend_schema(request=DecisionSerializer, responses=ScheduleSerializer))
class ResumeScheduleView(DecisionView):
    """Resume a schedule with its next run; missed runs are not made up for."""

    verb, told = staticmethod(schedules.resume), staticmethod(schedule_body)
