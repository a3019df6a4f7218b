"""Performs an execution, in the thread of its caller or on the event loop, and classifies how each attempt ends.

A thread cannot be killed: an implementation keeps to `context.timeout` itself, as `HttpProvider` does.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from asgiref.sync import sync_to_async

from providers import telemetry
from providers.core.errors import ProviderResponseFormatError, ProviderTimeoutError, canonical
from providers.core.exchange import ProviderAnswer, ProviderExecutionContext, ProviderExecutionResult
from providers.core.steps import Answered, Call, Failed, Sleep, Step, Steps
from providers.drivers.store import Store


@dataclass(frozen=True, slots=True)
class Work:
    """The call of a provider's code. Any error becomes one of our errors."""

    context: ProviderExecutionContext
    attributes: Mapping[str, Any]
    implementation: Callable[..., Any]
    asynchronous: Callable[..., Awaitable[Any]] | None = None

    def call(self, step: Call) -> Answered | Failed:
        with telemetry.attempting(self.attributes, step.attempt) as span:
            started = time.perf_counter()
            try:
                outcome = _answered(self.implementation(context=self._context_of(step)))
            except Exception as error:  # noqa: BLE001 (a provider may raise anything)
                outcome = Failed(canonical(error))
            return telemetry.attempted(span, self.attributes, outcome, time.perf_counter() - started)

    async def acall(self, step: Call) -> Answered | Failed:
        with telemetry.attempting(self.attributes, step.attempt) as span:
            started = time.perf_counter()
            implementation = self.asynchronous or sync_to_async(self.implementation, thread_sensitive=False)
            try:
                async with asyncio.timeout(step.timeout) as limit:
                    outcome = _answered(await implementation(context=self._context_of(step)))
            except Exception as error:  # noqa: BLE001 (a provider may raise anything)
                outcome = Failed(canonical(error))
                if limit.expired():
                    late = ProviderTimeoutError(f"no answer within {step.timeout:g} s")
                    late.__cause__ = error
                    outcome = Failed(late)
            return telemetry.attempted(span, self.attributes, outcome, time.perf_counter() - started)

    def _context_of(self, step: Call) -> ProviderExecutionContext:
        return replace(self.context, attempt=step.attempt, timeout=step.timeout)


def perform(steps: Steps[ProviderExecutionResult], work: Work, store: Store) -> ProviderExecutionResult:
    """Perform an execution in this thread."""
    reply: Any = None
    while not isinstance(step := _sent(steps, reply), ProviderExecutionResult):
        match step:
            case Call():
                reply = work.call(step)
            case Sleep(seconds):
                time.sleep(seconds)
                reply = None
            case _:
                reply = store.perform(step)
    return step


async def aperform(steps: Steps[ProviderExecutionResult], work: Work, store: Store) -> ProviderExecutionResult:
    """The same on the event loop. The database is asked in a thread, as Django wants it."""
    ask = sync_to_async(store.perform)
    reply: Any = None
    while not isinstance(step := _sent(steps, reply), ProviderExecutionResult):
        match step:
            case Call():
                reply = await work.acall(step)
            case Sleep(seconds):
                await asyncio.sleep(seconds)
                reply = None
            case _:
                reply = await ask(step)
    return step


def _sent(steps: Steps[ProviderExecutionResult], reply: Any) -> Step | ProviderExecutionResult:
    """The next step of the rules, or the result that they end with."""
    try:
        return steps.send(reply)
    except StopIteration as end:
        result: ProviderExecutionResult = end.value
        return result


def _answered(payload: Any) -> Answered | Failed:
    if isinstance(payload, ProviderAnswer):
        return Answered(dict(payload), payload.http_status)
    if isinstance(payload, dict):
        return Answered(payload)
    return Failed(ProviderResponseFormatError(f"an answer must be a dict, not {type(payload).__name__}"))
