"""The producer engines: produce each transaction of a list, settle it; threads or asyncio, by the same rules."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from engines.connectors import offers, offers_async
from engines.core.errors import ProducerLoopTimeout
from engines.core.loops import production
from engines.core.policy import ProducerPolicy
from engines.core.report import Report
from engines.core.steps import Stage
from engines.drivers.aio import AsyncDriver
from engines.drivers.limits import CANCEL_GRACE
from engines.drivers.threads import ThreadDriver
from engines.drivers.work import Work
from engines.registry import Stoppable, Task, elsewhere, untouched
from engines.transaction import Transaction


class ProducerMixin(Stoppable):
    """Gives a task `produce_transactions`. The author writes `produce_transaction` and nothing else."""

    producer_policy: ProducerPolicy | None = None
    abandoned_grace = 30.0
    cancel_grace = CANCEL_GRACE

    def produce_transaction(self, transaction: Transaction) -> Any:
        raise NotImplementedError

    def handle_produce_success(self, transaction: Transaction, result: Any) -> Any:
        """Called once the work is done; may be left as it is."""

    def handle_produce_exception(self, transaction: Transaction, exc: Exception) -> Any:
        """Called once the work has failed for good; may be left as it is."""

    def produce_transactions(self, transactions: Iterable[Transaction], policy: ProducerPolicy | None = None) -> Report:
        """Produce them all, batch by batch, or until the limit is reached or somebody stops it.

        An iterable that is a connector as well (it has `acknowledge`, `release`, …) is told what came of each.
        """
        work = _work(self, transactions, _policy(policy, self.producer_policy), **offers(transactions))
        driver = ThreadDriver(work)
        with self._running(driver):
            return driver.run()


class AsyncProducerMixin(Stoppable):
    """Gives a task an awaitable `produce_transactions`; its hooks are coroutines."""

    producer_policy: ProducerPolicy | None = None
    abandoned_grace = 30.0
    cancel_grace = CANCEL_GRACE

    async def produce_transaction(self, transaction: Transaction) -> Any:
        raise NotImplementedError

    async def handle_produce_success(self, transaction: Transaction, result: Any) -> Any:
        """Called once the work is done; may be left as it is."""

    async def handle_produce_exception(self, transaction: Transaction, exc: Exception) -> Any:
        """Called once the work has failed for good; may be left as it is."""

    async def produce_transactions(
        self, transactions: Iterable[Transaction], policy: ProducerPolicy | None = None
    ) -> Report:
        """Produce them all, batch by batch, or until the limit is reached or somebody stops it.

        An iterable that is a connector as well (it has `acknowledge_async`, …) is told what came of each.
        """
        work = _work(self, transactions, _policy(policy, self.producer_policy), **offers_async(transactions))
        driver = AsyncDriver(work)
        with self._running(driver):
            return await driver.run()


class ProducerTask(ProducerMixin, Task):
    """A threaded task that produces."""


class AsyncProducerTask(AsyncProducerMixin, Task):
    """An async task that produces."""


def _work(task: Any, transactions: Iterable[Transaction], policy: ProducerPolicy, **functions: Any) -> Work:
    hooks = {
        Stage.PRODUCE: "produce_transaction",
        Stage.SUCCESS: "handle_produce_success",
        Stage.EXCEPTION: "handle_produce_exception",
    }
    # What is at hand as a whole needs no limit; anything else might make the loop wait beyond its time.
    is_slow = policy.loop.timeout is not None and not isinstance(transactions, Collection)
    return Work(
        task=type(task).__name__,
        pipeline=task.pipeline_name,
        policy=policy,
        loop=lambda _: production(policy, _checked(transactions), is_slow=is_slow),
        handlers={stage: getattr(task, name) for stage, name in hooks.items()},
        silent=untouched(task, hooks, ProducerMixin, AsyncProducerMixin),
        timeout_error=ProducerLoopTimeout,
        abandoned_grace=task.abandoned_grace,
        cancel_grace=task.cancel_grace,
        abandoned=task._abandoned(),  # noqa: SLF001 (of its own kind)
        **elsewhere(task),
        **functions,
    )


def _checked(transactions: Iterable[Any]) -> Iterator[Transaction]:
    for item in transactions:
        if not isinstance(item, Transaction):
            msg = f"produce_transactions takes transactions, not {type(item).__name__}"
            raise TypeError(msg)
        yield item


def _policy(given: Any, own: ProducerPolicy | None) -> ProducerPolicy:
    policy: Any = given or own or ProducerPolicy()
    if not isinstance(policy, ProducerPolicy):
        msg = f"a producer takes a ProducerPolicy, not {type(policy).__name__}"
        raise TypeError(msg)
    return policy
