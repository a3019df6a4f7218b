"""The addresses of providers."""

from django.urls import path

from providers.api.health import OverrideView, ProvidersView, SummaryView
from providers.api.metrics import MetricsView

urlpatterns = [
    path("provider-health/summary", SummaryView.as_view(), name="provider-health-summary"),
    path("provider-metrics", MetricsView.as_view(), name="provider-metrics"),
    path("providers", ProvidersView.as_view(), name="providers"),
    path("providers/<str:provider_name>/<str:capability>/override", OverrideView.as_view(), name="provider-override"),
]
