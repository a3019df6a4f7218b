"""Pipelines over HTTP."""

from http import HTTPStatus
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engines import pipelines
from engines.api import bodies, hiding
from engines.api.pipeline_serializers import AmendmentSerializer, NewPipelineSerializer, PipelineSerializer
from engines.api.problems import Refusing
from engines.models import Pipeline
from engines.pipelines import Plan
from engines.reads import depth
from engines.reads.depth import Waiting
from ergon_site.access import api_identity
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, shaped
from ergon_site.access.api.pagination import ByName
from ergon_site.access.api.schema import also_refuses

PLAN_LIMIT = 64 * 1024


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

    @extend_schema(
        request=NewPipelineSerializer,
        responses={(201, "application/json"): PipelineSerializer, **also_refuses(409)},
    )
    def post(self, request: Request) -> Response:
        """Make a pipeline. The task need not be known here yet."""
        plan = shaped(NewPipelineSerializer, request.data)
        name, reason = plan.pop("name"), plan.pop("reason")
        pipeline = pipelines.create(name, Plan(**plan), by=api_identity.caller_of(request).actor, reason=reason)
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
        plan, caller = shaped(AmendmentSerializer, request.data), api_identity.caller_of(request)
        hiding.check_bared(caller, pipelines.find(name), plan.get("redacted"))
        reason = plan.pop("reason")
        return Response(
            pipeline_body(pipelines.amend(name, pipelines.amendment(**plan), by=caller.actor, reason=reason))
        )


class PauseView(Refusing, APIView):
    """Stop claims at once; what runs is let end."""

    required_scope = "transactions:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(request=DecisionSerializer, responses=PipelineSerializer)
    def post(self, request: Request, name: str) -> Response:
        return Response(
            pipeline_body(
                pipelines.pause(name, by=api_identity.caller_of(request).actor, **bodies.decision(request.data))
            )
        )


class ResumeView(Refusing, APIView):
    """Let claims go on."""

    required_scope = "transactions:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(request=DecisionSerializer, responses=PipelineSerializer)
    def post(self, request: Request, name: str) -> Response:
        return Response(
            pipeline_body(
                pipelines.resume(name, by=api_identity.caller_of(request).actor, **bodies.decision(request.data))
            )
        )


def pipeline_body(pipeline: Pipeline) -> Any:
    return PipelineSerializer(pipeline, context={"waiting": depth.depths([pipeline.pk])}).data
