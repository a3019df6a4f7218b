"""What must not wedge a loop, lose a transaction or tell of it twice."""

import asyncio
import io
import os
import pickle
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

import engines
from engines import (
    ConsumerLoopTimeout,
    EmptyQueuePolicy,
    ExceptionType,
    FetchException,
    FetchPolicy,
    FetchTimeoutException,
    RetryPolicy,
    Transaction,
    TransactionException,
)
from engines.connectors.jsonlines import JsonLinesConnector
from engines.connectors.memory import MemoryConnector
from tests.broken_errors import Hollow, MuteError, UnsureError
from tests.conformance.harness import FOREVER, SLACK, Engine, Pause, Script, Until, some
from tests.processes import eventually

SYSTEM = TransactionException("unreachable", ExceptionType.SYSTEM)
THREADS = Engine(is_consumer=True, is_async=False)
ASYNCIO = Engine(is_consumer=True, is_async=True)
# How long a slow connector takes: time to be interrupted in it, also on a busy machine.
SLOW = 1.5


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the suite itself was started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("raised", [MuteError(), Hollow(), UnsureError()])
@pytest.mark.parametrize("stage", ["work", "success", "exception"])
def test_an_error_that_is_broken_itself_is_a_failure_like_any_other(
    engine: Engine, stage: str, raised: Exception
) -> None:
    script = Script(work=SYSTEM if stage == "exception" else "done")
    setattr(script, stage, raised)
    report = engine.run(script, some(2), batch=2)
    assert report.failed == 2
    assert type(raised).__name__ in repr(report.failures[0].exception)


def test_an_exception_handler_whose_turn_comes_after_the_transactions_time_runs_all_the_same(engine: Engine) -> None:
    def work(_: Transaction) -> Any:
        time.sleep(1)  # blocks the event loop too, so that no limit can cut it there
        return TransactionException("no", ExceptionType.BUSINESS)

    script = Script(work=work)
    engine.run(script, some(1), transaction_timeout=0.999)
    assert script.stages() == ["work", "exception"]


def test_the_failure_before_the_transactions_time_was_up_is_kept_as_the_cause(engine: Engine) -> None:
    answers = iter([SYSTEM, Pause(FOREVER)])
    script = Script(work=lambda _: next(answers))
    engine.run(script, some(1), work=RetryPolicy(max_attempts=2), transaction_timeout=1)
    assert script.arguments("exception")[0].__cause__ is SYSTEM


class Slow(MemoryConnector):
    """Takes its time over what it does; `busy` says how often it has begun to."""

    def __init__(self, transactions: list[Transaction]) -> None:
        super().__init__(transactions)
        self.busy = 0

    def interrupt_at(self, times: int) -> None:
        """Interrupt this process as a person does, when it has begun so often."""

        def wait_and_kill() -> None:
            eventually(lambda: self.busy == times, "it has begun")
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=wait_and_kill).start()


class SlowToSettle(Slow):
    def acknowledge(self, transaction: Transaction, outcome: Any) -> None:
        self.busy += 1
        time.sleep(SLOW)
        super().acknowledge(transaction, outcome)

    async def acknowledge_async(self, transaction: Transaction, outcome: Any) -> None:
        self.busy += 1
        await asyncio.sleep(SLOW)
        MemoryConnector.acknowledge(self, transaction, outcome)


@pytest.mark.usefixtures("_interruptible")
def test_what_is_being_acknowledged_when_a_person_interrupts_is_not_given_back_too() -> None:
    source = SlowToSettle(some(4))
    source.interrupt_at(2)
    with pytest.raises(KeyboardInterrupt):
        THREADS.run(Script(), [], connectors={"m": source}, batch=4, concurrency=2)
    eventually(lambda: len(source.outcomes) == 2, "both are settled")
    assert sorted(name for name, _ in source.outcomes) == ["t0", "t1"]
    assert source.count() == 2


def test_what_is_being_acknowledged_when_the_loop_is_cancelled_is_not_given_back_too() -> None:
    source = SlowToSettle(some(4))

    async def cancel() -> None:
        policy = ASYNCIO.policy(batch=4, concurrency=2)
        running = asyncio.ensure_future(ASYNCIO.start(ASYNCIO.task(Script(), {"m": source}), [], policy))
        await asyncio.to_thread(eventually, lambda: source.busy == 2, "it has begun")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.to_thread(eventually, lambda: len(source.outcomes) == 2, "both are settled")

    asyncio.run(cancel())
    assert sorted(name for name, _ in source.outcomes) == ["t0", "t1"]
    assert source.count() == 2


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupted_fetch_loses_nothing() -> None:
    class SlowToFetch(Slow):
        def fetch_transactions(self, batch_size: int, **_: Any) -> Any:
            batch = super().fetch_transactions(batch_size)
            self.busy += 1
            time.sleep(SLOW)
            return batch

    source = SlowToFetch(some(3))
    source.interrupt_at(1)
    with pytest.raises(KeyboardInterrupt):
        THREADS.run(Script(), [], connectors={"m": source}, batch=3, fetch=FetchPolicy(retry=RetryPolicy(timeout=5)))
    eventually(lambda: source.count() == 3, "they are back")


