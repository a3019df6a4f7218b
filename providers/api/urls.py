"""The addresses of providers."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from providers.api.health import EventsView, MetricsView, OverrideView, ProvidersView, QuotaView, SummaryView
from providers.api.policies import (
    ActivateProviderVersionView,
    ProviderPoliciesView,
    ProviderPolicyView,
    ProviderVersionsView,
)


class Named(StringConverter):
    """The names of providers and capabilities in an address."""

    regex = r"[^/\x00]{1,100}"


register_converter(Named, "named")
KEY = "<named:provider_name>/<named:capability>"

urlpatterns = [
    path("provider-health/summary", SummaryView.as_view(), name="provider-health-summary"),
    path("provider-metrics", MetricsView.as_view(), name="provider-metrics"),
    path("provider-events", EventsView.as_view(), name="provider-events"),
    path("providers", ProvidersView.as_view(), name="providers"),
    path("providers/<str:provider_name>/<str:capability>/override", OverrideView.as_view(), name="provider-override"),
    path(f"providers/{KEY}/quota", QuotaView.as_view(), name="provider-quota"),
    path("provider-policies", ProviderPoliciesView.as_view(), name="provider-policies"),
    path(f"provider-policies/{KEY}", ProviderPolicyView.as_view(), name="provider-policy"),
    path(f"provider-policies/{KEY}/versions", ProviderVersionsView.as_view(), name="provider-policy-versions"),
    path(
        f"provider-policies/{KEY}/versions/<int:number>/activate",
        ActivateProviderVersionView.as_view(),
        name="provider-policy-version-activate",
    ),
]
