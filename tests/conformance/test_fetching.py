"""How consumers fetch, how loops end, and what bad connectors cannot do."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import engines
from engines import (
    ConnectorError,
    EmptyQueuePolicy,
    FetchException,
    FetchPolicy,
    FetchTimeoutException,
    RetryPolicy,
    Success,
    Transaction,
)
from engines.connectors.memory import MemoryConnector
from tests.conformance.harness import FOREVER, SLACK, Engine, Pause, Script, some
from tests.processes import eventually


class Source(MemoryConnector):
    """A connector whose fetches are scripted first, and real afterwards."""

    def __init__(self, transactions: list[Transaction], *script: Any) -> None:
        super().__init__(transactions)
        self.script = list(script)
        self.asked: list[tuple[int, dict[str, Any]]] = []

    def fetch_transactions(self, batch_size: int, **extra: Any) -> Any:
        self.asked.append((batch_size, extra))
        if not self.script:
            return super().fetch_transactions(batch_size)
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(self, batch_size) if callable(answer) else answer


def consume(consumer: Engine, source: Any, script: Script | None = None, **options: Any) -> Any:
    return consumer.run(script or Script(), [], connectors={"source": source}, **options)


def test_extra_goes_to_the_connector_with_the_batch_size(consumer: Engine) -> None:
    source = Source(some(3))
    consume(consumer, source, batch=2, fetch=FetchPolicy(extra={"region": "north"}))
    assert source.asked[0] == (2, {"region": "north"})


def test_a_loop_ends_when_there_is_nothing_and_it_does_not_stream(consumer: Engine) -> None:
    report = consume(consumer, Source(some(3)), batch=2)
    assert (report.stopped_by, report.processed) == ("empty", 3)


def test_exactly_the_limit_is_started_and_no_more_is_fetched(consumer: Engine) -> None:
    source = Source(some(250))
    report = consume(consumer, source, batch=100, limit=110, concurrency=4)
    assert (report.stopped_by, report.processed) == ("limit", 110)
    assert [size for size, _ in source.asked] == [100, 10]
    assert source.count() == 140


def test_a_producer_starts_exactly_its_limit(producer: Engine) -> None:
    report = producer.run(Script(), some(25), batch=10, limit=12)
    assert (report.stopped_by, report.processed) == ("limit", 12)


def test_a_producer_ends_when_its_list_is_exhausted(producer: Engine) -> None:
    report = producer.run(Script(), some(25), batch=10, concurrency=3)
    assert (report.stopped_by, report.processed) == ("exhausted", 25)


def test_a_producer_takes_any_iterable_and_batch_after_batch(producer: Engine) -> None:
    script = Script()
    report = producer.run(script, (one for one in some(7)), batch=3)
    assert report.processed == 7
    order = [name for stage, name, _ in script.calls if stage == "work"]
    assert order == [f"t{number}" for number in range(7)]


def test_a_producer_refuses_what_is_no_transaction(producer: Engine) -> None:
    script = Script()
    with pytest.raises(TypeError, match="takes transactions, not dict"):
        producer.run(script, [*some(2), {"id": "x"}], batch=2)  # type: ignore[list-item]
    assert script.stages().count("success") == 2


def test_a_stream_goes_on_after_nothing_and_waits_longer_each_time(consumer: Engine) -> None:
    source = Source(some(1), [], [], [])
    waits = EmptyQueuePolicy(backoff=0.02, backoff_multiplier=2)
    report = consume(consumer, source, streaming=True, limit=1, empty_queue=waits)
    assert report.processed == 1
    assert 0.14 <= report.elapsed < 0.14 + SLACK


def test_a_failing_fetch_is_retried_by_its_own_policy(consumer: Engine) -> None:
    source = Source(some(1), OSError("gone"), OSError("gone"))
    retry = RetryPolicy(max_attempts=3, backoff=0.01)
    assert consume(consumer, source, fetch=FetchPolicy(retry=retry)).processed == 1


def test_a_fetch_that_fails_for_good_ends_the_loop_after_what_runs_has_ended(consumer: Engine) -> None:
    class Prefetching(Source):
        is_prefetching = True

    original = OSError("gone")
    source = Prefetching(some(2), MemoryConnector.fetch_transactions, original)
    script = Script(work=Pause(0.1, "done"))
    with pytest.raises(FetchException, match="gone") as caught:
        consume(consumer, source, script, batch=2, concurrency=2)
    assert caught.value.__cause__ is original
    assert script.stages().count("success") == 2
    assert caught.value.report is not None
    assert caught.value.report.succeeded == 2


def test_a_fetch_that_is_too_slow_is_a_fetch_timeout(consumer: Engine) -> None:
    class Slow(MemoryConnector):
        def fetch_transactions(self, batch_size: int, **_: Any) -> Any:
            time.sleep(FOREVER)

        async def fetch_transactions_async(self, batch_size: int, **_: Any) -> Any:
            import asyncio

            await asyncio.sleep(FOREVER)

    started = time.monotonic()
    with pytest.raises(FetchTimeoutException, match=r"0\.1 s"):
        consume(consumer, Slow(), fetch=FetchPolicy(retry=RetryPolicy(timeout=0.1)))
    assert time.monotonic() - started < 0.1 + SLACK


def test_what_a_late_fetch_still_brings_is_given_back() -> None:
    gate = threading.Event()

    class Late(MemoryConnector):
        def fetch_transactions(self, batch_size: int, **extra: Any) -> Any:
            batch = super().fetch_transactions(batch_size)
            gate.wait(FOREVER)
            return batch

    source = Late(some(3))
    with pytest.raises(FetchTimeoutException):
        consume(Engine(is_consumer=True, is_async=False), source, fetch=FetchPolicy(retry=RetryPolicy(timeout=0.05)))
    gate.set()
    eventually(lambda: source.count() == 3, "they are back")


@pytest.mark.parametrize(
    ("garbage", "words"),
    [
        (
            None,
            "returned NoneType where a list of transactions was expected; where there are none, return an empty list",
        ),
        ("transactions", "returned str where a list"),
        ({"id": 1}, "returned dict where a list"),
        (7, "returned int where a list"),
        ([{"id": 1}], "returned dict in a list of transactions"),
    ],
)
def test_a_connector_that_returns_garbage_fails_clearly(consumer: Engine, garbage: Any, words: str) -> None:
    script = Script()
    with pytest.raises(FetchException, match=words):
        consume(consumer, Source(some(2), garbage), script)
    assert script.calls == []


def test_a_connector_that_returns_too_many_fails_and_loses_none(consumer: Engine) -> None:
    source = Source(some(5), lambda self, _: MemoryConnector.fetch_transactions(self, 5))
    script = Script()
    with pytest.raises(FetchException, match="5 transactions where at most 2 were asked for"):
        consume(consumer, source, script, batch=2)
    assert (source.count(), script.calls) == (5, [])


def test_good_transactions_among_garbage_are_given_back(consumer: Engine) -> None:
    good = Transaction("good", 1)
    source = Source([], [good, "garbage"])
    with pytest.raises(FetchException):
        consume(consumer, source, batch=2)
    assert source.count() == 1


def test_what_the_connector_returned_is_not_merged_split_or_reordered(consumer: Engine) -> None:
    script = Script()
    source = Source([], some(5)[::-1], [Transaction("x", 1)], [])
    consume(consumer, source, script, batch=10)
    assert [name for stage, name, _ in script.calls if stage == "work"] == ["t4", "t3", "t2", "t1", "t0", "x"]
    assert [size for size, _ in source.asked] == [10, 10, 10]


@pytest.mark.parametrize(
    ("connectors", "name", "words"),
    [
        ({"a": MemoryConnector(), "b": MemoryConnector()}, None, r"several \(a, b\): name one in steps.fetch"),
        ({"a": MemoryConnector()}, "c", "no connector named 'c'; there are: a"),
    ],
)
def test_an_unclear_connector_is_an_error_before_anything_is_fetched(
    consumer: Engine, connectors: dict[str, Any], name: str | None, words: str
) -> None:
    with pytest.raises(ConnectorError, match=words):
        consumer.run(Script(), [], connectors=connectors, fetch=FetchPolicy(connector_name=name))


def test_no_connector_at_all_is_an_error_too(consumer: Engine) -> None:
    task = consumer.task(Script())
    with pytest.raises(ConnectorError, match="has none"):
        consumer.drive(lambda: task.consume_transactions(consumer.policy()))


def test_the_policy_picks_among_several_connectors(consumer: Engine) -> None:
    connectors = {"a": MemoryConnector(some(1)), "b": MemoryConnector(some(4))}
    report = consumer.run(Script(), [], connectors=connectors, fetch=FetchPolicy(connector_name="b"))
    assert report.processed == 4


def test_outcomes_are_acknowledged_once_each(consumer: Engine) -> None:
    source = MemoryConnector(some(20))
    consume(consumer, source, Script(work="done"), batch=7, concurrency=3)
    assert sorted(name for name, _ in source.outcomes) == sorted(f"t{number}" for number in range(20))
    assert {outcome for _, outcome in source.outcomes} == {Success("done")}


def test_a_connector_that_cannot_take_an_outcome_ends_the_loop_with_its_error(consumer: Engine) -> None:
    class Broken(MemoryConnector):
        def acknowledge(self, *_: Any) -> None:
            msg = "disk full"
            raise OSError(msg)

    with pytest.raises(ConnectorError, match="failed to take an outcome: disk full"):
        consume(consumer, Broken(some(3)))


def test_a_connector_needs_nothing_but_a_fetch(consumer: Engine) -> None:
    class Bare(engines.Connector):
        def __init__(self) -> None:
            self.batches = [some(2), []]

        def fetch_transactions(self, batch_size: int, **extra: Any) -> list[Transaction]:
            return self.batches.pop(0)

    assert consume(consumer, Bare(), batch=2).processed == 2


@pytest.mark.parametrize("raised", [asyncio.CancelledError("mine"), GeneratorExit("mine")])
def test_what_a_connector_raises_is_wrapped_whatever_it_is(consumer: Engine, raised: BaseException) -> None:
    class Odd(MemoryConnector):
        def fetch_transactions(self, batch_size: int, **_: Any) -> Any:
            raise raised

        async def fetch_transactions_async(self, batch_size: int, **_: Any) -> Any:
            raise raised

    with pytest.raises(FetchException, match="mine") as caught:
        consume(consumer, Odd())
    assert caught.value.__cause__ is raised


def wrong_kind(engine: Engine) -> Callable[..., Any]:
    if engine.is_async:
        return lambda _: "a plain value"

    async def coroutine(_: Transaction) -> str:
        return "never awaited"

    return coroutine


def test_a_hook_of_the_wrong_kind_fails_its_transaction_in_words_and_not_the_loop(engine: Engine) -> None:
    task = engine.task(Script())
    task.process_transaction = task.produce_transaction = wrong_kind(engine)
    report = engine.drive(lambda: engine.start(task, some(2), engine.policy(batch=2)))
    assert report.failed == 2
    assert "coroutine" in str(report.failures[0].exception)


def test_a_connectors_own_timeout_is_a_fetch_timeout(consumer: Engine) -> None:
    with pytest.raises(FetchTimeoutException, match="read timed out"):
        consume(consumer, Source([], TimeoutError("read timed out")))


def test_what_running_work_adds_is_done_before_a_loop_that_fetches_ahead_ends(consumer: Engine) -> None:
    class Prefetching(MemoryConnector):
        is_prefetching = True

    source = Prefetching(some(1))

    def work(transaction: Transaction) -> Any:
        if transaction.id != "last":
            time.sleep(0.2)  # the next fetch finds nothing
            source.dispatch_transactions([Transaction("last" if transaction.id == "more" else "more", 1)])
        return "done"

    report = consume(consumer, source, Script(work=work), batch=5, concurrency=2)
    assert (report.stopped_by, report.processed, source.count()) == ("empty", 3, 0)


class Ringing(Source):
    """Says all the time that there is work."""

    def on_arrival(self, callback: Callable[[], None] | None) -> None:
        self.callback = callback
        if callback is not None:
            threading.Thread(target=self._ring, daemon=True).start()

    def _ring(self) -> None:
        while (callback := self.callback) is not None:
            callback()
            time.sleep(0.02)


def test_more_work_ends_the_wait_for_it_and_no_wait_after_a_failure(consumer: Engine) -> None:
    retry = RetryPolicy(max_attempts=2, backoff=0.5)
    report = consume(consumer, Ringing(some(1), OSError("gone")), fetch=FetchPolicy(retry=retry))
    assert report.elapsed >= 0.5
    waits = EmptyQueuePolicy(backoff=30, backoff_cap=30)
    report = consume(consumer, Ringing(some(1), []), streaming=True, limit=1, empty_queue=waits)
    assert report.elapsed < 20


def test_extra_is_that_of_the_policy_in_force(consumer: Engine) -> None:
    class Governed(Source):
        def policy_in_force(self) -> tuple[Any, str]:
            region = "south" if self.asked else "north"
            return consumer.policy(fetch=FetchPolicy(extra={"region": region})), region

    source = Governed([], some(1), [])
    consume(consumer, source, fetch=FetchPolicy(extra={"region": "north"}))
    assert [extra["region"] for _, extra in source.asked] == ["north", "south"]


def test_what_has_the_methods_and_is_no_connector_is_refused_at_the_start(consumer: Engine) -> None:
    class Duck:
        def fetch_transactions(self, batch_size: int) -> list[Transaction]:
            raise AssertionError

        fetch_transactions_async = fetch_transactions

    with pytest.raises(ConnectorError, match=r"Duck is not a connector: derive it from engines\.Connector"):
        consume(consumer, Duck())


def test_coroutines_are_for_async_tasks_and_a_threaded_one_refuses_them_at_the_start(consumer: Engine) -> None:
    class Coroutines(engines.AsyncConnector):
        def __init__(self) -> None:
            self.batches, self.taken = [some(2), []], 0

        async def fetch_transactions_async(self, batch_size: int, **extra: Any) -> list[Transaction]:
            return self.batches.pop(0)

        async def acknowledge_async(self, transaction: Transaction, outcome: Any) -> None:
            self.taken += 1

    source = Coroutines()
    if consumer.is_async:
        assert consume(consumer, source, batch=2).succeeded == source.taken == 2
        return
    with pytest.raises(ConnectorError, match="Coroutines is an AsyncConnector, which a threaded task cannot await"):
        consume(consumer, source)


@pytest.mark.parametrize("method", ["acknowledge", "note"])
def test_a_coroutine_function_under_a_plain_name_is_refused_at_the_start(consumer: Engine, method: str) -> None:
    class Awaited(MemoryConnector):
        pass

    async def never_awaited(*_: Any) -> None: ...

    setattr(Awaited, method, never_awaited)
    source, script = Awaited(some(2)), Script()
    with pytest.raises(ConnectorError, match=rf"Awaited\.{method} is a coroutine function"):
        consume(consumer, source, script)
    assert (source.count(), script.calls) == (2, [])


def test_methods_of_a_task_that_have_the_names_of_an_executors_are_the_authors_own(consumer: Engine) -> None:
    task = consumer.task(Script(), {"own": MemoryConnector(some(2))})
    task.hold = task.halt = lambda order: order
    report = consumer.drive(lambda: consumer.start(task, [], consumer.policy(batch=2)))
    assert report.succeeded == 2


def test_an_async_task_calls_plain_methods_in_a_thread() -> None:
    class Plain(engines.Connector):
        """A connector with plain methods alone."""

        def __init__(self) -> None:
            self.batches, self.called = [some(2), []], set[tuple[str, bool]]()

        def _note(self, method: str) -> None:
            self.called.add((method, threading.current_thread() is threading.main_thread()))

        def fetch_transactions(self, batch_size: int, **extra: Any) -> list[Transaction]:
            self._note("fetch")
            return self.batches.pop(0)

        def begin(self, transaction: Transaction) -> bool:
            self._note("begin")
            return True

        def acknowledge(self, transaction: Transaction, outcome: Any) -> None:
            self._note("acknowledge")

        def flush(self) -> None:
            self._note("flush")

    source = Plain()
    assert consume(Engine(is_consumer=True, is_async=True), source, batch=2).succeeded == 2
    assert source.called == {("fetch", False), ("begin", False), ("acknowledge", False), ("flush", False)}


def test_what_a_plain_fetch_brings_after_an_async_task_gave_up_on_it_is_given_back() -> None:
    gate = threading.Event()

    class Late(MemoryConnector):
        fetch_transactions_async = engines.Connector.fetch_transactions_async  # type: ignore[assignment]

        def fetch_transactions(self, batch_size: int, **extra: Any) -> list[Transaction]:
            batch = super().fetch_transactions(batch_size)
            gate.wait(FOREVER)
            return batch

    source = Late(some(3))

    async def both() -> None:
        engine = Engine(is_consumer=True, is_async=True)
        policy = engine.policy(batch=3, fetch=FetchPolicy(retry=RetryPolicy(timeout=0.05)))
        with pytest.raises(FetchTimeoutException):
            await engine.start(engine.task(Script(), {"late": source}), [], policy)
        gate.set()
        while source.count() < 3:  # noqa: ASYNC110 (a thread gives them back)
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(both(), SLACK))


def test_a_producer_takes_its_transactions_from_a_connector_and_tells_it_what_came_of_each(producer: Engine) -> None:
    source = MemoryConnector(some(5))
    task = producer.task(Script(work=lambda one: OSError("gone") if one.id == "t1" else "done"))
    report = producer.drive(lambda: producer.start(task, source, producer.policy(batch=2, concurrency=2)))
    assert (report.succeeded, report.failed, report.stopped_by, source.count()) == (4, 1, "empty", 0)
    assert {uid for uid, _ in source.outcomes} == {"t0", "t1", "t2", "t3", "t4"}


def test_a_list_with_methods_of_a_connector_is_refused_at_the_start(producer: Engine) -> None:
    class Batch(list[Transaction]):
        def acknowledge(self, *_: Any) -> None: ...

    with pytest.raises(ConnectorError, match=r"Batch is not a connector: derive it from engines\.Connector"):
        producer.run(Script(), Batch(some(2)))
