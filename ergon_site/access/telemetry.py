"""The API's instruments."""

from opentelemetry import metrics

_meter = metrics.get_meter("ergon.access")

api_duration = _meter.create_histogram(
    "ergon.api.request.duration", unit="s", description="How long the API took to answer, by method, route and status"
)
