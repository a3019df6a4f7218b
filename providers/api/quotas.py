"""Quotas over HTTP: how many calls of a provider a tenant may make in each window."""

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ergon_site.access import api_identity
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, shaped
from ergon_site.access.core.texts import LONGEST_REASON
from providers import calls
from providers.api import parameters
from providers.api.problems import Refusing
from providers.api.serializers import StandingSerializer
from providers.calls.overrides import LARGEST, LONGEST
from providers.core.exchange import Who
from providers.reads import health

WHY = OpenApiParameter(
    "reason", str, required=True, description=f"1 to {LONGEST_REASON:,} characters, kept in the audit log."
)


class NewQuotaSerializer(DecisionSerializer):
    tenant_id = serializers.UUIDField()
    limit = serializers.IntegerField(min_value=0, max_value=LARGEST, help_text="Calls per window; 0 blocks all calls.")
    window = serializers.FloatField(
        min_value=1, max_value=LONGEST.total_seconds(), help_text="Length of a window in seconds."
    )


class QuotaView(Refusing, APIView):
    """The quota of a capability. A change holds for every process at once."""

    required_scope = "providers:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(request=NewQuotaSerializer, responses={(200, "application/json"): StandingSerializer})
    def put(self, request: Request, provider_name: str, capability: str) -> Response:
        """Allow so many calls in each window. What the present window has used stays used."""
        terms = shaped(NewQuotaSerializer, request.data)
        caller = api_identity.caller_of(request)
        who = Who(parameters.tenant(caller, str(terms.pop("tenant_id"))), provider_name, capability)
        calls.set_quota(who, by=caller.actor, **terms)
        return Response(StandingSerializer(health.health_of(who)).data)

    @extend_schema(parameters=[parameters.TENANT, WHY], responses={(200, "application/json"): StandingSerializer})
    def delete(self, request: Request, provider_name: str, capability: str) -> Response:
        """No quota from now on: calls are not counted any more."""
        caller = api_identity.caller_of(request)
        terms = shaped(DecisionSerializer, {name: request.GET[name] for name in ("reason",) if name in request.GET})
        who = Who(parameters.tenant(caller, request.GET.get("tenant_id")), provider_name, capability)
        calls.drop_quota(who, by=caller.actor, **terms)
        return Response(StandingSerializer(health.health_of(who)).data)
