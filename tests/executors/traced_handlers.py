"""Handlers of somebody who wires OpenTelemetry themselves: every span is printed, a line of JSON each."""

import asyncio
import json
from contextvars import ContextVar

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from engines.executors import ExecutionContext, HandlerRegistry, RetryJob


def line(span: ReadableSpan) -> str:
    return json.dumps(json.loads(span.to_json())) + "\n"


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line)))
trace.set_tracer_provider(provider)

handlers = HandlerRegistry()


@handlers.handler("current")
def current() -> str:
    return format(trace.get_current_span().get_span_context().trace_id, "032x")


last_job: ContextVar[str] = ContextVar("last_job", default="none")


@handlers.handler("remember")
def remember(ctx: ExecutionContext) -> list[str]:
    """The job before, as far as the variable knows, and the trace that the job is in."""
    before = last_job.get()
    last_job.set(ctx.job_id)
    return [before, current()]


@handlers.handler("remember_async")
async def remember_async(ctx: ExecutionContext) -> list[str]:
    await asyncio.sleep(0)
    return remember(ctx)


@handlers.handler("again")
def again() -> None:
    msg = "not yet"
    raise RetryJob(msg, after=1)


@handlers.handler("fail")
def fail() -> None:
    msg = "a secret that is not in the attributes: amqp://ada:hunter2@broker"
    raise ValueError(msg)
