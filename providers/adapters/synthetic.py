"""A provider that makes everything up, for demos, drills and tests. It calls nobody."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

from providers.base import ProviderBase
from providers.core.errors import BY_REASON, ProviderTimeoutError
from providers.core.exchange import ProviderExecutionContext

Step: TypeAlias = dict[str, Any] | str | BaseException | Callable[[dict[str, Any]], dict[str, Any]]
STATUSES = {
    "timeout": 504,
    "rate_limited": 429,
    "auth_failed": 401,
    "bad_request": 400,
    "response_invalid": 200,
    "dependency_unavailable": 503,
}


class Drawn(NamedTuple):
    number: int
    latency: float
    step: Step | None


class SyntheticProvider(ProviderBase):
    """Takes its time, fails by chance, asks for pauses; the same seed gives the same course of events.

    `latency` is a number of seconds, or the least and the most of them. `failures` says which share of attempts ends
    with which reason code. `retry_after` is what a rate limit asks for. What a `script` says comes first, one word for
    each attempt: an answer, a reason code, an error to raise, or a function of the payload.
    """

    provider_name, capability = "synthetic", "anything"

    def __init__(
        self,
        *script: Step,
        seed: int = 0,
        latency: float | tuple[float, float] = 0.0,
        failures: Mapping[str, float] | None = None,
        retry_after: float | None = None,
        answer: Step | None = None,
    ) -> None:
        self._script = iter(script)
        self._latency = latency if isinstance(latency, tuple) else (latency, latency)
        shares = failures or {}
        if any(share < 0 for share in shares.values()) or sum(shares.values()) > 1:
            msg = f"failure shares must be at least 0 and add up to at most 1: {dict(shares)}"
            raise ValueError(msg)
        # Reasons, each with the number below which chance means it.
        self._failures = list(zip(map(_known, shares), accumulate(shares.values()), strict=True))
        self._retry_after = retry_after
        self._answer = answer
        # An own source of chance, so that nothing else in the process changes the course of events.
        self._random = random.Random(seed)  # noqa: S311 (nothing secret)
        self._lock = threading.Lock()
        self._outage: str | None = None
        self.calls = 0

    def break_down(self, reason_code: str = "dependency_unavailable") -> None:
        """Fail every attempt with this reason until `recover`; what is scripted waits."""
        self._outage = _known(reason_code)

    def recover(self) -> None:
        """End what `break_down` began."""
        self._outage = None

    def _execute_impl(
        self, *, payload: dict[str, Any], context: ProviderExecutionContext, **_about: Any
    ) -> dict[str, Any]:
        drawn = self._draw()
        time.sleep(_bounded(drawn.latency, context.timeout))
        return self._told(drawn, payload, context)

    async def _aexecute_impl(
        self, *, payload: dict[str, Any], context: ProviderExecutionContext, **_about: Any
    ) -> dict[str, Any]:
        drawn = self._draw()
        await asyncio.sleep(_bounded(drawn.latency, context.timeout))
        return self._told(drawn, payload, context)

    def _draw(self) -> Drawn:
        """Chance is asked the same number of times for every attempt, whatever comes of it."""
        with self._lock:
            self.calls += 1
            latency, chance = self._random.uniform(*self._latency), self._random.random()
            if self._outage is not None:
                return Drawn(self.calls, latency, self._outage)
            by_chance = next((reason for reason, below in self._failures if chance < below), None)
            return Drawn(self.calls, latency, next(self._script, by_chance or self._answer))

    def _told(self, drawn: Drawn, payload: dict[str, Any], context: ProviderExecutionContext) -> dict[str, Any]:
        if context.timeout is not None and drawn.latency > context.timeout:
            msg = f"no answer within {context.timeout:g} s"
            raise ProviderTimeoutError(msg)
        step = drawn.step
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, str):
            pause, status = self._retry_after if step == "rate_limited" else None, STATUSES.get(step)
            kind, msg = BY_REASON[_known(step)], f"synthetic failure: {step}"
            raise kind(msg, http_status=status, retry_after=pause)
        if callable(step):
            return step(payload)
        return {"call": drawn.number, "asked": payload} if step is None else step


def _known(reason_code: str) -> str:
    if reason_code not in BY_REASON:
        msg = f"{reason_code!r} is not a reason code; there are: {', '.join(BY_REASON)}"
        raise ValueError(msg)
    return reason_code


def _bounded(latency: float, timeout: float | None) -> float:
    return latency if timeout is None else min(latency, timeout)