@pytest.mark.usefixtures("_interruptible")
def test_a_fetch_that_ends_as_it_is_interrupted_loses_nothing() -> None:
    class Interrupted(MemoryConnector):
        def fetch_transactions(self, batch_size: int, **_: Any) -> Any:
            batch = super().fetch_transactions(batch_size)
            # The main thread hears of it once it has waited for this one.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            return batch

    source = Interrupted(some(3))
    with pytest.raises(KeyboardInterrupt):
        THREADS.run(Script(), [], connectors={"m": source}, batch=3, fetch=FetchPolicy(retry=RetryPolicy(timeout=60)))
    assert source.count() == 3


@pytest.mark.parametrize("kind", [deque, iter, tuple])
def test_too_many_in_anything_are_given_back(consumer: Engine, kind: Any) -> None:
    class Generous(MemoryConnector):
        def fetch_transactions(self, batch_size: int, **_: Any) -> Any:
            return kind(super().fetch_transactions(5))

    source = Generous(some(5))
    with pytest.raises(FetchException, match="5 transactions where at most 2"):
        consumer.run(Script(), [], connectors={"m": source}, batch=2)
    assert source.count() == 5


def test_a_fetch_that_fails_midway_gives_back_what_it_brought(consumer: Engine) -> None:
    class Failing(MemoryConnector):
        def fetch_transactions(self, batch_size: int, **_: Any) -> Any:
            yield from super().fetch_transactions(2)
            msg = "cut off"
            raise OSError(msg)

    source = Failing(some(2))
    with pytest.raises(FetchException, match="cut off"):
        consumer.run(Script(), [], connectors={"m": source}, batch=5)
    assert source.count() == 2


def test_a_loop_whose_time_is_up_while_it_drains_says_so(consumer: Engine) -> None:
    class Prefetching(MemoryConnector):
        is_prefetching = True

    source, gate = Prefetching(some(2)), threading.Event()
    script = Script(work=Until(gate.is_set))
    with pytest.raises(ConsumerLoopTimeout):
        consumer.run(script, [], connectors={"m": source}, batch=2, concurrency=2, timeout=0.15)
    gate.set()
    eventually(lambda: source.count() == 2, "both are given back")


def test_a_hanging_fetch_is_retried_in_a_stream_too(consumer: Engine) -> None:
    asked: list[int] = []

    class Hanging(MemoryConnector):
        def fetch_transactions(self, batch_size: int, **_: Any) -> Any:
            asked.append(batch_size)
            time.sleep(FOREVER)

        async def fetch_transactions_async(self, batch_size: int, **_: Any) -> Any:
            asked.append(batch_size)
            await asyncio.sleep(FOREVER)

    for timeout in (0.05, 5):  # the second for a machine that stood still
        asked.clear()
        fetch = FetchPolicy(retry=RetryPolicy(max_attempts=3, timeout=timeout))
        with pytest.raises(FetchTimeoutException):
            consumer.run(Script(), [], connectors={"m": Hanging()}, streaming=True, fetch=fetch)
        if len(asked) == 3:
            break
    assert len(asked) == 3


def test_redelivered_twins_do_not_make_a_prefetching_loop_fetch_without_end(consumer: Engine) -> None:
    class Repeating(MemoryConnector):
        is_prefetching = True
        fetches = 0

        def fetch_transactions(self, batch_size: int, **_: Any) -> Any:
            self.fetches += 1
            return [Transaction("same", self.fetches)]

    source = Repeating()
    with pytest.raises(ConsumerLoopTimeout):
        consumer.run(Script(work=Pause(0.5)), [], connectors={"m": source}, concurrency=2, streaming=True, timeout=0.2)
    assert source.fetches <= 5


def test_an_async_stream_that_does_not_wait_still_lets_others_run() -> None:
    async def both() -> Any:
        task = ASYNCIO.task(Script(), {"m": MemoryConnector()})
        policy = ASYNCIO.policy(streaming=True, empty_queue=EmptyQueuePolicy(backoff=0))
        asyncio.get_running_loop().call_later(0.1, task.stop)
        return await ASYNCIO.start(task, [], policy)

    assert asyncio.run(both()).stopped_by == "stopped"


