"""The API's instruments."""

from opentelemetry import metrics

_meter = metrics.get_meter("ergon.access")

api_duration = _meter.create_histogram(
    "ergon.api.request.duration",
    unit="s",
    description="Response time of the API, by method, route and status",
    explicit_bucket_boundaries_advisory=[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5],
)
