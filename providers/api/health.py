"""Health, calls, breakers and quotas of providers over HTTP."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ergon_site.access import api_identity
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, shaped
from ergon_site.access.core.texts import LONGEST_REASON
from ergon_site.access.database.clock import database_time
from providers import calls
from providers.api import parameters
from providers.api.problems import Refusing
from providers.api.serializers import (
    EventSerializer,
    MetricSerializer,
    OverrideSerializer,
    StandingSerializer,
    StandingsSerializer,
    SummarySerializer,
)
from providers.calls.overrides import LARGEST, LONGEST
from providers.models import ProviderEvent, ProviderExecutionMetric
from providers.models.columns import NAME
from providers.reads import health

WHY = OpenApiParameter(
    "reason", str, required=True, description=f"1 to {LONGEST_REASON:,} characters, kept in the audit log."
)


class SummaryView(Refusing, APIView):
    """Every provider of a tenant that has a quota or health."""

    required_scope = "providers:read"

    @extend_schema(parameters=[parameters.TENANT], responses=SummarySerializer)
    def get(self, request: Request) -> Response:
        tenant_id = parameters.tenant(api_identity.caller_of(request), request.GET.get("tenant_id"))
        found = health.of_tenant(tenant_id)
        told = {"tenant_id": tenant_id, "generated_at": database_time(), "providers": found}
        return Response(SummarySerializer(told).data)


class ProvidersView(Refusing, APIView):
    """The same with what operators need besides: executions, pauses, overrides."""

    required_scope = "providers:read"

    @extend_schema(parameters=[parameters.TENANT], responses=StandingsSerializer)
    def get(self, request: Request) -> Response:
        tenant_id = parameters.tenant(api_identity.caller_of(request), request.GET.get("tenant_id"))
        # A tenant has as many as there are capabilities: they fit on one page.
        page = {"results": health.of_tenant(tenant_id), "next": None, "previous": None}
        return Response(StandingsSerializer(page).data)


class OverrideView(Refusing, APIView):
    """Reset a breaker, or force it open or closed, in all processes at once."""

    required_scope = "providers:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(request=OverrideSerializer, responses={(200, "application/json"): StandingSerializer})
    def post(self, request: Request, provider_name: str, capability: str) -> Response:
        asked = parameters.override(request.data)
        caller = api_identity.caller_of(request)
        who = parameters.who(caller, asked["tenant_id"], provider_name, capability)
        why = {"by": caller.actor, "reason": asked["reason"].strip()}
        match asked["action"]:
            case "force-open":
                gate = calls.force_open(who, lasting=asked["lasting"], **why)
            case "force-close":
                gate = calls.force_closed(who, lasting=asked["lasting"], **why)
            case _:
                gate = calls.reset(who, **why)
        return Response(StandingSerializer(health.of_gates([gate])[0]).data)


class MetricsView(Refusing, ListAPIView[ProviderExecutionMetric]):
    """Attempts, newest first, of the tenants that this client may see."""

    required_scope = "providers:read"
    serializer_class = MetricSerializer
    queryset = ProviderExecutionMetric.objects.all()

    def get_queryset(self) -> QuerySet[ProviderExecutionMetric]:
        return super().get_queryset().filter(parameters.metrics(api_identity.caller_of(self.request), self.request.GET))

    @extend_schema(parameters=parameters.FOR_METRICS)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)


class EventsView(Refusing, ListAPIView[ProviderEvent]):
    """Changes of breakers, pauses, quotas and overrides, newest first, of the tenants that this client may see."""

    required_scope = "providers:read"
    serializer_class = EventSerializer
    queryset = ProviderEvent.objects.all()

    def get_queryset(self) -> QuerySet[ProviderEvent]:
        return super().get_queryset().filter(parameters.events(api_identity.caller_of(self.request), self.request.GET))

    @extend_schema(parameters=parameters.FOR_EVENTS)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)


class NewQuotaSerializer(DecisionSerializer):
    tenant_id = serializers.CharField(
        max_length=NAME,
        help_text="A tenant's UUID; or *, with the capability *, for all that share the provider's account.",
    )
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
        who = parameters.who(caller, terms.pop("tenant_id"), provider_name, capability)
        calls.set_quota(who, by=caller.actor, **terms)
        return Response(StandingSerializer(health.health_of(who)).data)

    @extend_schema(parameters=[parameters.TENANT, WHY], responses={(200, "application/json"): StandingSerializer})
    def delete(self, request: Request, provider_name: str, capability: str) -> Response:
        """No quota from now on: calls are not counted any more."""
        caller = api_identity.caller_of(request)
        terms = shaped(DecisionSerializer, {name: request.GET[name] for name in ("reason",) if name in request.GET})
        who = parameters.who(caller, request.GET.get("tenant_id"), provider_name, capability)
        calls.drop_quota(who, by=caller.actor, **terms)
        return Response(StandingSerializer(health.health_of(who)).data)
