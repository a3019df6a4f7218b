"""One way to drive all four engines, so that every promise is tested on each of them.

A script says what each hook does for a transaction; whether it is called by a thread or awaited is the engine's affair.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engines import (
    AsyncHybridTask,
    BatchPolicy,
    ConcurrencyPolicy,
    ConsumerLoopPolicy,
    ConsumerPolicy,
    ConsumerSteps,
    ExceptionPolicy,
    FetchPolicy,
    HybridTask,
    ProcessPolicy,
    ProducePolicy,
    ProducerLoopPolicy,
    ProducerPolicy,
    ProducerSteps,
    Report,
    RetryPolicy,
    SuccessPolicy,
    Transaction,
)
from engines.connectors.memory import MemoryConnector

FOREVER = 3600.0
# How long a busy machine may keep a thread waiting for its turn: far less than what would happen if a limit were none.
SLACK = 10.0


@dataclass(frozen=True)
class Pause:
    """A hook that takes its time, and then returns a value or raises."""

    seconds: float
    then: Any = None


@dataclass(frozen=True)
class Until:
    """A hook that waits until something holds, at most `SLACK` seconds, and then returns a value or raises."""

    holds: Callable[[], bool]
    then: Any = None

    def pauses(self) -> Iterator[float]:
        ends_at = time.monotonic() + SLACK
        while not self.holds() and time.monotonic() < ends_at:
            yield 0.005


@dataclass
class Script:
    """What the hooks do: functions of what they are given, or fixed answers."""

    work: Any = "done"
    success: Any = None
    exception: Any = None
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def answer(self, stage: str, transaction: Transaction, argument: Any) -> Any:
        with self.lock:
            self.calls.append((stage, transaction.id, argument))
        behaviour = getattr(self, stage)
        return behaviour(transaction) if callable(behaviour) else behaviour

    def stages(self, name: str | None = None) -> list[str]:
        return [stage for stage, called, _ in self.calls if name in (None, called)]

    def arguments(self, stage: str) -> list[Any]:
        return [argument for called, _, argument in self.calls if called == stage]


def _pauses(answer: Pause | Until) -> Iterable[float]:
    return answer.pauses() if isinstance(answer, Until) else [answer.seconds]


def settle(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise answer
    return answer


class Threaded(HybridTask):
    """The scripted task for threads."""

    script: Script

    def _do(self, stage: str, transaction: Transaction, argument: Any = None) -> Any:
        answer = self.script.answer(stage, transaction, argument)
        if isinstance(answer, Pause | Until):
            for seconds in _pauses(answer):
                time.sleep(seconds)
            answer = answer.then
        return settle(answer)

    def process_transaction(self, transaction: Transaction) -> Any:
        return self._do("work", transaction)

    def handle_transaction_success(self, transaction: Transaction, result: Any) -> Any:
        return self._do("success", transaction, result)

    def handle_transaction_exception(self, transaction: Transaction, exc: Exception) -> Any:
        return self._do("exception", transaction, exc)

    produce_transaction = process_transaction
    handle_produce_success = handle_transaction_success
    handle_produce_exception = handle_transaction_exception


class Awaited(AsyncHybridTask):
    """The scripted task for asyncio."""

    script: Script

    async def _do(self, stage: str, transaction: Transaction, argument: Any = None) -> Any:
        answer = self.script.answer(stage, transaction, argument)
        if isinstance(answer, Pause | Until):
            for seconds in _pauses(answer):
                await asyncio.sleep(seconds)
            answer = answer.then
        return settle(answer)

    async def process_transaction(self, transaction: Transaction) -> Any:
        return await self._do("work", transaction)

    async def handle_transaction_success(self, transaction: Transaction, result: Any) -> Any:
        return await self._do("success", transaction, result)

    async def handle_transaction_exception(self, transaction: Transaction, exc: Exception) -> Any:
        return await self._do("exception", transaction, exc)

    produce_transaction = process_transaction
    handle_produce_success = handle_transaction_success
    handle_produce_exception = handle_transaction_exception


@dataclass(frozen=True)
class Engine:
    """One of the four."""

    is_consumer: bool
    is_async: bool

    def __str__(self) -> str:
        return f"{'async ' if self.is_async else ''}{'consumer' if self.is_consumer else 'producer'}"

    @property
    def work(self) -> str:
        return "process" if self.is_consumer else "produce"

    def task(self, script: Script, connectors: dict[str, Any] | None = None) -> Any:
        task = (Awaited if self.is_async else Threaded)(connectors=connectors)
        task.script = script
        return task

    def policy(  # noqa: PLR0913 (one argument for each thing that a test may set)
        self,
        *,
        work: RetryPolicy | None = None,
        success: RetryPolicy | None = None,
        exception: RetryPolicy | None = None,
        fetch: FetchPolicy | None = None,
        concurrency: int = 1,
        batch: int = 1,
        record_payload: bool = False,
        **loop: Any,
    ) -> Any:
        once = RetryPolicy()
        settling: dict[str, Any] = {
            "success": SuccessPolicy(retry=success or once),
            "exception": ExceptionPolicy(retry=exception or once),
        }
        limits = {"concurrency": ConcurrencyPolicy(value=concurrency), "batch": BatchPolicy(size=batch), **loop}
        if self.is_consumer:
            steps = ConsumerSteps(process=ProcessPolicy(retry=work or once), fetch=fetch or FetchPolicy(), **settling)
            return ConsumerPolicy(loop=ConsumerLoopPolicy(**limits), steps=steps, record_payload=record_payload)
        produce = ProducerSteps(produce=ProducePolicy(retry=work or once), **settling)
        return ProducerPolicy(loop=ProducerLoopPolicy(**limits), steps=produce, record_payload=record_payload)

    def start(self, task: Any, transactions: Any, policy: Any) -> Any:
        """Call the task's own method, as an author would."""
        if self.is_consumer:
            if not task.connectors:
                task.connectors = {"memory": MemoryConnector(transactions)}
            return task.consume_transactions(policy)
        return task.produce_transactions(transactions, policy)

    def run(self, script: Script, transactions: Iterable[Transaction], **options: Any) -> Report:
        connectors = options.pop("connectors", None)
        running = self.start(self.task(script, connectors), transactions, self.policy(**options))
        report: Report = asyncio.run(_within(running)) if self.is_async else running
        return report

    def drive(self, function: Callable[[], Any]) -> Any:
        """Run a function that starts an engine, whichever kind it is."""
        return asyncio.run(_called(function)) if self.is_async else function()


async def _within(running: Any) -> Any:
    return await running


async def _called(function: Callable[[], Any]) -> Any:
    return await function()


def some(count: int) -> list[Transaction]:
    return [Transaction(f"t{number}", {"secret": f"payload {number}"}) for number in range(count)]


ENGINES = [Engine(is_consumer, is_async) for is_consumer in (True, False) for is_async in (False, True)]
