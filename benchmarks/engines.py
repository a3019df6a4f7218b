"""What an engine costs per transaction: a no-op handler, 10,000 transactions, concurrency 8, an in-memory connector.

The baseline makes the same calls (work and success handler) in the same run without an engine: a bare loop, a bare
`ThreadPoolExecutor`, a bare `asyncio` loop with a semaphore, the same with `asyncio.timeout` around each call. With an
SDK, the baseline opens the same spans by hand. Costs are processor time, which a busy neighbour changes little.
"""

import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

from benchmarks import goals as goals_of
from benchmarks.goals import Figure, at_most, ratio
from engines import (
    AsyncHybridTask,
    BatchPolicy,
    ConcurrencyPolicy,
    ConsumerLoopPolicy,
    ConsumerPolicy,
    ConsumerSteps,
    HybridTask,
    ProcessPolicy,
    ProducerLoopPolicy,
    ProducerPolicy,
    RetryPolicy,
    SuccessPolicy,
    Transaction,
)
from engines.connectors.memory import MemoryConnector

COUNT, CONCURRENCY, BATCH, ROUNDS = 10_000, 8, 100, 9
TRACED = 2_000
TRANSACTIONS = [Transaction(str(number), None) for number in range(COUNT)]
LIMITS: dict[str, Any] = {"concurrency": ConcurrencyPolicy(value=CONCURRENCY), "batch": BatchPolicy(size=BATCH)}
CONSUME = ConsumerPolicy(loop=ConsumerLoopPolicy(**LIMITS))
PRODUCE = ProducerPolicy(loop=ProducerLoopPolicy(**LIMITS))
SECONDS = 30.0  # the limit of the shipped policy
_LIMITED = RetryPolicy(timeout=SECONDS)
CONSUME_LIMITED = ConsumerPolicy(
    loop=CONSUME.loop, steps=ConsumerSteps(process=ProcessPolicy(retry=_LIMITED), success=SuccessPolicy(retry=_LIMITED))
)


class Idle(HybridTask):
    def process_transaction(self, transaction: Transaction) -> int:
        return 1

    def handle_transaction_success(self, transaction: Transaction, result: Any) -> None: ...

    produce_transaction = process_transaction
    handle_produce_success = handle_transaction_success


class AsyncIdle(AsyncHybridTask):
    async def process_transaction(self, transaction: Transaction) -> int:
        return 1

    async def handle_transaction_success(self, transaction: Transaction, result: Any) -> None: ...

    produce_transaction = process_transaction
    handle_produce_success = handle_transaction_success


class AsyncWaiting(AsyncIdle):
    """Waits a moment: the limit of a handler that never waits needs no timer."""

    async def process_transaction(self, transaction: Transaction) -> int:
        await asyncio.sleep(0)
        return 1

    async def handle_transaction_success(self, transaction: Transaction, result: Any) -> None:
        await asyncio.sleep(0)


def consumer(transactions: list[Transaction], policy: ConsumerPolicy = CONSUME) -> None:
    Idle({"memory": MemoryConnector(transactions)}).consume_transactions(policy)


def limited_consumer(transactions: list[Transaction]) -> None:
    consumer(transactions, CONSUME_LIMITED)


def async_consumer(transactions: list[Transaction]) -> None:
    asyncio.run(AsyncIdle({"memory": MemoryConnector(transactions)}).consume_transactions(CONSUME))


def limited_async_consumer(transactions: list[Transaction]) -> None:
    asyncio.run(AsyncWaiting({"memory": MemoryConnector(transactions)}).consume_transactions(CONSUME_LIMITED))


def producer(transactions: list[Transaction]) -> None:
    Idle().produce_transactions(transactions, PRODUCE)


def async_producer(transactions: list[Transaction]) -> None:
    asyncio.run(AsyncIdle().produce_transactions(transactions, PRODUCE))


def bare_loop(transactions: list[Transaction]) -> None:
    task = Idle()
    for transaction in transactions:
        task.handle_transaction_success(transaction, task.process_transaction(transaction))


def bare_pool(transactions: list[Transaction]) -> None:
    task = Idle()

    def both(transaction: Transaction) -> None:
        task.handle_transaction_success(transaction, task.process_transaction(transaction))

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        for future in [pool.submit(both, transaction) for transaction in transactions]:
            future.result()


def bare_asyncio(transactions: list[Transaction]) -> None:
    task = AsyncIdle()

    async def all_of_them() -> None:
        slots = asyncio.Semaphore(CONCURRENCY)

        async def both(transaction: Transaction) -> None:
            async with slots:
                await task.handle_transaction_success(transaction, await task.process_transaction(transaction))

        await asyncio.gather(*(both(transaction) for transaction in transactions))

    asyncio.run(all_of_them())


def asyncio_timeouts(transactions: list[Transaction]) -> None:
    task = AsyncWaiting()

    async def all_of_them() -> None:
        slots = asyncio.Semaphore(CONCURRENCY)

        async def both(transaction: Transaction) -> None:
            async with slots:
                async with asyncio.timeout(SECONDS):
                    result = await task.process_transaction(transaction)
                async with asyncio.timeout(SECONDS):
                    await task.handle_transaction_success(transaction, result)

        await asyncio.gather(*(both(transaction) for transaction in transactions))

    asyncio.run(all_of_them())


