"""The consumer engines: fetch, process, settle; threads or asyncio, by the same rules."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from engines.connectors import check, choose, offers, offers_async, take, transactions_in
from engines.core.errors import ConsumerLoopTimeout
from engines.core.loops import consumption
from engines.core.policy import ConsumerPolicy
from engines.core.report import Report
from engines.core.steps import Stage
from engines.drivers.aio import AsyncDriver
from engines.drivers.limits import CANCEL_GRACE
from engines.drivers.threads import ThreadDriver
from engines.drivers.work import Work
from engines.registry import Stoppable, Task, elsewhere, untouched
from engines.transaction import Transaction


class ConsumerMixin(Stoppable):
    """Gives a task `consume_transactions`. The author writes `process_transaction` and nothing else."""

    connectors: Mapping[str, Any]
    consumer_policy: ConsumerPolicy | None = None
    abandoned_grace = 30.0
    cancel_grace = CANCEL_GRACE

    def process_transaction(self, transaction: Transaction) -> Any:
        raise NotImplementedError

    def handle_transaction_success(self, transaction: Transaction, result: Any) -> Any:
        """Called once the work is done; may be left as it is."""

    def handle_transaction_exception(self, transaction: Transaction, exc: Exception) -> Any:
        """Called once the work has failed for good; may be left as it is."""

    def consume_transactions(self, policy: ConsumerPolicy | None = None) -> Report:
        """Consume until there is no more, the limit is reached, or somebody stops it."""
        policy = _policy(policy, self.consumer_policy)
        connector = choose(self.connectors, policy.steps.fetch.connector_name)
        fetch = partial(_fetch, connector, lambda: driver.work.renewed().policy)
        driver: ThreadDriver = ThreadDriver(_work(self, policy, connector, fetch=fetch, **offers(connector)))
        with self._running(driver):
            return driver.run()


class AsyncConsumerMixin(Stoppable):
    """Gives a task an awaitable `consume_transactions`; its hooks are coroutines."""

    connectors: Mapping[str, Any]
    consumer_policy: ConsumerPolicy | None = None
    abandoned_grace = 30.0
    cancel_grace = CANCEL_GRACE

    async def process_transaction(self, transaction: Transaction) -> Any:
        raise NotImplementedError

    async def handle_transaction_success(self, transaction: Transaction, result: Any) -> Any:
        """Called once the work is done; may be left as it is."""

    async def handle_transaction_exception(self, transaction: Transaction, exc: Exception) -> Any:
        """Called once the work has failed for good; may be left as it is."""

    async def consume_transactions(self, policy: ConsumerPolicy | None = None) -> Report:
        """Consume until there is no more, the limit is reached, or somebody stops it."""
        policy = _policy(policy, self.consumer_policy)
        connector = choose(self.connectors, policy.steps.fetch.connector_name)
        fetch = partial(_fetch_async, connector, lambda: driver.work.renewed().policy)
        driver: AsyncDriver = AsyncDriver(_work(self, policy, connector, fetch=fetch, **offers_async(connector)))
        with self._running(driver):
            return await driver.run()


class ConsumerTask(ConsumerMixin, Task):
    """A threaded task that consumes."""


class AsyncConsumerTask(AsyncConsumerMixin, Task):
    """An async task that consumes."""


def _work(task: Any, policy: ConsumerPolicy, connector: Any, **functions: Any) -> Work:
    is_prefetching = getattr(connector, "is_prefetching", False) is True
    is_sharing = "starts_left" in getattr(connector, "ergon_offers", ())
    shared = {"starts_left": connector.starts_left} if is_sharing else {}
    hooks = {
        Stage.PROCESS: "process_transaction",
        Stage.SUCCESS: "handle_transaction_success",
        Stage.EXCEPTION: "handle_transaction_exception",
    }
    return Work(
        task=type(task).__name__,
        pipeline=task.pipeline_name,
        policy=policy,
        loop=partial(consumption, is_prefetching=is_prefetching, **shared),
        handlers={stage: getattr(task, name) for stage, name in hooks.items()},
        silent=untouched(task, hooks, ConsumerMixin, AsyncConsumerMixin),
        timeout_error=ConsumerLoopTimeout,
        abandoned_grace=task.abandoned_grace,
        cancel_grace=task.cancel_grace,
        abandoned=task._abandoned(),  # noqa: SLF001 (of its own kind)
        **elsewhere(task),
        **functions,
    )


def _fetch(connector: Any, in_force: Callable[[], Any], size: int) -> list[Transaction]:
    batch: list[Any] = []
    try:
        take(connector.fetch_transactions(size, **in_force().steps.fetch.extra), into=batch)
        check(batch, size)
    except BaseException:
        if batch and hasattr(connector, "release"):
            connector.release(transactions_in(batch))
        raise
    return batch


async def _fetch_async(connector: Any, in_force: Callable[[], Any], size: int) -> list[Transaction]:
    batch: list[Any] = []
    try:
        take(await connector.fetch_transactions_async(size, **in_force().steps.fetch.extra), into=batch)
        check(batch, size)
    except BaseException:
        if batch and hasattr(connector, "release_async"):
            await connector.release_async(transactions_in(batch))
        raise
    return batch


def _policy(given: Any, own: ConsumerPolicy | None) -> ConsumerPolicy:
    policy: Any = given or own or ConsumerPolicy()
    if not isinstance(policy, ConsumerPolicy):
        msg = f"a consumer takes a ConsumerPolicy, not {type(policy).__name__}"
        raise TypeError(msg)
    return policy
