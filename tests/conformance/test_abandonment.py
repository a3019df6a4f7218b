"""Attempts that do not end: how many of them a worker bears, for how long, and what becomes of the rest."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from engines import AbandonedAttemptsError, RetryPolicy, Transaction
from engines.connectors.memory import MemoryConnector
from engines.worker.event_loop import EventLoop
from tests.conformance.harness import SLACK, Engine, Script, some
from tests.processes import eventually

# Until then nothing that hangs ends by itself; a test that is over lets go of it.
HANGING = 30.0


class Prefetching(MemoryConnector):
    is_prefetching = True


class Hook:
    """A hook that hangs, whatever is done to it, until it is let go."""

    def __init__(self, *hanging: str) -> None:
        self.hanging, self.begun, self.begun_meanwhile = hanging, [""][:0], [""][:0]
        self.is_over = threading.Event()

    def _begin(self, transaction: Transaction) -> bool:
        """Whether it hangs."""
        self.begun.append(transaction.id)
        if not self.is_over.is_set():
            self.begun_meanwhile.append(transaction.id)
        return transaction.id in self.hanging or not self.hanging

    def work(self, transaction: Transaction) -> str:
        if self._begin(transaction):
            self.is_over.wait(HANGING)
        return "done"

    async def work_async(self, transaction: Transaction) -> str:
        until, hangs = time.monotonic() + HANGING, self._begin(transaction)
        while hangs and not self.is_over.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                if time.monotonic() > until:
                    raise
        return "done"

    def given_to(self, task: Any, engine: Engine) -> Any:
        task.process_transaction = task.produce_transaction = self.work_async if engine.is_async else self.work
        return task


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.is_over.set()


@pytest.fixture
def run(hook: Hook) -> Iterator[Callable[[Any], Any]]:
    """Runs a loop to its end, and waits for nothing that it leaves behind."""
    event_loop = EventLoop()
    yield lambda running: event_loop.run(running) if inspect.iscoroutine(running) else running
    hook.is_over.set()
    event_loop.close()


@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_worker_full_of_them_begins_nothing_more_and_ends_when_its_grace_is_over(
    consumer: Engine,
    hook: Hook,
    run: Callable[[Any], Any],
    is_streaming: bool,  # noqa: FBT001 (a case)
) -> None:
    connector = Prefetching(some(40))
    task = hook.given_to(consumer.task(Script(), {"m": connector}), consumer)
    task.abandoned_grace, task.cancel_grace, task.pipeline_name = 0.5, 0.0, "orders"
    retry = RetryPolicy(max_attempts=3, timeout=0.2, backoff=2 * SLACK)
    policy = consumer.policy(work=retry, concurrency=2, batch=10, streaming=is_streaming)
    with pytest.raises(AbandonedAttemptsError, match=r"2 abandoned attempts have not ended within 0\.5 s") as caught:
        run(consumer.start(task, [], policy))
    assert caught.value.report is not None
    assert caught.value.report.elapsed < 0.2 + 0.5 + SLACK, "it waits for no retry"
    assert sorted(hook.begun) == ["t0", "t1"]
    assert connector.count() == 38, "what fills a process is not given to the next as if nothing had happened"
    assert connector.outcomes == []


def test_what_waits_begins_once_they_have_ended(consumer: Engine) -> None:
    hook = Hook("t0")
    task = hook.given_to(consumer.task(Script(), {"m": Prefetching(some(3))}), consumer)
    task.cancel_grace = 0.0

    def let_go() -> None:
        eventually(lambda: task.abandoned_attempts == 1, "the first is abandoned")
        hook.is_over.wait(0.3)  # in which nothing may begin
        hook.is_over.set()

    threading.Thread(target=let_go).start()
    policy = consumer.policy(work=RetryPolicy(timeout=1), batch=3, streaming=True, limit=3)
    report = consumer.drive(lambda: consumer.start(task, [], policy))
    assert (report.succeeded, report.failed) == (2, 1)
    assert hook.begun_meanwhile == ["t0"], "the others not before"


def test_what_a_producers_call_leaves_behind_counts_in_the_next(
    producer: Engine, hook: Hook, run: Callable[[Any], Any]
) -> None:
    task = hook.given_to(producer.task(Script()), producer)
    task.abandoned_grace, task.cancel_grace, task.pipeline_name = 0.3, 0.0, "out"
    policy = producer.policy(work=RetryPolicy(timeout=0.1), concurrency=2, batch=2)
    assert run(producer.start(task, some(2), policy)).failed == 2
    eventually(lambda: task.abandoned_attempts == 2, "both are abandoned")
    with pytest.raises(AbandonedAttemptsError):
        run(producer.start(task, some(2), policy))
    assert sorted(hook.begun) == ["t0", "t1"]
    hook.is_over.set()
    eventually(lambda: task.abandoned_attempts == 0, "they have ended")
    assert run(producer.start(task, some(2), policy)).succeeded == 2


def test_a_script_has_never_more_than_twice_its_slots_at_once(
    producer: Engine, hook: Hook, run: Callable[[Any], Any]
) -> None:
    task = hook.given_to(producer.task(Script()), producer)
    task.abandoned_grace, task.cancel_grace = 0.3, 0.0
    with pytest.raises(AbandonedAttemptsError, match="2 abandoned attempts"):
        run(producer.start(task, some(5), producer.policy(work=RetryPolicy(timeout=0.05))))
    assert hook.begun == ["t0", "t1"]


def test_a_script_ends_well_although_its_last_transaction_has_left_many_attempts_behind(
    engine: Engine, hook: Hook, run: Callable[[Any], Any]
) -> None:
    task = hook.given_to(engine.task(Script(), {"m": MemoryConnector(some(1))}), engine)
    task.cancel_grace = 0.0
    report = run(engine.start(task, some(1), engine.policy(work=RetryPolicy(max_attempts=4, timeout=0.05))))
    assert (report.failed, hook.begun) == (1, ["t0"] * 4)


class Tidying:
    """A hook that is cancelled at its first attempt, and takes a while to tidy up."""

    def __init__(self, *, lasts: threading.Event) -> None:
        self.running = self.most = self.attempts = 0
        self._lasts = lasts

    async def __call__(self, _: Transaction) -> str:
        self.running, self.attempts = self.running + 1, self.attempts + 1
        self.most = max(self.most, self.running)
        try:
            if self.attempts == 1:
                await asyncio.sleep(HANGING)
        except asyncio.CancelledError:
            while not self._lasts.is_set():
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)
            raise
        finally:
            self.running -= 1
        return "done"


@pytest.mark.parametrize(("grace", "most"), [(SLACK, 1), (0.05, 2)])
@pytest.mark.parametrize("is_consumer", [True, False])
def test_in_asyncio_a_retry_waits_for_the_attempt_that_was_cancelled_as_long_as_its_grace(
    run: Callable[[Any], Any], grace: float, most: int, *, is_consumer: bool
) -> None:
    engine, is_over = Engine(is_consumer=is_consumer, is_async=True), threading.Event()
    hook = Tidying(lasts=is_over)
    task = engine.task(Script(), {"m": MemoryConnector(some(1))})
    task.process_transaction = task.produce_transaction = hook
    task.cancel_grace = grace
    if most == 1:
        threading.Timer(0.5, is_over.set).start()
    report = run(engine.start(task, some(1), engine.policy(work=RetryPolicy(max_attempts=2, timeout=0.2))))
    is_over.set()
    assert (report.succeeded, hook.attempts, hook.most) == (1, 2, most)


def test_a_loop_that_begins_after_its_pipelines_end_runs_nothing(engine: Engine) -> None:
    script = Script()
    task = engine.task(script)
    task.end()
    assert engine.drive(lambda: engine.start(task, some(2), engine.policy())).stopped_by == "stopped"
    assert script.calls == []
