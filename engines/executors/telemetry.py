"""Spans of an executor: `rrq.executor`, in the trace that the request carries.

OpenTelemetry is optional here, and loaded only by those who use it: by a module of handlers that wires the SDK itself,
or by the standard variables.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from engines.executors.protocol import ExecutionOutcome, ExecutionRequest, Status

SPAN = "rrq.executor"
WANTED = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@contextmanager
def span(request: ExecutionRequest) -> Iterator[Callable[[ExecutionOutcome], None]]:
    """Wrap one job; the function that is given tells how it came out. Arguments and results stay out."""
    if "opentelemetry.trace" not in sys.modules:
        yield lambda _: None
        return
    from opentelemetry import trace
    from opentelemetry.trace import SpanKind, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    from engines.core.text_redaction import redact_text

    parent = TraceContextTextMapPropagator().extract(dict(request.context.trace_context))
    attributes: dict[str, Any] = {
        "rrq.job_id": request.job_id,
        "rrq.function": request.function_name,
        "rrq.queue": request.context.queue_name,
        "rrq.attempt": request.context.attempt,
    }
    tracer = trace.get_tracer("ergon.executors")
    with tracer.start_as_current_span(SPAN, parent, SpanKind.CONSUMER, attributes) as current:

        def tell(outcome: ExecutionOutcome) -> None:
            current.set_attribute("rrq.outcome", outcome.status.value)
            if outcome.status is not Status.SUCCESS:
                current.set_attribute("error.type", outcome.error_type or outcome.status.value)
                current.set_status(StatusCode.ERROR, redact_text(outcome.error_message or ""))

        yield tell


def export(environment: Mapping[str, str]) -> None:
    """Send spans where the standard variables say, if they say anything and the SDK is here."""
    if not any(environment.get(name) for name in WANTED) or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        return
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return  # the handlers have wired it themselves
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
