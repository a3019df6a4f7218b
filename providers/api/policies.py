"""Policies of providers over HTTP; the version in force is their entity tag."""

from http import HTTPStatus
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ergon_site.access import api_identity
from ergon_site.access.api import preconditions
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, shaped
from ergon_site.access.api.pagination import NewestFirst
from ergon_site.access.api.preconditions import IF_MATCH, IF_NONE_MATCH
from ergon_site.access.api.schema import also_refuses
from providers import active_policy, policies
from providers.api.problems import Refusing
from providers.models import ProviderPolicyRow, ProviderPolicyVersion

POLICY_LIMIT = 256 * 1024
VERSIONS_TOLD = 100


class NewProviderVersionSerializer(DecisionSerializer):
    policy = serializers.DictField(help_text="Fields that are left out take their defaults.")


class ProviderPolicyVersionSerializer(serializers.ModelSerializer[ProviderPolicyVersion]):
    changes = serializers.ListField(child=serializers.DictField())

    class Meta:
        model = ProviderPolicyVersion
        fields: ClassVar[Any] = ["number", "author", "reason", "created_at", "changes"]


class ProviderPolicySerializer(serializers.ModelSerializer[ProviderPolicyRow]):
    version = serializers.IntegerField(source="active.number")

    class Meta:
        model = ProviderPolicyRow
        fields: ClassVar[Any] = ["provider_name", "capability", "version"]


class ProviderPolicyDetailSerializer(ProviderPolicySerializer):
    policy = serializers.SerializerMethodField(help_text="The active version, complete.")
    versions = serializers.SerializerMethodField(help_text="The newest 100.")

    class Meta(ProviderPolicySerializer.Meta):
        fields: ClassVar[Any] = [*ProviderPolicySerializer.Meta.fields, "policy", "versions"]

    def get_policy(self, row: ProviderPolicyRow) -> dict[str, Any]:
        return row.in_force.policy.to_dict()

    @extend_schema_field(ProviderPolicyVersionSerializer(many=True))
    def get_versions(self, row: ProviderPolicyRow) -> list[dict[str, Any]]:
        newest = row.versions.order_by("-number")[:VERSIONS_TOLD]
        return list(ProviderPolicyVersionSerializer(newest, many=True).data)


class ByProvider(NewestFirst):
    ordering = ("provider_name", "capability")


class ProviderPoliciesView(Refusing, ListAPIView[ProviderPolicyRow]):
    """The stored policies, by provider and capability."""

    required_scope = "policies:read"
    queryset = ProviderPolicyRow.objects.select_related("active")
    serializer_class = ProviderPolicySerializer
    pagination_class = ByProvider


class ProviderPolicyView(Refusing, APIView):
    """A policy and its versions. The entity tag is the number of the active version."""

    required_scope = "policies:read"

    @extend_schema(responses=ProviderPolicyDetailSerializer)
    def get(self, request: Request, provider_name: str, capability: str) -> Response:
        document = ProviderPolicyDetailSerializer(active_policy.POLICIES.find(provider_name, capability)).data
        return Response(document, headers=preconditions.etag(document["version"]))


class ProviderVersionsView(Refusing, APIView):
    """Write a version, in force at once; with `If-None-Match: *`, the first one of a new policy."""

    required_scope = "policies:write"
    body_limit = POLICY_LIMIT

    @extend_schema(
        parameters=[IF_MATCH, IF_NONE_MATCH],
        request=NewProviderVersionSerializer,
        responses={(201, "application/json"): ProviderPolicyVersionSerializer, **also_refuses(412, 428)},
    )
    def post(self, request: Request, provider_name: str, capability: str) -> Response:
        expected = preconditions.of_writing(request)
        asked, by = shaped(NewProviderVersionSerializer, request.data), api_identity.caller_of(request).actor
        if expected != 0:
            active_policy.POLICIES.find(provider_name, capability)
        body = asked.pop("policy")
        version = policies.write(provider_name, capability, body=body, by=by, expected=expected, **asked)
        told, headers = ProviderPolicyVersionSerializer(version).data, preconditions.etag(version.number)
        return Response(told, status=HTTPStatus.CREATED, headers=headers)


class ActivateProviderVersionView(Refusing, APIView):
    """Put a version in force again."""

    required_scope = "policies:write"
    body_limit = DECISION_LIMIT

    @extend_schema(
        parameters=[IF_MATCH],
        request=DecisionSerializer,
        responses={(200, "application/json"): ProviderPolicyVersionSerializer, **also_refuses(412, 428)},
    )
    def post(self, request: Request, provider_name: str, capability: str, number: int) -> Response:
        expected = preconditions.of_change(request)
        terms = {**shaped(DecisionSerializer, request.data), "by": api_identity.caller_of(request).actor}
        version = policies.activate(provider_name, capability, number=number, expected=expected, **terms)
        told = ProviderPolicyVersionSerializer(version).data
        return Response(told, headers=preconditions.etag(version.number))
