"""Calls over HTTP: every attempt that was made or refused."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from ergon_site.access import api_identity
from providers.api import asking
from providers.api.problems import Refusing
from providers.api.serializers import MetricSerializer
from providers.models import ProviderExecutionMetric


class MetricsView(Refusing, ListAPIView[ProviderExecutionMetric]):
    """Attempts, newest first, of the tenants that this client may see."""

    required_scope = "providers:read"
    serializer_class = MetricSerializer
    queryset = ProviderExecutionMetric.objects.all()

    def get_queryset(self) -> QuerySet[ProviderExecutionMetric]:
        return super().get_queryset().filter(asking.metrics(api_identity.caller_of(self.request), self.request.GET))

    @extend_schema(parameters=asking.FOR_METRICS)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)