def spans_by_hand(transactions: list[Transaction]) -> None:
    """The five spans of a successful transaction, opened the usual way with the same attributes."""
    from opentelemetry import trace

    from engines import telemetry as names

    tracer, task = trace.get_tracer("by hand"), Idle()
    start = tracer.start_as_current_span
    about: dict[str, Any] = {names.TASK: "Idle", "messaging.system": "ergon", "messaging.destination.name": "Idle"}
    retry: dict[str, Any] = {
        names.MAX_ATTEMPTS: 1,
        "ergon.retry.backoff": 0.0,
        "ergon.retry.backoff_multiplier": 2.0,
        "ergon.retry.backoff_cap": 0.0,
    }
    for transaction in transactions:
        one = {**about, names.TRANSACTION_ID: transaction.id, "messaging.message.id": transaction.id}
        with start("start_processing", attributes={**one, "messaging.operation.name": "process"}):
            for name, step in (("process", "process"), ("handle_success", "success")):
                stage = {**one, **retry, names.STEP: step}
                with start(name, attributes=stage) as outer:
                    with start(f"{name}.attempt", attributes={**stage, names.ATTEMPT: 0}) as inner:
                        result = task.process_transaction(transaction)
                        inner.set_attribute(names.RESULT, type(result).__name__)
                    outer.set_attribute(names.RESULT, type(result).__name__)


ENGINES = {
    "consumer": consumer,
    "async consumer": async_consumer,
    "producer": producer,
    "async producer": async_producer,
}
BASELINES = {
    "bare loop": bare_loop,
    "bare thread pool": bare_pool,
    "bare asyncio": bare_asyncio,
    "asyncio.timeout": asyncio_timeouts,
}
LIMITED = {"consumer, 30 s": limited_consumer, "async consumer, 30 s": limited_async_consumer}
# Each with its baseline, and the most that it should cost beside that.
GOALS: dict[str, tuple[str, float | None]] = {
    "consumer": ("bare thread pool", None),
    "async consumer": ("bare asyncio", 2.0),
    "producer": ("bare thread pool", None),
    "async producer": ("bare asyncio", 2.0),
    "consumer, 30 s": ("consumer", None),
    "async consumer, 30 s": ("asyncio.timeout", None),
}
TRACED_GOALS: dict[str, tuple[str, float | None]] = dict.fromkeys(ENGINES, ("spans by hand", 1.2))


def main() -> list[Figure]:
    print(f"{COUNT:,} transactions, concurrency {CONCURRENCY}, batch {BATCH}, no SDK; median of {ROUNDS}, µs each")
    costs = tell(measure({**BASELINES, **ENGINES, **LIMITED}, TRANSACTIONS))
    # The API takes a provider for good, so the traced half runs in a process of its own.
    command = [sys.executable, "-m", "benchmarks.engines", "traced"]
    *lines, told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()  # noqa: S603 (ours)
    print("\n".join(lines))
    figures = goals(costs, json.loads(told))
    goals_of.show(figures)
    return figures


def goals(
    costs: Mapping[str, float] = MappingProxyType({}), traced_costs: Mapping[str, float] = MappingProxyType({})
) -> list[Figure]:
    return [
        *_beside(GOALS, costs, ""),
        *_beside(TRACED_GOALS, traced_costs, ", every span recorded"),
    ]


def _beside(goals: Mapping[str, tuple[str, float | None]], costs: Mapping[str, float], more: str) -> Iterator[Figure]:
    for name, (baseline, goal) in goals.items():
        yield at_most(f"{name}{more} / {baseline}", ratio(costs.get(name), costs.get(baseline)), goal)


def traced() -> None:
    """The last line is for the process that has started this one."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    trace.set_tracer_provider(TracerProvider())
    print(f"{TRACED:,} transactions, every span recorded; median of {ROUNDS}, µs each")
    print(json.dumps(tell(measure({"spans by hand": spans_by_hand, **ENGINES}, TRANSACTIONS[:TRACED]))))


def tell(costs: dict[str, tuple[float, float, float]]) -> dict[str, float]:
    for name, (middle, low, high) in costs.items():
        print(f"  {name:20} {middle:7.1f}  ({low:.1f} to {high:.1f})")
    return {name: middle for name, (middle, _, _) in costs.items()}


def measure(
    contenders: dict[str, Callable[[list[Transaction]], None]], transactions: list[Transaction]
) -> dict[str, tuple[float, float, float]]:
    """Microseconds per transaction: median, least, most; the contenders take turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            gc.collect()
            started = time.process_time()
            run(transactions)
            times[name].append((time.process_time() - started) / len(transactions) * 1e6)
    return {name: (statistics.median(all_), min(all_), max(all_)) for name, all_ in times.items()}


if __name__ == "__main__":
    (traced if sys.argv[1:] == ["traced"] else main)()
