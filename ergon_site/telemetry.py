"""OpenTelemetry and logs, wired once per process and only as far as somebody asked for it.

Ergon's apps use the OpenTelemetry API; this module decides whether an SDK stands behind it. Without
`OTEL_EXPORTER_OTLP_*ENDPOINT` there is no tracer provider and no exporter, and a span costs nothing. The web process
always keeps its instruments readable for `/metrics`.
"""

import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace
from opentelemetry.trace import Status

from engines.core.text_redaction import redact_text

# Where rich is installed, structlog loads it to draw tracebacks with the values of variables, which no log may show: a
# tenth of a start for nothing.
_modules: dict[str, Any] = sys.modules
_rich = _modules.setdefault("rich", None)
import structlog  # noqa: E402

from engines.logs import SAID, redact_errors  # noqa: E402 (loads it, too)

if _rich is None:
    del _modules["rich"]

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult

SERVICE_NAME = "ergon"
# Labels of Django's instrumentation, by their older names and their newer ones. Hosts, ports and paths are left out:
# callers choose them, and each would be a series that the process keeps for good.
REQUEST_LABELS = (
    *("http.method", "http.scheme", "http.status_code"),
    *("http.request.method", "url.scheme", "http.response.status_code", "http.route", "error.type"),
)

_is_started = False


def start(*, web: bool = False, metrics: bool = False) -> None:
    """Wire the SDK behind the API for this process, once, as its settings ask; `metrics` are kept for a port."""
    global _is_started  # noqa: PLW0603 (a process has one SDK)
    if _is_started:
        return
    _is_started = True
    if _is_exported("OTLP_TRACES"):
        _export_traces(web=web)
    is_exported = _is_exported("OTLP_METRICS")
    if is_exported or web or metrics:
        _collect_metrics(otlp=is_exported, prometheus=web or metrics)


def _is_exported(name: str) -> bool:
    """Whether a signal is sent over OTLP: never with the settings of another project, which decides that itself."""
    from ergon_site.access.conf import setting

    return bool(setting(name, {name: False}))


def _export_traces(*, web: bool) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.django import DjangoInstrumentor
    from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    class RedactingExporter(OTLPSpanExporter):
        """Sends spans without the secrets that exceptions may hold: libraries record exceptions as they are."""

        def export(self, spans: Sequence["ReadableSpan"]) -> "SpanExportResult":
            return super().export([_without_secrets(span) for span in spans])

    provider = TracerProvider(resource=_resource())
    provider.add_span_processor(BatchSpanProcessor(RedactingExporter()))
    trace.set_tracer_provider(provider)
    if web:
        DjangoInstrumentor().instrument()
    # Statements are recorded as written, with placeholders: their parameters never leave the process.
    PsycopgInstrumentor().instrument(skip_dep_check=True)


def _without_secrets(span: "ReadableSpan") -> "ReadableSpan":
    """The span with the texts of exceptions redacted, in its events and its status."""
    from opentelemetry.sdk.trace import Event, ReadableSpan

    if not span.events and span.status.description is None:
        return span
    description = span.status.description

    def redacted(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
        items = (attributes or {}).items()
        return {name: redact_text(value) if isinstance(value, str) else value for name, value in items}

    return ReadableSpan(
        span.name,
        span.context,
        span.parent,
        span.resource,
        span.attributes,
        [Event(event.name, redacted(event.attributes), event.timestamp) for event in span.events],
        span.links,
        span.kind,
        status=Status(span.status.status_code, description and redact_text(description)),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _collect_metrics(*, otlp: bool, prometheus: bool) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.metrics.view import View

    readers: list[MetricReader] = []
    if otlp:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    if prometheus:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader

        readers.append(PrometheusMetricReader())
    views = [View(instrument_name="http.server.*", attribute_keys=set(REQUEST_LABELS))]
    metrics.set_meter_provider(MeterProvider(metric_readers=readers, resource=_resource(), views=views))


def begin_to_serve() -> None:
    """What the web process adds once apps are ready: counters from zero, and the gauges of the database over OTLP.

    `/metrics` has a way of its own to the gauges.
    """
    from facts import telemetry as facts

    facts.begin_to_serve()
    if not _is_exported("OTLP_METRICS"):
        return
    from functools import partial

    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    from ergon_site import gauges

    reading = gauges.Reading()

    def observe(name: str, _options: CallbackOptions) -> list[Observation]:
        return [Observation(value, labels) for value, labels in reading.samples(name)]

    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    meter = MeterProvider(metric_readers=[reader], resource=_resource()).get_meter("ergon.gauges")
    for name in gauges.NAMES:
        meter.create_observable_gauge(name, callbacks=[partial(observe, name)])


def _resource() -> Any:
    from opentelemetry.sdk.resources import SERVICE_NAME as KEY, Resource

    found = Resource.create()
    # What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say wins; without them the SDK makes up a name.
    is_named = not str(found.attributes[KEY]).startswith("unknown_service")
    return found if is_named else found.merge(Resource({KEY: SERVICE_NAME}))


def logging_to(*, terminal: bool) -> dict[str, Any]:
    """Django's LOGGING: lines for people on a terminal, one JSON object a line anywhere else."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace_ids,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer = (
        # Pretty tracebacks show the values of local variables.
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if terminal
        else structlog.processors.JSONRenderer()
    )
    written: list[Any] = [structlog.processors.format_exc_info, _redact_errors, renderer]
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structured": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": shared,
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *written],
            }
        },
        "handlers": {"stderr": {"class": "ergon_site.access.unread.StderrHandler", "formatter": "structured"}},
        "root": {"handlers": ["stderr"], "level": "INFO"},
        "loggers": {
            "django": {"handlers": [], "level": "INFO", "propagate": True},
            # It tells of every request that was created.
            "httpx": {"level": "WARNING"},
        },
    }


def _add_trace_ids(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def _redact_errors(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return event if SAID.isdisjoint(event) else redact_errors(logger, method, event)
