"""Providers that do as they are told."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from providers import BreakerPolicy, ProviderBase, ProviderExecutionContext, ProviderExecutionResult, RetryPolicy
from providers.core.exchange import Who

TENANT = "7b1e6f0c-0f4e-4c0f-9a52-3f3a0a1e9c11"
WHO = Who(TENANT, "rank", "rank_snapshot")
AT_ONCE = RetryPolicy(max_attempts=3, base_delay_seconds=0, max_delay_seconds=0, jitter_ratio=0)
_numbers = itertools.count()

Step = BaseException | dict[str, Any] | Callable[[ProviderExecutionContext], dict[str, Any]]


class Scripted(ProviderBase):
    """Answers as its script says, and counts how often it was asked; the last word is repeated."""

    provider_name, capability = "rank", "rank_snapshot"
    retry_policy = AT_ONCE
    breaker_policy = BreakerPolicy(
        failure_threshold=5, open_cooldown_seconds=30, half_open_max_calls=1, success_threshold=2
    )

    def __init__(self, *script: Step) -> None:
        self.script: Iterator[Step] = itertools.chain(script, itertools.repeat(script[-1] if script else {}))
        self.calls: list[ProviderExecutionContext] = []

    def _execute_impl(self, *, context: ProviderExecutionContext, **_asked: Any) -> dict[str, Any]:
        self.calls.append(context)
        step = next(self.script)
        if isinstance(step, BaseException):
            raise step
        return step(context) if callable(step) else step

    def ask(self, payload: dict[str, Any] | None = None, **about: Any) -> ProviderExecutionResult:
        return self.execute(tenant_id=TENANT, operation="snapshot", payload=payload or {}, context=context(**about))


def scripted(*script: Step, **attributes: Any) -> Scripted:
    """One whose class has these attributes."""
    kind: type[Scripted] = type("Made", (Scripted,), attributes)
    return kind(*script)


def context(**about: Any) -> ProviderExecutionContext:
    return ProviderExecutionContext(**{"correlation_id": f"test-{next(_numbers)}", **about})
