"""Every span, attribute and instrument of provider calls, in one place. No payload is in any of them.

Spans: `provider.execute` › `provider.attempt`. Attributes name the provider, capability, operation, outcome and reason.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from opentelemetry import metrics, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from engines.core import failures
from providers.core.exchange import ProviderExecutionResult
from providers.core.steps import Answered, Failed

PROVIDER = "ergon.provider"
CAPABILITY = "ergon.capability"
OPERATION = "ergon.operation"
TENANT = "ergon.tenant"
CORRELATION = "ergon.correlation_id"
ATTEMPT = "ergon.attempt"
OUTCOME = "ergon.outcome"
REASON = "ergon.reason_code"
VERB = "ergon.verb"
HTTP_STATUS = "http.response.status_code"
REPLAYED = "ergon.replayed"

tracer = trace.get_tracer("ergon.providers")
_meter = metrics.get_meter("ergon.providers")
_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]

executions = _meter.create_counter("ergon.provider.executions", description="Executions, by outcome and reason")
attempts = _meter.create_counter("ergon.provider.attempts", description="Attempts, by outcome and reason")
attempt_duration = _meter.create_histogram(
    "ergon.provider.attempt.duration",
    unit="s",
    description="One attempt",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
suppressed = _meter.create_counter(
    "ergon.provider.retries.suppressed", description="Retries that the retry budget did not allow"
)
store_failures = _meter.create_counter(
    "ergon.provider.store_failures", description="Failures to reach the database, by verb"
)

T = TypeVar("T", bound=Answered | Failed)


@dataclass(slots=True)
class Attempting:
    span: trace.Span
    labels: dict[str, Any]
    started: float = field(default_factory=time.perf_counter)

    def ended(self, outcome: T) -> T:
        error = outcome.error if isinstance(outcome, Failed) else None
        labels = {**self.labels, OUTCOME: "failed" if error else "success"}
        if error:
            labels[REASON] = error.reason_code
            self.span.set_attribute(REASON, error.reason_code)
            self.span.set_status(trace.StatusCode.ERROR, error.reason_code)
        status = outcome.error.http_status if isinstance(outcome, Failed) else outcome.http_status
        if status is not None:
            self.span.set_attribute(HTTP_STATUS, status)
        attempts.add(1, labels)
        attempt_duration.record(time.perf_counter() - self.started, labels)
        return outcome


@dataclass(slots=True)
class Executing:
    span: trace.Span
    labels: dict[str, Any]

    def ended(self, result: ProviderExecutionResult) -> ProviderExecutionResult:
        labels = {**self.labels, OUTCOME: result.outcome.value}
        self.span.set_attribute(OUTCOME, result.outcome.value)
        self.span.set_attribute(REPLAYED, result.replayed)
        if result.reason_code is not None:
            labels[REASON] = result.reason_code
            self.span.set_attribute(REASON, result.reason_code)
            self.span.set_status(trace.StatusCode.ERROR, result.reason_code)
        executions.add(1, labels)
        if result.retry_suppressed:
            suppressed.add(1, self.labels)
        return result


@contextmanager
def executing(attributes: Mapping[str, Any], *, tenant_id: str, correlation_id: str) -> Iterator[Executing]:
    """Around one execution. Tenants and correlations are on spans alone: as labels they would be without number."""
    about = {**attributes, TENANT: tenant_id, CORRELATION: correlation_id}
    with _span("provider.execute", about) as span:
        yield Executing(span, dict(attributes))


@contextmanager
def attempting(attributes: Mapping[str, Any], attempt: int) -> Iterator[Attempting]:
    about = {**attributes, ATTEMPT: attempt}
    with _span("provider.attempt", about) as span:
        yield Attempting(span, dict(attributes))


@contextmanager
def _span(name: str, attributes: Mapping[str, Any]) -> Iterator[trace.Span]:
    """A span that records an exception without secrets; OpenTelemetry alone would record it as it is."""
    with tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except Exception as error:
            texts = {"message": failures.message_of(error), "stacktrace": failures.traceback_of(error)}
            span.record_exception(error, {f"exception.{field}": text for field, text in texts.items()})
            span.set_status(trace.StatusCode.ERROR, f"{type(error).__name__}: {texts['message']}")
            raise


def carried() -> dict[str, str]:
    """The headers by which a provider's spans join this trace; none if there is no trace."""
    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
