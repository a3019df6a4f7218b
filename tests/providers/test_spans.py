"""Spans of provider calls: an exception that passes through them leaves no secret there."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from providers import telemetry

pytestmark = pytest.mark.once

exporter = InMemorySpanExporter()


@pytest.fixture(autouse=True)
def _tracing() -> Iterator[None]:
    """A real SDK behind the tracer of providers for these tests, and nothing behind it for the others."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with pytest.MonkeyPatch.context() as patch:
        # The API takes a provider once per process and for good; these tests want one for a while.
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        patch.setattr(telemetry, "tracer", provider.get_tracer("tests"))
        yield
    exporter.clear()


@pytest.mark.parametrize(
    "observing",
    [telemetry.executing({}, tenant_id="acme", correlation_id="c1"), telemetry.attempting({}, 1)],
    ids=["execution", "attempt"],
)
def test_an_exception_is_recorded_without_secrets(observing: AbstractContextManager[Any]) -> None:
    def lose() -> None:
        msg = "cannot reach postgres://ada:hunter2@db/ergon"
        raise LookupError(msg)

    with pytest.raises(LookupError, match="hunter2"), observing:
        lose()
    [span] = exporter.get_finished_spans()
    [event] = span.events
    told = dict(event.attributes or {})
    assert (told["exception.type"], told["exception.message"]) == (
        *("LookupError",),
        "cannot reach postgres://•••@db/ergon",
    )
    assert "in lose" in str(told["exception.stacktrace"])
    assert span.status.description == "LookupError: cannot reach postgres://•••@db/ergon"
    assert "hunter2" not in span.to_json()
