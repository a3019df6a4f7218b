"""Three limits that never add up: of an attempt, of a transaction, of the loop."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import engines
from engines import (
    ConsumerLoopTimeout,
    ExceptionType,
    ProducerLoopTimeout,
    RetryPolicy,
    Transaction,
    TransactionException,
    run_with_timeout,
    run_with_timeout_async,
)
from engines.connectors.memory import MemoryConnector
from engines.drivers.timeouts import Abandoned, SpareThread
from engines.drivers.watcher import SupersededError, WatchedCall
from tests.conformance.harness import FOREVER, SLACK, Engine, Pause, Script, Until, some
from tests.processes import LIMIT, eventually

SYSTEM = TransactionException("unreachable", ExceptionType.SYSTEM)
BUSINESS = TransactionException("no", ExceptionType.BUSINESS)


def took(started: float) -> float:
    return time.monotonic() - started


def test_an_attempt_that_never_returns_is_given_up_in_time_and_is_timeout(engine: Engine) -> None:
    script = Script(work=Pause(FOREVER))
    report = engine.run(script, some(1), work=RetryPolicy(timeout=0.1))
    assert 0.1 <= report.elapsed < 0.1 + SLACK
    (given,) = script.arguments("exception")
    assert given.category is ExceptionType.TIMEOUT
    assert "0.1 s" in str(given)


def test_a_limit_is_kept_within_50_ms(engine: Engine) -> None:
    limited = RetryPolicy(timeout=0.1)
    took = (engine.run(Script(work=Pause(FOREVER)), some(1), work=limited).elapsed for _ in range(50))
    # A busy machine may let a thread wait for longer than that, but not every time.
    assert any(0.1 <= elapsed < 0.15 for elapsed in took), "not once in fifty times"


def test_a_timeout_is_retried_until_the_attempts_run_out(engine: Engine) -> None:
    script = Script(work=Pause(FOREVER))
    report = engine.run(script, some(1), work=RetryPolicy(max_attempts=3, timeout=0.05))
    assert script.stages() == ["work", "work", "work", "exception"]
    assert report.elapsed < 0.15 + 2 * SLACK


def test_the_limit_is_of_each_attempt_not_of_all_together(engine: Engine) -> None:
    for limit in (2, 20):  # the second for a machine that stood still
        answers = iter([*[Pause(limit / 4, SYSTEM)] * 4, Pause(limit / 4, "done")])
        script = Script(work=lambda _, answers=answers: next(answers))
        report = engine.run(script, some(1), work=RetryPolicy(max_attempts=5, timeout=limit))
        if report.succeeded:
            break
    assert report.succeeded == 1
    assert report.elapsed > limit


@pytest.mark.parametrize("stage", ["success", "exception"])
def test_handlers_have_limits_of_their_own(engine: Engine, stage: str) -> None:
    script = Script(work=BUSINESS if stage == "exception" else "done")
    setattr(script, stage, Pause(FOREVER))
    report = engine.run(script, some(1), **{stage: RetryPolicy(timeout=0.1, max_attempts=2)})
    assert script.stages().count(stage) == 2
    assert report.failed == 1
    assert report.elapsed < 0.2 + 2 * SLACK


def test_a_success_handler_that_is_too_slow_is_timeout_for_the_exception_handler(engine: Engine) -> None:
    script = Script(success=Pause(FOREVER))
    engine.run(script, some(1), success=RetryPolicy(timeout=0.05))
    assert script.arguments("exception")[0].category is ExceptionType.TIMEOUT


def test_a_late_result_is_seen_by_nobody(engine: Engine) -> None:
    answers = iter([Until(lambda: script.stages().count("work") == 2, "late"), "in time"])
    script = Script(work=lambda _: next(answers), success=Pause(0.5))
    report = engine.run(script, some(1), work=RetryPolicy(max_attempts=2, timeout=0.5))
    assert script.arguments("success") == ["in time"]
    assert report.succeeded == 1


def test_a_slow_transaction_is_cut_tried_no_more_and_its_exception_handler_runs_once(engine: Engine) -> None:
    script = Script(work=Pause(FOREVER))
    report = engine.run(script, some(1), work=RetryPolicy(max_attempts=5), transaction_timeout=1)
    assert script.stages() == ["work", "exception"]
    (given,) = script.arguments("exception")
    assert (given.category, str(given)) == (ExceptionType.TIMEOUT, "the transaction timed out after 1 s")
    assert 1 <= report.elapsed < 1 + SLACK


def test_retries_and_waits_count_against_the_transactions_time(engine: Engine) -> None:
    for backoff in (0.3, 3.0):  # the second for a machine that stood still
        script = Script(work=SYSTEM)
        retry = RetryPolicy(max_attempts=100, backoff=backoff, backoff_multiplier=1)
        report = engine.run(script, some(1), work=retry, transaction_timeout=4.5 * backoff)
        if script.stages().count("work") >= 2:
            break
    assert 2 <= script.stages().count("work") <= 5
    assert script.stages()[-1] == "exception"
    assert report.elapsed < 4.5 * backoff + SLACK
    assert script.arguments("exception")[0].__cause__ is SYSTEM


def test_after_the_transactions_time_the_exception_handler_has_time_of_its_own(engine: Engine) -> None:
    script = Script(work=Pause(FOREVER), exception=Pause(0.2))
    report = engine.run(script, some(1), transaction_timeout=1, exception=RetryPolicy(timeout=5))
    assert script.stages() == ["work", "exception"]
    assert str(report.failures[0].exception) == "the transaction timed out after 1 s"


def test_an_exception_handler_that_runs_already_is_cut_and_not_run_again(engine: Engine) -> None:
    script = Script(work=BUSINESS, exception=Pause(FOREVER))
    # Time enough for the handler to begin in it: one that cannot has its own, which is longer.
    report = engine.run(script, some(1), transaction_timeout=1, exception=RetryPolicy(max_attempts=5, timeout=10))
    assert script.stages() == ["work", "exception"]
    assert report.elapsed < 1 + SLACK
    assert report.failed == 1


def test_every_transaction_has_its_own_time(engine: Engine) -> None:
    for timeout in (2, 20):  # the second on a machine that has stood still for that long
        report = engine.run(Script(work=Pause(timeout / 4, "done")), some(5), batch=5, transaction_timeout=timeout)
        assert report.elapsed > timeout
        if report.succeeded == 5:
            break
    assert report.succeeded == 5


def test_a_loop_whose_time_is_up_raises_with_the_report_and_runs_no_handler_for_what_is_cut(engine: Engine) -> None:
    error: Any = ConsumerLoopTimeout if engine.is_consumer else ProducerLoopTimeout
    for timeout in (1, 10):  # the second for a machine that stood still
        script = Script(work=lambda transaction: "done" if transaction.id == "t0" else Pause(FOREVER))
        started = time.monotonic()
        with pytest.raises(error) as caught:
            engine.run(script, some(4), batch=4, concurrency=2, timeout=timeout)
        assert took(started) < timeout + SLACK
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, error)
        assert "exception" not in script.stages()
        if caught.value.report.succeeded == 1:
            break
    assert (caught.value.report.processed, caught.value.report.succeeded) == (1, 1)


def test_what_a_loop_timeout_cuts_is_given_back_once_it_has_ended(consumer: Engine) -> None:
    for timeout in (0.1, 1.0, 5.0):  # in which two have begun, also on a machine that has no time
        connector, gate = MemoryConnector(some(5)), threading.Event()
        script = Script(work=Until(gate.is_set))
        with pytest.raises(ConsumerLoopTimeout):
            consumer.run(script, [], connectors={"memory": connector}, batch=4, concurrency=2, timeout=timeout)
        if len(script.stages()) == 2:
            break
        gate.set()
    # A coroutine has ended, as it was cancelled. A thread runs on, and the next loop must not find its transaction.
    assert connector.count() == (5 if consumer.is_async else 3)
    gate.set()
    eventually(lambda: connector.count() == 5, "all are given back")
    assert connector.outcomes == []


class Hanging(MemoryConnector):
    """Takes its time to take anything."""

    def __init__(self, transactions: list[Transaction], *, hangs: str) -> None:
        super().__init__(transactions)
        self.hangs = hangs
        self.is_over = threading.Event()

    def _hang(self, where: str) -> bool:
        if where == self.hangs:
            self.is_over.wait(FOREVER)
        return True

    def begin(self, _: Transaction) -> bool:
        return self._hang("begin")

    def acknowledge(self, transaction: Transaction, outcome: Any) -> None:
        self._hang("acknowledge")
        super().acknowledge(transaction, outcome)

    def release(self, transactions: Any) -> None:
        self._hang("release")
        super().release(transactions)

    async def _hang_async(self, where: str) -> bool:
        if where == self.hangs:
            await asyncio.sleep(FOREVER)
        return True

    async def begin_async(self, _: Transaction) -> bool:
        return await self._hang_async("begin")

    async def acknowledge_async(self, transaction: Transaction, outcome: Any) -> None:
        await self._hang_async("acknowledge")
        super().acknowledge(transaction, outcome)

    async def release_async(self, transactions: Any) -> None:
        await self._hang_async("release")
        super().release(transactions)


@pytest.mark.parametrize("where", ["begin", "acknowledge", "release"])
def test_a_connector_that_hangs_does_not_hold_a_loop_whose_time_is_up(
    consumer: Engine, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.drivers.run.GIVING_BACK", 0.3)  # five seconds are long for a test
    work = Pause(FOREVER) if where == "release" else "done"
    connector = Hanging(some(1), hangs=where)
    started = time.monotonic()
    with pytest.raises(ConsumerLoopTimeout):
        consumer.run(Script(work=work), [], connectors={"m": connector}, timeout=0.3)
    assert took(started) < 0.3 + 0.3 + SLACK
    connector.is_over.set()


def test_a_loop_that_ends_in_time_does_not_raise(engine: Engine) -> None:
    assert engine.run(Script(), some(3), timeout=5).succeeded == 3


def test_a_waiting_streaming_loop_ends_in_time_too(consumer: Engine) -> None:
    started = time.monotonic()
    with pytest.raises(ConsumerLoopTimeout):
        consumer.run(Script(), some(2), streaming=True, timeout=0.2)
    assert took(started) < 0.2 + SLACK


def test_a_handler_can_see_how_much_time_is_left(engine: Engine) -> None:
    def work(_: Transaction) -> Any:
        attempt = engines.current_attempt()
        return (attempt.step, attempt.number, attempt.of, attempt.remaining)

    script = Script(work=work)
    engine.run(script, some(1), work=RetryPolicy(max_attempts=3, timeout=60))
    ((step, number, of, remaining),) = script.arguments("success")
    assert (step, number, of) == (engine.work, 1, 3)
    assert 50 < remaining <= 60
    script = Script(work=work)
    engine.run(script, some(1))
    assert script.arguments("success")[0][3] is None


def test_outside_an_engine_there_is_one_attempt_without_a_limit() -> None:
    assert engines.current_attempt().remaining is None
    assert engines.current_attempt().number == 1


def test_a_handler_that_never_returns_does_not_hold_up_the_others(engine: Engine) -> None:
    script = Script(work=lambda transaction: Pause(FOREVER) if transaction.id == "t1" else "done")
    report = engine.run(script, some(6), work=RetryPolicy(timeout=1), batch=2)
    assert (report.succeeded, report.failed) == (5, 1)


def test_a_nested_limit_is_not_mistaken_for_the_engines_own() -> None:
    class Nested(engines.ProducerTask):
        def produce_transaction(self, transaction: Transaction) -> Any:
            return run_with_timeout(time.sleep, 0.05, FOREVER)

        def handle_produce_exception(self, transaction: Transaction, exc: Exception) -> None:
            self.given = exc

    task = Nested()
    task.produce_transactions(some(1), Engine(is_consumer=False, is_async=False).policy(work=RetryPolicy(timeout=5)))
    assert isinstance(task.given, TransactionException)
    assert task.given.category is ExceptionType.SYSTEM


def test_run_with_timeout_returns_raises_or_gives_up() -> None:
    assert run_with_timeout(pow, LIMIT, 2, 5) == 32
    assert run_with_timeout(pow, None, 2, 5) == 32
    with pytest.raises(ZeroDivisionError):
        run_with_timeout(divmod, LIMIT, 1, 0)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        run_with_timeout(time.sleep, 0.1, FOREVER)
    assert took(started) < 0.1 + SLACK


def test_a_result_that_comes_too_late_can_still_be_caught() -> None:
    late: list[Any] = []

    def slow() -> str:
        is_given_up.wait(SLACK)
        return "late"

    is_given_up = threading.Event()
    with pytest.raises(TimeoutError):
        run_with_timeout(slow, 0.02, late=late.append)
    is_given_up.set()
    eventually(lambda: late == ["late"], "the late result")


@settings(max_examples=20)
@given(races=st.lists(st.tuples(st.integers(1, 20), st.integers(-3, 3)), min_size=1, max_size=16))
def test_a_call_that_ends_just_at_its_limit_is_in_time_or_late_and_never_both(races: list[tuple[int, int]]) -> None:
    ends: list[list[str]] = [[] for _ in races]
    abandoned, start = Abandoned(), threading.Barrier(len(races))

    def race(seen: list[str], limit: int, later: int) -> None:
        start.wait()
        duration = max(0.0, (limit + later) / 1000)
        call = WatchedCall(lambda: time.sleep(duration), limit / 1000, abandoned, lambda _: seen.append("superseded"))
        try:
            call.run(copy_context(), ())
            seen.append("in time")
        except SupersededError:
            seen.append("left")

    threads = [threading.Thread(target=race, args=[seen, *about]) for seen, about in zip(ends, races, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: all(len(seen) == 1 + ("left" in seen) for seen in ends), "those in place of others went on")
    assert all(sorted(seen) in (["in time"], ["left", "superseded"]) for seen in ends)
    assert abandoned.count == 0


def test_where_no_thread_can_be_had_a_late_call_is_abandoned_as_soon_as_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusals, take = iter([RuntimeError("can't start new thread")]), SpareThread.take

    def scarce() -> SpareThread:
        for refusal in refusals:
            raise refusal
        return take()

    monkeypatch.setattr(SpareThread, "take", scarce)
    abandoned, superseded, may_end = Abandoned(), threading.Event(), threading.Event()
    call = WatchedCall(lambda: may_end.wait(FOREVER), 0.01, abandoned, lambda _: superseded.set())
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(call.run, copy_context(), ())
        assert superseded.wait(FOREVER)
        assert abandoned.count == 1
        may_end.set()
        assert isinstance(late.exception(), SupersededError)
    assert abandoned.count == 0


@settings(max_examples=10)
@given(laters=st.lists(st.integers(-4, 4), min_size=4, max_size=24))
def test_a_transaction_that_ends_just_at_its_limit_has_one_outcome(laters: list[int]) -> None:
    limit = 0.02
    for engine in (Engine(is_consumer=True, is_async=False), Engine(is_consumer=True, is_async=True)):
        script = Script(work=lambda transaction: Pause(limit + laters[int(transaction.id[1:]) - 1] / 1000))
        report = engine.run(script, some(len(laters)), work=RetryPolicy(timeout=limit), batch=8)
        assert report.succeeded + report.failed == len(laters)
        ended = sorted(name for stage, name, _ in script.calls if stage != "work")
        assert ended == sorted(transaction.id for transaction in some(len(laters)))


def test_run_with_timeout_async_returns_raises_or_gives_up() -> None:
    async def double(number: int) -> int:
        return number * 2

    async def stubborn() -> None:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            try:
                await asyncio.sleep(0.3)
            except asyncio.CancelledError:
                continue

    async def all_of_it() -> None:
        assert await run_with_timeout_async(double, 1.0, 4) == 8
        assert await run_with_timeout_async(double, None, 4) == 8
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            await run_with_timeout_async(asyncio.sleep, 0.1, FOREVER)
        with pytest.raises(TimeoutError):
            await run_with_timeout_async(stubborn, 0.1)
        assert took(started) < 0.2 + 2 * SLACK
        with pytest.raises(TypeError, match="coroutine function"):
            await run_with_timeout_async(pow, 1.0, 2, 3)

    asyncio.run(all_of_it())
