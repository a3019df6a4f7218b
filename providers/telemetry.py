"""Every span, attribute and instrument of provider calls, in one place. No payload is in any of them.

Spans: `provider.execute` › `provider.attempt`. Attributes name the provider, capability, operation, outcome and reason.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from opentelemetry import context as contexts, metrics, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from engines.core import failures
from providers.core.exchange import CallRequest, Outcome, ProviderExecutionResult, Source
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
SOURCE = "ergon.source"

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
stand_ins = _meter.create_counter(
    "ergon.provider.stand_ins", description="Answers that are not the provider's, by source and reason"
)
store_failures = _meter.create_counter(
    "ergon.provider.store_failures", description="Failures to reach the database, by verb"
)

T = TypeVar("T", bound=Answered | Failed)


def labels_of(ticket: CallRequest) -> dict[str, str]:
    return {PROVIDER: ticket.who.provider_name, CAPABILITY: ticket.who.capability, OPERATION: ticket.operation}


def executing(
    attributes: Mapping[str, Any], *, tenant_id: str, correlation_id: str
) -> AbstractContextManager[trace.Span]:
    """Around one execution. Tenants and correlations are on spans alone: as labels they would be without number."""
    return _CurrentSpan("provider.execute", {**attributes, TENANT: tenant_id, CORRELATION: correlation_id})


def executed(span: trace.Span, labels: Mapping[str, Any], result: ProviderExecutionResult) -> ProviderExecutionResult:
    # What stood in is no success of the provider.
    error = result.error or result.original_error
    outcome = {OUTCOME: (Outcome.FAILED if result.original_error else result.outcome).value}
    span.set_attribute(REPLAYED, result.replayed)
    if error is not None:
        outcome[REASON] = error.reason_code
        span.set_status(trace.StatusCode.ERROR, error.reason_code)
    span.set_attributes(outcome)
    if result.source is not Source.PROVIDER:
        span.set_attribute(SOURCE, result.source.value)
        reason = {} if error is None else {REASON: error.reason_code}
        stand_ins.add(1, {**labels, SOURCE: result.source.value, **reason})
    if result.source is not Source.CACHE:
        executions.add(1, {**labels, **outcome})
    if result.retry_suppressed:
        suppressed.add(1, labels)
    return result


def attempting(attributes: Mapping[str, Any], attempt: int) -> AbstractContextManager[trace.Span]:
    return _CurrentSpan("provider.attempt", {**attributes, ATTEMPT: attempt})


def attempted(span: trace.Span, labels: Mapping[str, Any], outcome: T, seconds: float) -> T:
    labels = {**labels, OUTCOME: "success"}
    status = outcome.error.http_status if isinstance(outcome, Failed) else outcome.http_status
    if isinstance(outcome, Failed):
        reason = outcome.error.reason_code
        labels |= {OUTCOME: "failed", REASON: reason}
        span.set_attribute(REASON, reason)
        span.set_status(trace.StatusCode.ERROR, reason)
    if status is not None:
        span.set_attribute(HTTP_STATUS, status)
    attempts.add(1, labels)
    attempt_duration.record(seconds, labels)
    return outcome


class _CurrentSpan(AbstractContextManager[trace.Span]):
    """A span that records an exception without secrets; OpenTelemetry alone would record it as it is."""

    __slots__ = ("_attributes", "_name", "_span", "_token")

    def __init__(self, name: str, attributes: Mapping[str, Any]) -> None:
        self._name, self._attributes = name, attributes

    def __enter__(self) -> trace.Span:
        self._span = tracer.start_span(self._name, attributes=self._attributes)
        self._token = contexts.attach(trace.set_span_in_context(self._span))
        return self._span

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        contexts.detach(self._token)
        if isinstance(error, Exception):
            texts = {"message": failures.message_of(error), "stacktrace": failures.traceback_of(error)}
            self._span.record_exception(error, {f"exception.{field}": text for field, text in texts.items()})
            self._span.set_status(trace.StatusCode.ERROR, f"{type(error).__name__}: {texts['message']}")
        self._span.end()


def carried() -> dict[str, str]:
    """The headers by which a provider's spans join this trace; none if there is no trace."""
    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
