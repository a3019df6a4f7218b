"""How many run at once, which, and what they cannot see of each other."""

import asyncio
import contextvars
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from engines import EmptyQueuePolicy, RetryPolicy, Transaction, with_context, with_context_async
from engines.connectors.memory import MemoryConnector
from tests.conformance.harness import FOREVER, SLACK, Engine, Pause, Script, Until, some
from tests.processes import eventually

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class Gauge:
    """How many are inside at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside: Counter[str] = Counter()
        self.most = 0
        self.twins = 0

    def enter(self, name: str) -> None:
        with self.lock:
            self.inside[name] += 1
            self.most = max(self.most, self.inside.total())
            self.twins = max(self.twins, self.inside[name])

    def leave(self, name: str) -> None:
        with self.lock:
            self.inside[name] -= 1


def gauged(engine: Engine, transactions: list[Transaction], *, together: int = 0, **options: Any) -> tuple[Gauge, Any]:
    """Run them; the first ones go on only when so many are inside at once."""
    gauge, script = Gauge(), Script()
    task = engine.task(script, {"memory": MemoryConnector(transactions)})

    if engine.is_async:

        async def work(transaction: Transaction) -> str:
            gauge.enter(transaction.id)
            await asyncio.sleep(0.005)
            for seconds in Until(lambda: gauge.most >= together).pauses():
                await asyncio.sleep(seconds)
            gauge.leave(transaction.id)
            return "done"
    else:

        def work(transaction: Transaction) -> str:  # type: ignore[misc]
            gauge.enter(transaction.id)
            time.sleep(0.005)
            for seconds in Until(lambda: gauge.most >= together).pauses():
                time.sleep(seconds)
            gauge.leave(transaction.id)
            return "done"

    task.process_transaction = task.produce_transaction = work
    report = engine.drive(lambda: engine.start(task, transactions, engine.policy(**options)))
    return gauge, report


def test_never_more_at_once_than_the_policy_allows(engine: Engine) -> None:
    gauge, report = gauged(engine, some(60), together=4, concurrency=4, batch=20)
    assert gauge.most == 4
    assert report.succeeded == 60


def test_by_default_one_at_a_time(engine: Engine) -> None:
    gauge, _ = gauged(engine, some(5), batch=5)
    assert gauge.most == 1


def test_the_same_transaction_never_runs_twice_at_once(engine: Engine) -> None:
    twins = [Transaction(f"t{number % 3}", None) for number in range(30)]
    gauge, report = gauged(engine, twins, concurrency=8, batch=30)
    assert gauge.twins == 1
    assert report.processed + report.skipped == 30


def test_a_consumer_lets_the_later_twin_wait_its_turn(consumer: Engine) -> None:
    _, report = gauged(consumer, [Transaction("same", number) for number in range(6)], concurrency=4, batch=6)
    assert (report.processed, report.skipped) == (6, 0)


def test_a_producer_skips_and_counts_the_later_twin(producer: Engine) -> None:
    _, report = gauged(producer, [Transaction("same", number) for number in range(6)], concurrency=4, batch=4)
    assert (report.processed, report.skipped) == (1, 5)


def slow_first(others: int) -> Script:
    """The first one ends when all others have succeeded."""
    script = Script()
    slow = Until(lambda: len(successes(script)) == others, "slow")
    script.work = lambda transaction: slow if transaction.id == "t0" else Pause(0.01, "quick")
    return script


def successes(script: Script) -> list[str]:
    return [name for stage, name, _ in script.calls if stage == "success"]


def test_slots_are_refilled_while_a_slow_one_runs(engine: Engine) -> None:
    script = slow_first(20)
    report = engine.run(script, some(21), concurrency=2, batch=21)
    assert report.succeeded == 21
    assert successes(script)[-1] == "t0"


def test_a_thousand_at_once_in_asyncio() -> None:
    engine = Engine(is_consumer=True, is_async=True)
    report = engine.run(Script(work=Pause(0.2, "done")), some(3000), concurrency=1000, batch=1000)
    assert report.succeeded == 3000
    assert report.elapsed < 20  # one after the other would take ten minutes


def test_a_connector_that_prefetches_keeps_every_slot_busy(consumer: Engine) -> None:
    class Prefetching(MemoryConnector):
        is_prefetching = True

    script = slow_first(19)
    report = consumer.run(script, [], connectors={"m": Prefetching(some(20))}, concurrency=2, batch=2)
    assert report.succeeded == 20
    assert successes(script)[-1] == "t0"


def test_a_transaction_sees_the_callers_context_and_nothing_of_another_transactions(engine: Engine) -> None:
    def work(transaction: Transaction) -> str:
        before = tenant.get()
        tenant.set(transaction.id)
        return before

    tenant.set("caller")
    script = Script(work=work)
    engine.run(script, some(50), concurrency=4, batch=25, success=RetryPolicy())
    assert set(script.arguments("success")) == {"caller"}
    assert tenant.get() == "caller"


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_attempts_and_handlers_share_the_callers_context(engine: Engine, timeout: float | None) -> None:
    tenant.set("caller")
    seen: list[str] = []

    def look(_: Transaction) -> Any:
        seen.append(tenant.get())
        return ValueError("again") if len(seen) < 3 else "done"

    limited = RetryPolicy(max_attempts=3, timeout=timeout)
    engine.run(Script(work=look, success=look), some(1), work=limited, success=limited)
    assert seen == ["caller"] * 4


def test_with_context_carries_a_copy_of_the_context_into_any_thread() -> None:
    tenant.set("here")
    bound = with_context(lambda: (tenant.get(), tenant.set("there"))[0])
    tenant.set("elsewhere")
    seen: list[str] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: seen.append(bound()))
        thread.start()
        thread.join()
    assert seen == ["here", "here"]
    assert tenant.get() == "elsewhere"


def test_with_context_async_carries_a_copy_of_the_context_into_any_task() -> None:
    async def look() -> str:
        return tenant.get()

    async def all_of_it() -> None:
        tenant.set("here")
        bound = with_context_async(look)
        tenant.set("elsewhere")
        assert await bound() == "here"

    asyncio.run(all_of_it())


def test_abandoned_attempts_are_counted_until_they_end() -> None:
    engine = Engine(is_consumer=False, is_async=False)
    task = engine.task(Script(work=Pause(FOREVER)))
    counts: list[int] = []
    script_answer = task.script.answer

    def watch(stage: str, transaction: Transaction, argument: Any) -> Any:
        if stage == "exception":
            counts.append(task.abandoned_attempts)
        return script_answer(stage, transaction, argument)

    task.script.answer = watch
    engine.start(task, some(2), engine.policy(work=RetryPolicy(timeout=0.05), batch=2))
    assert counts == [1, 2]


def test_a_worker_whose_slots_worth_of_attempts_is_abandoned_stops_fetching_and_then_gives_up(
    consumer: Engine,
) -> None:
    from engines import AbandonedAttemptsError

    connector, is_over = MemoryConnector(some(10)), threading.Event()

    def stubborn(_: Transaction) -> None:
        is_over.wait(FOREVER)  # a blocked thread; in asyncio a coroutine that ignores its cancellation

    async def ignore(_: Transaction) -> None:
        while not is_over.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.02)

    async def start() -> Any:
        try:
            return await consumer.start(task, [], policy)
        finally:
            is_over.set()  # else the event loop would wait for them at its end

    task = consumer.task(Script(), {"m": connector})
    task.process_transaction = ignore if consumer.is_async else stubborn
    task.abandoned_grace, task.cancel_grace = 0.2, 0.0
    policy = consumer.policy(work=RetryPolicy(timeout=0.05), concurrency=2, batch=2, streaming=True)
    with pytest.raises(AbandonedAttemptsError, match="2 abandoned attempts"):
        consumer.drive(start if consumer.is_async else lambda: consumer.start(task, [], policy))
    is_over.set()
    assert connector.count() == 8


def test_fetching_goes_on_when_the_abandoned_have_ended(consumer: Engine) -> None:
    late = Until(lambda: "exception" in script.stages(), "late")
    script = Script(work=lambda transaction: late if transaction.id == "t0" else "done")
    report = consumer.run(script, some(3), work=RetryPolicy(timeout=0.5), streaming=True, limit=3)
    assert (report.succeeded, report.failed) == (2, 1)


def test_stop_lets_what_runs_end_and_gives_back_the_rest(consumer: Engine) -> None:
    connector = MemoryConnector(some(10))
    task = consumer.task(Script(), {"m": connector})

    def work(transaction: Transaction) -> Any:
        task.stop()
        return Pause(0.05, "done")

    task.script = Script(work=work)
    report = consumer.drive(lambda: consumer.start(task, [], consumer.policy(batch=4, streaming=True)))
    assert (report.stopped_by, report.processed) == ("stopped", 1)
    assert connector.count() == 9
    assert task.script.stages() == ["work", "success"]


def test_stop_ends_an_idle_stream_at_once(consumer: Engine) -> None:
    task = consumer.task(Script(), {"m": MemoryConnector()})
    threading.Timer(0.1, task.stop).start()
    waits = EmptyQueuePolicy(backoff=FOREVER, backoff_cap=FOREVER)
    report = consumer.drive(lambda: consumer.start(task, [], consumer.policy(streaming=True, empty_queue=waits)))
    assert report.stopped_by == "stopped"
    assert report.elapsed < 0.1 + SLACK


def test_stop_ends_a_producer_after_what_runs(producer: Engine) -> None:
    task = producer.task(Script())
    task.script = Script(work=lambda _: task.stop() or "done")
    report = producer.drive(lambda: producer.start(task, some(10), producer.policy(batch=2)))
    assert report.stopped_by == "stopped"
    assert report.processed == 1


def test_a_cancelled_async_loop_gives_everything_back() -> None:
    engine = Engine(is_consumer=True, is_async=True)
    connector = MemoryConnector(some(6))
    script = Script(work=Pause(FOREVER))

    async def cancel() -> None:
        running = asyncio.ensure_future(engine.start(engine.task(script, {"m": connector}), [], policy))
        await asyncio.to_thread(eventually, lambda: len(script.calls) == 2, "both slots are taken")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    policy = engine.policy(concurrency=2, batch=4)
    asyncio.run(cancel())
    assert connector.count() == 6
    assert script.stages() == ["work", "work"]
