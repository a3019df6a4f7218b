"""The consumer engines: fetch, process, settle; threads or asyncio, by the same rules."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from engines.connectors.base import Connector, require_connector
from engines.core.errors import ConnectorError, ConsumerLoopTimeout, TransactionException
from engines.core.loops import consumption
from engines.core.policy import ConsumerPolicy
from engines.core.report import Report
from engines.core.steps import Stage
from engines.drivers.aio import AsyncDriver
from engines.drivers.threads import ThreadDriver
from engines.drivers.work import Work
from engines.tasks.registry import Stoppable, Task, hooks_of
from engines.tasks.transaction import Transaction

HOOKS = {
    Stage.PROCESS: "process_transaction",
    Stage.SUCCESS: "handle_transaction_success",
    Stage.EXCEPTION: "handle_transaction_exception",
}


class ConsumerMixin(Stoppable):
    """Gives a task `consume_transactions`. The author writes `process_transaction` and nothing else."""

    connectors: Mapping[str, Any]
    consumer_policy: ConsumerPolicy | None = None

    def process_transaction(self, transaction: Transaction) -> Any:
        raise NotImplementedError

    def handle_transaction_success(self, transaction: Transaction, result: Any) -> Any:
        """Called once the work is done; may be left as it is."""

    def handle_transaction_exception(self, transaction: Transaction, exc: TransactionException) -> Any:
        """Called once the work has failed for good; may be left as it is."""

    def consume_transactions(self, policy: ConsumerPolicy | None = None) -> Report:
        """Consume until there is no more, the limit is reached, or somebody stops it."""
        driver = ThreadDriver(_work(self, policy or self.consumer_policy, is_async=False))
        with self._running(driver):
            return driver.run()


class AsyncConsumerMixin(Stoppable):
    """Gives a task an awaitable `consume_transactions`; its hooks are coroutines."""

    connectors: Mapping[str, Any]
    consumer_policy: ConsumerPolicy | None = None

    async def process_transaction(self, transaction: Transaction) -> Any:
        raise NotImplementedError

    async def handle_transaction_success(self, transaction: Transaction, result: Any) -> Any:
        """Called once the work is done; may be left as it is."""

    async def handle_transaction_exception(self, transaction: Transaction, exc: TransactionException) -> Any:
        """Called once the work has failed for good; may be left as it is."""

    async def consume_transactions(self, policy: ConsumerPolicy | None = None) -> Report:
        """Consume until there is no more, the limit is reached, or somebody stops it."""
        driver = AsyncDriver(_work(self, policy or self.consumer_policy, is_async=True))
        with self._running(driver):
            return await driver.run()


class ConsumerTask(ConsumerMixin, Task):
    """A threaded task that consumes."""


class AsyncConsumerTask(AsyncConsumerMixin, Task):
    """An async task that consumes."""


def _work(task: Any, policy: Any, *, is_async: bool) -> Work:
    policy = ConsumerPolicy() if policy is None else policy
    if not isinstance(policy, ConsumerPolicy):
        msg = f"a consumer takes a ConsumerPolicy, not {type(policy).__name__}"
        raise TypeError(msg)
    connector = require_connector(_choose(task.connectors, policy.steps.fetch.connector_name), is_async=is_async)
    handlers, silent = hooks_of(task, HOOKS, connector, ConsumerMixin, AsyncConsumerMixin, is_async=is_async)
    return Work(
        task=task,
        connector=connector,
        policy=policy,
        loop=partial(
            consumption,
            is_prefetching=connector.is_prefetching,
            starts_left=connector.starts_left,
            due_in=connector.due_in,
        ),
        timeout_error=ConsumerLoopTimeout,
        handlers=handlers,
        silent=silent,
    )


def _choose(connectors: Mapping[str, Connector], name: str | None) -> Connector:
    """The connector of that name, or the only one there is."""
    listed = ", ".join(sorted(connectors)) or "none"
    if name is not None:
        if name not in connectors:
            msg = f"there is no connector named {name!r}; there are: {listed}"
            raise ConnectorError(msg)
        return connectors[name]
    if len(connectors) != 1:
        problem = f"has several ({listed})" if connectors else "has none"
        msg = f"the task needs one connector to fetch from and {problem}: name one in steps.fetch.connector_name"
        raise ConnectorError(msg)
    return next(iter(connectors.values()))
