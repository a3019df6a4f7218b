"""Performs an execution, in the thread of its caller or on the event loop, and classifies how each attempt ends.

A thread cannot be killed: an implementation keeps to `context.timeout` itself, as `HttpProvider` does.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import structlog
from asgiref.sync import sync_to_async

from providers import telemetry
from providers.core.errors import (
    ProviderResponseFormatError,
    ProviderTimeoutError,
    ProviderUsageError,
    canonical,
    status_in,
)
from providers.core.exchange import ProviderAnswer, ProviderExecutionContext, ProviderExecutionResult
from providers.core.retry import requested_pause
from providers.core.steps import (
    Answered,
    Call,
    Failed,
    FallBack,
    GiveUp,
    Refuse,
    Settle,
    Sleep,
    Spool,
    Step,
    Steps,
    StoppedError,
)
from providers.drivers.store import Store

log = structlog.get_logger("ergon.providers")
# What is done for an execution that its caller has broken off.
LEFT_OPEN = Settle | Spool | Refuse | GiveUp
# Made once: to make it takes a tenth of the time that it takes to ask.
_ask = sync_to_async(Store.perform)


@dataclass(frozen=True, slots=True)
class Work:
    """The call of a provider's code. Any error becomes one of our errors."""

    context: ProviderExecutionContext
    attributes: Mapping[str, Any]
    implementation: Callable[..., Any]
    asynchronous: Callable[..., Awaitable[Any]] | None
    told: Callable[[ProviderExecutionResult], ProviderExecutionResult]
    fallback: Callable[..., Any]

    def call(self, step: Call) -> Answered | Failed:
        with telemetry.attempting(self.attributes, step.attempt) as span:
            started = time.perf_counter()
            try:
                outcome = _answered(self.implementation(context=self._context_of(step)))
            except Exception as error:  # noqa: BLE001 (a provider may raise anything)
                outcome = _failed(error)
            return telemetry.attempted(span, self.attributes, outcome, time.perf_counter() - started)

    async def acall(self, step: Call) -> Answered | Failed:
        with telemetry.attempting(self.attributes, step.attempt) as span:
            started = time.perf_counter()
            implementation = self.asynchronous or sync_to_async(self.implementation, thread_sensitive=False)
            try:
                async with asyncio.timeout(step.timeout) as limit:
                    outcome = _answered(await implementation(context=self._context_of(step)))
            except Exception as error:  # noqa: BLE001 (a provider may raise anything)
                outcome = _failed(error)
                if limit.expired():
                    late = ProviderTimeoutError(f"no answer within {step.timeout:g} s")
                    late.__cause__ = error
                    outcome = Failed(late)
            return telemetry.attempted(span, self.attributes, outcome, time.perf_counter() - started)

    def fall_back(self, step: FallBack) -> dict[str, Any] | None:
        try:
            return _checked(self.fallback(step.error, is_awaited=False))
        except Exception as error:  # noqa: BLE001 (whatever it is: the error of the call stays the one that is told)
            self._log_failed_fallback(error)
            return None

    async def afall_back(self, step: FallBack) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(step.timeout):
                return _checked(await self.fallback(step.error, is_awaited=True))
        except Exception as error:  # noqa: BLE001 (likewise)
            self._log_failed_fallback(error)
            return None

    def _log_failed_fallback(self, error: Exception) -> None:
        about = {"correlation_id": self.context.correlation_id, **self.attributes}
        log.warning("provider fallback failed", error_type=type(error).__name__, **about)

    def _context_of(self, step: Call) -> ProviderExecutionContext:
        return replace(self.context, attempt=step.attempt, timeout=step.timeout)


def perform(steps: Steps[ProviderExecutionResult], work: Work, store: Store) -> ProviderExecutionResult:
    """Perform an execution in this thread. Broken off by whatever is no error of a call, it is settled all the same."""
    reply: Any = None
    try:
        while not isinstance(step := _sent(steps, reply), ProviderExecutionResult):
            match step:
                case Call():
                    reply = work.call(step)
                case Sleep(seconds):
                    time.sleep(seconds)
                    reply = None
                case FallBack():
                    reply = work.fall_back(step)
                case _:
                    reply = store.perform(step)
    except BaseException:
        with _at_least_logged():
            left = _stopped(steps)
            while isinstance(left, LEFT_OPEN):
                left = _sent(steps, store.perform(left))
            if isinstance(left, ProviderExecutionResult):
                work.told(left)
        raise
    return work.told(step)


async def aperform(steps: Steps[ProviderExecutionResult], work: Work, store: Store) -> ProviderExecutionResult:
    """The same on the event loop. The database is asked in a thread, as Django wants it."""
    reply: Any = None
    try:
        while not isinstance(step := _sent(steps, reply), ProviderExecutionResult):
            match step:
                case Call():
                    reply = await work.acall(step)
                case Sleep(seconds):
                    await asyncio.sleep(seconds)
                    reply = None
                case FallBack():
                    reply = await work.afall_back(step)
                case _:
                    asked = asyncio.ensure_future(_ask(store, step))
                    try:
                        reply = await asyncio.shield(asked)
                    except asyncio.CancelledError:
                        _sent(steps, await _ended(asked))
                        raise
    except (GeneratorExit, ProviderUsageError):  # no loop could ask the database any more, or nothing was begun
        raise
    except BaseException:
        with _at_least_logged():
            left = _stopped(steps)
            while isinstance(left, LEFT_OPEN):
                left = _sent(steps, await _ended(asyncio.ensure_future(_ask(store, left))))
            if isinstance(left, ProviderExecutionResult):
                work.told(left)
        raise
    return work.told(step)


@contextmanager
def _at_least_logged() -> Iterator[None]:
    """What goes wrong here must not hide what has broken the call off."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (whatever it is)
        log.error("provider call was not settled", error_type=type(error).__name__)  # noqa: TRY400 (no secrets)


async def _ended(asked: "asyncio.Future[Any]") -> Any:
    """What the database answers, however often the caller is cancelled: a statement that was sent is carried out."""
    while not asked.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([asked])
    return asked.result()


def _stopped(steps: Steps[ProviderExecutionResult]) -> Step | ProviderExecutionResult | None:
    """The first step that is left to do when the caller breaks off; None if the rules had come to their end."""
    try:
        return steps.throw(StoppedError())
    except StopIteration as end:
        result: ProviderExecutionResult = end.value
        return result
    except StoppedError:
        return None


def _sent(steps: Steps[ProviderExecutionResult], reply: Any) -> Step | ProviderExecutionResult:
    """The next step of the rules, or the result that they end with."""
    try:
        return steps.send(reply)
    except StopIteration as end:
        result: ProviderExecutionResult = end.value
        return result


def _failed(error: Exception) -> Failed:
    """An error as one of ours; with the pause that the provider's answer asks for, if a client library raised it."""
    found = canonical(error)
    if found.retry_after is None:
        found.retry_after = requested_pause(found.__cause__, datetime.now(UTC))
    return Failed(found)


def _checked(payload: Any) -> dict[str, Any] | None:
    if payload is None or isinstance(payload, dict):
        return payload
    msg = f"a fallback must be a dict or None, not {type(payload).__name__}"
    raise TypeError(msg)


def _answered(payload: Any) -> Answered | Failed:
    if isinstance(payload, ProviderAnswer):
        return Answered(dict(payload), status_in(payload.http_status))
    if isinstance(payload, dict):
        return Answered(payload)
    return Failed(ProviderResponseFormatError(f"an answer must be a dict, not {type(payload).__name__}"))
