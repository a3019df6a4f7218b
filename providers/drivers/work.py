"""An attempt: the provider's own code, and the classification of its end."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from asgiref.sync import sync_to_async

from providers import telemetry
from providers.core.errors import ProviderResponseFormatError, ProviderTimeoutError, canonical
from providers.core.exchange import ProviderAnswer, ProviderExecutionContext
from providers.core.steps import Answered, Call, Failed

Implementation = Callable[[ProviderExecutionContext], Any]
AsyncImplementation = Callable[[ProviderExecutionContext], Awaitable[Any]]


class Work:
    """The call of a provider's code. Any error becomes one of our errors."""

    def __init__(
        self,
        context: ProviderExecutionContext,
        attributes: Mapping[str, Any],
        implementation: Implementation,
        asynchronous: AsyncImplementation | None = None,
    ) -> None:
        self._context = context
        self._attributes = attributes
        self._call = implementation
        self._acall = asynchronous or sync_to_async(implementation, thread_sensitive=False)

    def call(self, step: Call) -> Answered | Failed:
        with telemetry.attempting(self._attributes, step.attempt) as attempting:
            try:
                outcome = _answered(self._call(self._of(step)))
            except Exception as error:  # noqa: BLE001 (a provider may raise anything)
                outcome = Failed(canonical(error))
            return attempting.ended(outcome)

    async def acall(self, step: Call) -> Answered | Failed:
        with telemetry.attempting(self._attributes, step.attempt) as attempting:
            try:
                async with asyncio.timeout(step.timeout) as limit:
                    outcome = _answered(await self._acall(self._of(step)))
            except Exception as error:  # noqa: BLE001 (a provider may raise anything)
                outcome = Failed(canonical(error))
                if limit.expired():
                    late = ProviderTimeoutError(f"no answer within {step.timeout:g} s")
                    late.__cause__ = error
                    outcome = Failed(late)
            return attempting.ended(outcome)

    def _of(self, step: Call) -> ProviderExecutionContext:
        return replace(self._context, attempt=step.attempt, timeout=step.timeout)


def _answered(payload: Any) -> Answered | Failed:
    if isinstance(payload, ProviderAnswer):
        return Answered(dict(payload), payload.http_status)
    if isinstance(payload, dict):
        return Answered(payload)
    return Failed(ProviderResponseFormatError(f"an answer must be a dict, not {type(payload).__name__}"))
