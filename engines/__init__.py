"""Transactions: policies, consumer and producer engines, executors.

Every public name is loaded when it is first asked for, so that a plain script, or an executor's child process, loads
only what it uses, and none of them needs a configured Django.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engines.connectors.base import AsyncConnector as AsyncConnector, Connector as Connector
    from engines.core.errors import (
        AbandonedAttemptsError as AbandonedAttemptsError,
        ConnectorError as ConnectorError,
        ConsumerLoopTimeout as ConsumerLoopTimeout,
        EngineError as EngineError,
        ExceptionType as ExceptionType,
        FetchException as FetchException,
        FetchTimeoutException as FetchTimeoutException,
        PolicyError as PolicyError,
        ProducerLoopTimeout as ProducerLoopTimeout,
        TransactionException as TransactionException,
    )
    from engines.core.outcome import Failure as Failure, Success as Success
    from engines.core.policy import (
        BatchPolicy as BatchPolicy,
        ConcurrencyPolicy as ConcurrencyPolicy,
        ConsumerLoopPolicy as ConsumerLoopPolicy,
        ConsumerPolicy as ConsumerPolicy,
        ConsumerSteps as ConsumerSteps,
        EmptyQueuePolicy as EmptyQueuePolicy,
        ExceptionPolicy as ExceptionPolicy,
        FetchPolicy as FetchPolicy,
        ProcessPolicy as ProcessPolicy,
        ProducePolicy as ProducePolicy,
        ProducerLoopPolicy as ProducerLoopPolicy,
        ProducerPolicy as ProducerPolicy,
        ProducerSteps as ProducerSteps,
        RetryPolicy as RetryPolicy,
        SuccessPolicy as SuccessPolicy,
    )
    from engines.core.report import FailedTransaction as FailedTransaction, Report as Report
    from engines.drivers.attempts import current_attempt as current_attempt
    from engines.drivers.timeouts import (
        run_with_timeout as run_with_timeout,
        run_with_timeout_async as run_with_timeout_async,
        with_context as with_context,
        with_context_async as with_context_async,
    )
    from engines.tasks.consumer import (
        AsyncConsumerMixin as AsyncConsumerMixin,
        AsyncConsumerTask as AsyncConsumerTask,
        ConsumerMixin as ConsumerMixin,
        ConsumerTask as ConsumerTask,
    )
    from engines.tasks.hybrid import AsyncHybridTask as AsyncHybridTask, HybridTask as HybridTask
    from engines.tasks.producer import (
        AsyncProducerMixin as AsyncProducerMixin,
        AsyncProducerTask as AsyncProducerTask,
        ProducerMixin as ProducerMixin,
        ProducerTask as ProducerTask,
    )
    from engines.tasks.registry import connector as connector, service as service, task as task
    from engines.tasks.transaction import Transaction as Transaction

_HOMES = {
    "engines.tasks.transaction": ["Transaction"],
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
    "engines.tasks.consumer": ["AsyncConsumerMixin", "AsyncConsumerTask", "ConsumerMixin", "ConsumerTask"],
    "engines.tasks.producer": ["AsyncProducerMixin", "AsyncProducerTask", "ProducerMixin", "ProducerTask"],
    "engines.tasks.hybrid": ["AsyncHybridTask", "HybridTask"],
    "engines.tasks.registry": ["connector", "service", "task"],
    "engines.drivers.timeouts": ["run_with_timeout", "run_with_timeout_async", "with_context", "with_context_async"],
    "engines.drivers.attempts": ["current_attempt"],
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
