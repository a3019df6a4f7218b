"""Transactions: policies, consumer and producer engines, executors.

Every public name is loaded when it is first asked for, so that a plain script, or an executor's child process, loads
only what it uses, and none of them needs a configured Django.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "engines.transaction": ["Transaction"],
    "engines.core.errors": [
        "AbandonedAttemptsError",
        "ConnectorError",
        "ConsumerLoopTimeout",
        "EngineError",
        "ExceptionType",
        "FetchException",
        "FetchTimeoutException",
        "PolicyError",
        "ProducerLoopTimeout",
        "TransactionException",
    ],
    "engines.core.policy": [
        "BatchPolicy",
        "ConcurrencyPolicy",
        "ConsumerLoopPolicy",
        "ConsumerPolicy",
        "ConsumerSteps",
        "EmptyQueuePolicy",
        "ExceptionPolicy",
        "FetchPolicy",
        "ProcessPolicy",
        "ProducePolicy",
        "ProducerLoopPolicy",
        "ProducerPolicy",
        "ProducerSteps",
        "RetryPolicy",
        "SuccessPolicy",
    ],
    "engines.core.outcome": ["Failure", "Success"],
    "engines.core.report": ["FailedTransaction", "Report"],
    "engines.connectors.base": ["AsyncConnector", "Connector"],
    "engines.consumer": ["AsyncConsumerMixin", "AsyncConsumerTask", "ConsumerMixin", "ConsumerTask"],
    "engines.producer": ["AsyncProducerMixin", "AsyncProducerTask", "ProducerMixin", "ProducerTask"],
    "engines.hybrid": ["AsyncHybridTask", "HybridTask"],
    "engines.registry": ["service", "task"],
    "engines.drivers.threads": ["run_with_timeout", "with_context"],
    "engines.drivers.aio": ["run_with_timeout_async", "with_context_async"],
    "engines.drivers.work": ["current_attempt"],
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 (one list serves both)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        msg = f"module 'engines' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
