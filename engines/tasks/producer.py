"""The producer engines: produce each transaction of a list, settle it; threads or asyncio, by the same rules."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields
from typing import Any

from engines.connectors.base import AsyncConnector, Connector, require_connector
from engines.core.errors import ProducerLoopTimeout, TransactionException
from engines.core.loops import consumption, production
from engines.core.policy import ConsumerLoopPolicy, ConsumerPolicy, EmptyQueuePolicy, ProducerPolicy
from engines.core.report import Report
from engines.core.steps import Stage
from engines.drivers.aio import AsyncDriver
from engines.drivers.threads import ThreadDriver
from engines.drivers.work import Work
from engines.tasks.registry import Stoppable, Task, hooks_of
from engines.tasks.transaction import Transaction

HOOKS = {
    Stage.PRODUCE: "produce_transaction",
    Stage.SUCCESS: "handle_produce_success",
    Stage.EXCEPTION: "handle_produce_exception",
}
Source = Iterable[Transaction] | AsyncConnector
# How long a producer that streams from a connector waits after an empty fetch, unless the connector wakes it.
EMPTY = EmptyQueuePolicy(backoff=1.0, backoff_multiplier=1.0)


class ProducerMixin(Stoppable):
    """Gives a task `produce_transactions`. The author writes `produce_transaction` and nothing else."""

    producer_policy: ProducerPolicy | None = None

    def produce_transaction(self, transaction: Transaction) -> Any:
        raise NotImplementedError

    def handle_produce_success(self, transaction: Transaction, result: Any) -> Any:
        """Called once the work is done; may be left as it is."""

    def handle_produce_exception(self, transaction: Transaction, exc: TransactionException) -> Any:
        """Called once the work has failed for good; may be left as it is."""

    def produce_transactions(
        self, transactions: Source, policy: ProducerPolicy | None = None, *, is_streaming: bool = False
    ) -> Report:
        """Produce them all, batch by batch, or until the limit is reached or somebody stops it.

        Transactions of a connector are fetched from it and acknowledged to it; with `is_streaming` the loop waits for
        more when there are none.
        """
        work = _work(self, transactions, policy or self.producer_policy, is_streaming=is_streaming, is_async=False)
        driver = ThreadDriver(work)
        with self._running(driver):
            return driver.run()


class AsyncProducerMixin(Stoppable):
    """Gives a task an awaitable `produce_transactions`; its hooks are coroutines."""

    producer_policy: ProducerPolicy | None = None

    async def produce_transaction(self, transaction: Transaction) -> Any:
        raise NotImplementedError

    async def handle_produce_success(self, transaction: Transaction, result: Any) -> Any:
        """Called once the work is done; may be left as it is."""

    async def handle_produce_exception(self, transaction: Transaction, exc: TransactionException) -> Any:
        """Called once the work has failed for good; may be left as it is."""

    async def produce_transactions(
        self, transactions: Source, policy: ProducerPolicy | None = None, *, is_streaming: bool = False
    ) -> Report:
        """Produce them all, as `ProducerMixin` does."""
        work = _work(self, transactions, policy or self.producer_policy, is_streaming=is_streaming, is_async=True)
        driver = AsyncDriver(work)
        with self._running(driver):
            return await driver.run()


class ProducerTask(ProducerMixin, Task):
    """A threaded task that produces."""


class AsyncProducerTask(AsyncProducerMixin, Task):
    """An async task that produces."""


def _work(task: Any, transactions: Source, policy: Any, *, is_streaming: bool, is_async: bool) -> Work:
    policy = ProducerPolicy() if policy is None else policy
    if not isinstance(policy, ProducerPolicy):
        msg = f"a producer takes a ProducerPolicy, not {type(policy).__name__}"
        raise TypeError(msg)
    is_connector = isinstance(transactions, AsyncConnector) or hasattr(transactions, "acknowledge")
    connector = require_connector(transactions, is_async=is_async) if is_connector else Connector()
    handlers, silent = hooks_of(task, HOOKS, connector, ProducerMixin, AsyncProducerMixin, is_async=is_async)

    def loop(in_force: Any) -> Any:
        if not isinstance(transactions, AsyncConnector):
            # What is at hand as a whole needs no limit; anything else might make the loop wait beyond its time.
            is_slow = policy.loop.timeout is not None and not isinstance(transactions, Collection)
            return production(policy, _checked(transactions), is_slow=is_slow)

        def as_consumer() -> ConsumerPolicy:
            """The rules by which a producer fetches from a connector."""
            now = in_force().loop
            shared = {one.name: getattr(now, one.name) for one in fields(now)}
            return ConsumerPolicy(loop=ConsumerLoopPolicy(**shared, streaming=is_streaming, empty_queue=EMPTY))

        return consumption(
            as_consumer,
            is_prefetching=connector.is_prefetching,
            starts_left=connector.starts_left,
            due_in=connector.due_in,
        )

    return Work(
        task=task,
        connector=connector,
        policy=policy,
        loop=loop,
        timeout_error=ProducerLoopTimeout,
        handlers=handlers,
        silent=silent,
    )


def _checked(transactions: Iterable[Any]) -> Iterator[Transaction]:
    for item in transactions:
        if not isinstance(item, Transaction):
            msg = f"produce_transactions takes transactions, not {type(item).__name__}"
            raise TypeError(msg)
        yield item
