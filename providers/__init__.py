"""Calls to outside providers: quota, breaker, retry, idempotency, health.

Every public name is loaded when it is first asked for, so that the rules alone need no configured Django.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from providers.adapters.http import HttpProvider as HttpProvider
    from providers.adapters.synthetic import SyntheticProvider as SyntheticProvider
    from providers.base import ProviderBase as ProviderBase
    from providers.circumstances import (
        CurrentCall as CurrentCall,
        calling as calling,
        current_call as current_call,
    )
    from providers.core.breaker import BreakerPolicy as BreakerPolicy, OpeningRules as OpeningRules
    from providers.core.errors import (
        ProviderAuthError as ProviderAuthError,
        ProviderBadRequestError as ProviderBadRequestError,
        ProviderCircuitOpenError as ProviderCircuitOpenError,
        ProviderConnectionError as ProviderConnectionError,
        ProviderDependencyError as ProviderDependencyError,
        ProviderError as ProviderError,
        ProviderInternalError as ProviderInternalError,
        ProviderQuotaExceededError as ProviderQuotaExceededError,
        ProviderRateLimitError as ProviderRateLimitError,
        ProviderResponseFormatError as ProviderResponseFormatError,
        ProviderTimeoutError as ProviderTimeoutError,
        ProviderUsageError as ProviderUsageError,
    )
    from providers.core.events import EventKind as EventKind, ProviderEventNotice as ProviderEventNotice
    from providers.core.exchange import (
        Outcome as Outcome,
        ProviderExecutionContext as ProviderExecutionContext,
        ProviderExecutionResult as ProviderExecutionResult,
        Source as Source,
    )
    from providers.core.limits import BulkheadPolicy as BulkheadPolicy, RateLimit as RateLimit
    from providers.core.policy import ProviderPolicy as ProviderPolicy
    from providers.core.retry import RetryBudget as RetryBudget, RetryPolicy as RetryPolicy
    from providers.database.events import on_event as on_event
    from providers.drivers.circuit_breaker import CircuitBreaker as CircuitBreaker
    from providers.functions import call as call
    from providers.models import QuotaState as QuotaState
    from providers.registry import UnknownProviderError as UnknownProviderError, register as register
    from providers.tasks import CeleryProviderTask as CeleryProviderTask

_HOMES = {
    "providers.adapters.http": ["HttpProvider"],
    "providers.adapters.synthetic": ["SyntheticProvider"],
    "providers.base": ["ProviderBase"],
    "providers.circumstances": ["CurrentCall", "calling", "current_call"],
    "providers.core.breaker": ["BreakerPolicy", "OpeningRules"],
    "providers.drivers.circuit_breaker": ["CircuitBreaker"],
    "providers.core.errors": [
        *("ProviderAuthError", "ProviderBadRequestError", "ProviderCircuitOpenError", "ProviderConnectionError"),
        *("ProviderDependencyError", "ProviderError", "ProviderInternalError", "ProviderQuotaExceededError"),
        *("ProviderRateLimitError", "ProviderResponseFormatError", "ProviderTimeoutError", "ProviderUsageError"),
    ],
    "providers.core.events": ["EventKind", "ProviderEventNotice"],
    "providers.core.exchange": ["Outcome", "ProviderExecutionContext", "ProviderExecutionResult", "Source"],
    "providers.core.limits": ["BulkheadPolicy", "RateLimit"],
    "providers.core.policy": ["ProviderPolicy"],
    "providers.core.retry": ["RetryBudget", "RetryPolicy"],
    "providers.functions": ["call"],
    "providers.database.events": ["on_event"],
    "providers.models": ["QuotaState"],
    "providers.registry": ["UnknownProviderError", "register"],
    "providers.tasks": ["CeleryProviderTask"],
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 (one list serves both)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        msg = f"module 'providers' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
