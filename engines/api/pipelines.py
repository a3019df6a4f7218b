"""Pipelines over HTTP."""

from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engines import pipelines
from engines.api import bodies
from engines.api.problems import Refusing
from engines.api.serializers import PipelineSerializer
from engines.models import Pipeline
from ergon_site.access import callers
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer
from ergon_site.access.api.pagination import ByName


class PipelinesView(Refusing, ListAPIView[Pipeline]):
    """All pipelines by name: what they run, under which policy, whether they are paused and how many wait."""

    required_scope = "transactions:read"
    queryset = Pipeline.objects.select_related("policy__active")
    serializer_class = PipelineSerializer
    pagination_class = ByName


class PauseView(Refusing, APIView):
    """Stop claims at once; what runs is let end."""

    required_scope = "transactions:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(request=DecisionSerializer, responses=PipelineSerializer)
    def post(self, request: Request, name: str) -> Response:
        pipeline = pipelines.pause(name, by=callers.of(request).actor, **bodies.decision(request.data))
        return Response(PipelineSerializer(pipeline).data)


class ResumeView(Refusing, APIView):
    """Let claims go on."""

    required_scope = "transactions:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(request=DecisionSerializer, responses=PipelineSerializer)
    def post(self, request: Request, name: str) -> Response:
        pipeline = pipelines.resume(name, by=callers.of(request).actor, **bodies.decision(request.data))
        return Response(PipelineSerializer(pipeline).data)