@pytest.mark.parametrize("raised", [SystemExit(2), KeyboardInterrupt()])
def test_what_a_connector_raises_in_a_thread_is_no_order_to_end_the_process(
    raised: BaseException,
) -> None:
    class Leaving(MemoryConnector):
        def acknowledge(self, *_: Any) -> None:
            raise raised

    with pytest.raises(engines.ConnectorError, match="failed to take an outcome"):
        THREADS.run(Script(), [], connectors={"m": Leaving(some(3))}, batch=3)


def test_a_loop_ended_by_its_connector_still_reports(consumer: Engine) -> None:
    class Broken(MemoryConnector):
        def acknowledge(self, transaction: Transaction, outcome: Any) -> None:
            if transaction.id == "t2":
                msg = "disk full"
                raise OSError(msg)

    with pytest.raises(engines.ConnectorError) as caught:
        consumer.run(Script(), [], connectors={"m": Broken(some(5))}, batch=5)
    assert caught.value.report is not None
    assert caught.value.report.processed == 3


def test_a_producer_does_the_good_ones_before_it_tells_that_its_input_failed(producer: Engine) -> None:
    def failing() -> Iterator[Transaction]:
        yield from some(14)
        msg = "no more"
        raise OSError(msg)

    script = Script()
    with pytest.raises(OSError, match="no more"):
        producer.run(script, failing(), batch=10)
    assert script.stages().count("success") == 14


def test_stop_is_heard_while_waiting_for_the_abandoned() -> None:
    task = THREADS.task(Script(work=Pause(FOREVER)), {"m": MemoryConnector(some(4))})
    threading.Timer(0.3, task.stop).start()
    policy = THREADS.policy(work=RetryPolicy(timeout=0.05), streaming=True)
    report = THREADS.start(task, [], policy)
    assert report.stopped_by == "stopped"
    assert report.elapsed < 0.3 + SLACK


@pytest.mark.usefixtures("_interruptible")
def test_a_backoff_does_not_keep_an_interrupted_loops_slots() -> None:
    retry, script = RetryPolicy(max_attempts=2, backoff=FOREVER), Script(work=SYSTEM)

    def interrupt() -> None:
        eventually(lambda: script.stages() == ["work"], "it waits for its second attempt")
        os.kill(os.getpid(), signal.SIGINT)

    before = set(threading.enumerate())
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        THREADS.run(script, some(1), work=retry)
    eventually(
        lambda: not any(one.name.startswith("ergon-Threaded") for one in set(threading.enumerate()) - before),
        "the slots to end",
    )


def test_a_policy_of_the_wrong_kind_is_refused_in_words(engine: Engine) -> None:
    wrong = engines.ProducerPolicy() if engine.is_consumer else engines.ConsumerPolicy()
    with pytest.raises(TypeError, match=r"takes a \w+Policy, not \w+Policy"):
        engine.drive(lambda: engine.start(engine.task(Script()), some(1), wrong))


def test_a_slow_line_is_not_lost_to_a_fetch_that_gave_up() -> None:
    class Pipe(io.StringIO):
        def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
            time.sleep(0.1)
            return super().readline(size if size is not None else -1)

    for engine in (THREADS, ASYNCIO):
        lines = "".join(f'{{"id": "{number}", "payload": 1}}\n' for number in range(3))
        source = JsonLinesConnector(Pipe(lines))
        fetch = FetchPolicy(retry=RetryPolicy(timeout=0.25, max_attempts=20))
        report = engine.run(Script(), [], connectors={"lines": source}, batch=3, fetch=fetch)
        left = report.processed

        def all_are_there(source: Any = source) -> bool:
            nonlocal left
            left += len(source.fetch_transactions(10))
            return left == 3

        eventually(all_are_there, "each line is fetched once")


def test_a_loop_timeout_survives_pickling() -> None:
    with pytest.raises(ConsumerLoopTimeout) as caught:
        THREADS.run(Script(), [], connectors={"m": MemoryConnector()}, streaming=True, timeout=0.05)
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 (our own bytes)
    assert copy.report == caught.value.report
    assert str(copy) == str(caught.value)


@pytest.mark.parametrize("kind", ["generator", "awaitable"])
def test_what_a_handler_returns_and_nobody_would_run_is_a_failure(engine: Engine, kind: str) -> None:
    class Later:
        def __await__(self) -> Iterator[None]:
            yield

    def steps() -> Iterator[int]:
        yield 1

    report = engine.run(Script(work=lambda _: steps() if kind == "generator" else Later()), some(1))
    assert report.failed == 1
    said = str(report.failures[0].exception)
    assert said.startswith("the process handler" if engine.is_consumer else "the produce handler")
    assert ("returned a generator, which is never run" if kind == "generator" else "returned a Later") in said


