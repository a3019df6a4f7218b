"""Policies over HTTP; the version in force is their entity tag."""

from http import HTTPStatus

from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engines import policies, rehearsals
from engines.api import bodies
from engines.api.problems import Refusing, answers
from engines.api.serializers import (
    DraftSerializer,
    NewVersionSerializer,
    PolicyDetailSerializer,
    PolicySerializer,
    PolicyVersionSerializer,
    RehearsalSerializer,
)
from engines.models import Policy
from ergon_site.access.api import preconditions
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, object_fields, shaped
from ergon_site.access.api.pagination import ByName
from ergon_site.access.api.preconditions import IF_MATCH, IF_NONE_MATCH


class PoliciesView(Refusing, ListAPIView[Policy]):
    """All policies by name, with the pipelines that they govern."""

    required_scope = "policies:read"
    queryset = Policy.objects.select_related("active").prefetch_related("pipelines")
    serializer_class = PolicySerializer
    pagination_class = ByName


class PolicyView(Refusing, APIView):
    """A policy and its versions. The entity tag is the number of the active version."""

    required_scope = "policies:read"

    @extend_schema(responses=PolicyDetailSerializer)
    def get(self, request: Request, name: str) -> Response:
        document = PolicyDetailSerializer(policies.find(name)).data
        return Response(document, headers=preconditions.etag(document["version"]))


class VersionsView(Refusing, APIView):
    """Write a version, in force at once; with `If-None-Match: *`, the first one of a new policy."""

    required_scope = "policies:write"
    body_limit = policies.LARGEST

    @extend_schema(
        parameters=[IF_MATCH, IF_NONE_MATCH],
        request=NewVersionSerializer,
        responses=answers(PolicyVersionSerializer, 412, 428, status=201),
    )
    def post(self, request: Request, name: str) -> Response:
        expected = preconditions.of_writing(request)
        asked = bodies.version(request.data, is_first=expected == 0)
        body, by = asked.pop("policy"), self.caller.actor
        version = policies.write(name, body, by=by, expected=expected, **asked)
        headers = preconditions.etag(version.number)
        return Response(PolicyVersionSerializer(version).data, status=HTTPStatus.CREATED, headers=headers)


class ActivateView(Refusing, APIView):
    """Put a version in force again."""

    required_scope = "policies:write"
    body_limit = DECISION_LIMIT

    @extend_schema(
        parameters=[IF_MATCH], request=DecisionSerializer, responses=answers(PolicyVersionSerializer, 412, 428)
    )
    def post(self, request: Request, name: str, number: int) -> Response:
        expected = preconditions.of_change(request)
        asked, by = shaped(DecisionSerializer, request.data), self.caller.actor
        version = policies.activate(name, number, by=by, expected=expected, **asked)
        return Response(PolicyVersionSerializer(version).data, headers=preconditions.etag(version.number))


class RehearsalsView(Refusing, APIView):
    """Rehearse a policy on the last day of its pipelines, without saving it; maintenance computes the figures."""

    required_scope = "policies:write"
    body_limit = policies.LARGEST

    @extend_schema(request=DraftSerializer, responses=answers(RehearsalSerializer, status=202))
    def post(self, request: Request, name: str) -> Response:
        body = object_fields(request.data, required=("policy",))["policy"]
        asked = rehearsals.begin(policies.find(name), body, by=self.caller.actor)
        return Response(RehearsalSerializer(asked).data, status=HTTPStatus.ACCEPTED)


class RehearsalView(Refusing, APIView):
    """A rehearsal, and its figures once it is done."""

    required_scope = "policies:read"

    @extend_schema(responses=RehearsalSerializer)
    def get(self, request: Request, name: str, number: int) -> Response:
        return Response(RehearsalSerializer(rehearsals.find(policies.find(name), number)).data)