def test_a_flush_that_hangs_ends_with_the_loops_time(consumer: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(MemoryConnector):
        def flush(self) -> None:
            time.sleep(FOREVER)

        async def flush_async(self) -> None:
            await asyncio.sleep(FOREVER)

    monkeypatch.setattr("engines.drivers.run.GIVING_BACK", 0.05)
    for timeout in (0.5, 5):  # the second for a machine that stood still
        source = Hanging(some(2))
        with pytest.raises((ConsumerLoopTimeout, engines.ConnectorError)):
            consumer.run(Script(), [], connectors={"m": source}, batch=2, timeout=timeout)
        if len(source.outcomes) == 2:
            break
    assert len(source.outcomes) == 2


def test_a_source_that_hangs_ends_with_the_loops_time(producer: Engine) -> None:
    def succeeded(timeout: float) -> int:
        is_over = threading.Event()

        def source() -> Iterator[Transaction]:
            yield from some(2)
            is_over.wait(timeout + SLACK)

        task, policy = producer.task(Script()), producer.policy(batch=2, timeout=timeout)
        try:
            with pytest.raises(engines.ProducerLoopTimeout) as caught:
                producer.drive(lambda: producer.start(task, source(), policy))
        finally:
            is_over.set()
        assert caught.value.report is not None
        return caught.value.report.succeeded

    # The second for a machine that stood still.
    assert any(succeeded(timeout) == 2 for timeout in (0.5, 5))


def test_if_the_exception_handler_fails_the_original_failure_is_kept_as_well(engine: Engine) -> None:
    report = engine.run(Script(work=ValueError("no such order"), exception=OSError("no mail")), some(1))
    [(_, error)] = report.failures
    assert "no mail" in str(error)
    said = "".join(traceback.format_exception(error))
    assert "no such order" in said
    assert "no mail" in said


def test_an_exception_handler_that_hangs_after_the_transactions_time_has_a_limit(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.drivers.attempts.LAST_WORDS", 0.2)
    script = Script(work=Pause(FOREVER), exception=Pause(FOREVER))
    report = engine.run(script, some(1), transaction_timeout=0.1)
    assert str(report.failures[0].exception) == "exception attempt timed out after 0.2 s"
    assert report.elapsed < SLACK


def test_what_an_abandoned_attempt_raises_in_the_end_is_logged() -> None:
    gate = threading.Event()

    def late(_: Transaction) -> None:
        gate.wait(SLACK)
        msg = "the account is locked"
        raise OSError(msg)

    task = THREADS.task(Script(), {"m": MemoryConnector(some(1))})
    task.process_transaction = late
    with capture_logs() as logged:
        assert THREADS.start(task, [], THREADS.policy(work=RetryPolicy(timeout=0.05))).failed == 1
        gate.set()
        eventually(lambda: bool(logged), "it is logged")
    assert (logged[0]["event"], logged[0]["error_type"]) == ("abandoned_call_failed", "OSError")
    assert "the account is locked" in logged[0]["error"]


def test_a_second_fault_of_a_connector_is_logged() -> None:
    class Broken(MemoryConnector):
        def acknowledge(self, *_: Any) -> None:
            msg = "no outcomes"
            raise OSError(msg)

        def flush(self) -> None:
            msg = "no flush"
            raise OSError(msg)

    with capture_logs() as logged, pytest.raises(engines.ConnectorError, match="no outcomes"):
        THREADS.run(Script(), [], connectors={"m": Broken(some(1))})
    assert [(one["event"], one["error"]) for one in logged] == [
        ("another_fault", "the connector failed to keep outcomes: no flush")
    ]


@pytest.mark.parametrize("raised", [MuteError(), UnsureError()])
@pytest.mark.parametrize("method", ["fetch_transactions", "acknowledge", "flush", "release"])
def test_a_broken_error_of_a_connector_is_told_like_any_other(method: str, raised: Exception) -> None:
    class Broken(MemoryConnector):
        pass

    def fail(*_: Any, **__: Any) -> None:
        raise raised

    setattr(Broken, method, fail)
    source = Broken(some(3))
    task = THREADS.task(Script(), {"m": source})
    if method == "release":
        task.script = Script(work=lambda _: task.stop())
    with pytest.raises(engines.EngineError, match=type(raised).__name__):
        THREADS.start(task, [], THREADS.policy(batch=3))
