"""Time limits in asyncio: a handler runs in the task of its slot, and another task goes on when it does not end."""

import asyncio
import contextvars
import selectors
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from engines import RetryPolicy, Transaction, run_with_timeout_async
from engines.connectors.memory import MemoryConnector
from engines.drivers.timeouts import CANCELLING, Abandoned, LimitReached
from engines.drivers.timer import TimedCall
from engines.drivers.watcher import SupersededError
from tests.conformance.harness import FOREVER, Engine, Script, some
from tests.processes import eventually

GRACE = round(CANCELLING * 1000)  # milliseconds
tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class Jumping(selectors.SelectSelector):
    """Waits for nothing: the clock of its event loop jumps to the next timer, so equal times are equal."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(timeout and 0)


def play(function: Callable[[], Any]) -> None:
    """Run a coroutine function in an event loop whose clock jumps."""
    selector = Jumping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        loop.run_until_complete(function())
    finally:
        loop.close()


class Race(NamedTuple):
    """A handler that would end after two waits, its limit, and how it takes a cancellation; in milliseconds."""

    waits: tuple[int, int]
    limit: int
    tidies: int  # after a cancellation, before it ends
    then: Any  # what it returns or raises then
    cancelled: int  # by somebody else

    async def handle(self) -> Any:
        try:
            for wait in self.waits:
                await asyncio.sleep(wait / 1000)
        except asyncio.CancelledError:
            if self.tidies:
                await asyncio.sleep(self.tidies / 1000)
            if isinstance(self.then, BaseException):
                raise self.then from None
            return self.then
        return "value"

    def endings(self) -> set[str]:
        """What may come of it: whatever comes first; either, if both come at the same time."""
        moments = {"value": sum(self.waits), "limit": self.limit, "cancelled": self.cancelled}
        first = {name for name, moment in moments.items() if moment == min(moments.values())}
        given_up = first - {"value"}
        superseded = {f"superseded by {name}" for name in given_up} if self.tidies >= GRACE else set()
        return first | superseded if self.tidies <= GRACE else first - given_up | superseded


races = st.builds(
    Race,
    waits=st.tuples(st.integers(0, 10), st.integers(0, 10)),
    limit=st.integers(0, 20),
    tidies=st.sampled_from([0, 0, 1, GRACE - 1, GRACE, GRACE + 1, 3 * GRACE]),
    then=st.sampled_from([asyncio.CancelledError(), ValueError("late"), "late", SystemExit(3)]),
    cancelled=st.integers(0, 20) | st.just(1000),
)


@settings(max_examples=200)
@given(field=st.lists(races, min_size=1, max_size=12), cancel_grace=st.sampled_from([0.0, 0.001, 1.0]))
def test_a_coroutine_that_ends_just_at_its_limit_is_in_time_or_late_and_never_both(
    field: list[Race], cancel_grace: float
) -> None:
    abandoned = Abandoned(cancel_grace=cancel_grace)
    seen: list[list[str]] = [[] for _ in field]

    async def run(race: Race, endings: list[str]) -> None:
        task: Any = asyncio.current_task()
        call = TimedCall(race.handle, race.limit / 1000, abandoned, task, partial(go_on, task))
        timer = task.get_loop().call_later(race.cancelled / 1000, call.cancel)
        try:
            endings.append(await call.run(()))
        except SupersededError:
            endings.append("left")
        except LimitReached as error:
            endings.append("limit" if error.call is None else "still running")
        except asyncio.CancelledError:
            endings.append("cancelled")
        timer.cancel()
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # no cancellation is left

    def go_on(task: "asyncio.Task[Any]", error: BaseException) -> None:
        is_limit = isinstance(error, LimitReached) and error.call is task
        seen[tasks.index(task)].append(f"superseded by {'limit' if is_limit else 'cancelled'}")

    tasks: list[asyncio.Task[Any]] = []

    async def all_of_them() -> None:
        tasks.extend(asyncio.ensure_future(run(*about)) for about in zip(field, seen, strict=True))
        await asyncio.gather(*tasks)

    play(all_of_them)
    for race, endings in zip(field, seen, strict=True):
        ending, *left = endings
        assert ending in race.endings(), race
        assert left == (["left"] if "superseded" in ending else [])
    assert (abandoned.count, abandoned.occupied) == (0, 0)


CONSUMER = Engine(is_consumer=True, is_async=True)
LIMITED = RetryPolicy(timeout=FOREVER)


def consume(
    process: Callable[[Transaction], Any], *transactions: Transaction, connector: Any = None, **options: Any
) -> tuple[Any, Script]:
    """The report of a consumer with that handler, and the calls of its others."""
    script = Script()
    task = CONSUMER.task(script, {"m": connector or MemoryConnector(transactions)})
    task.process_transaction = process
    options = {"work": LIMITED, "success": LIMITED, **options}
    return asyncio.run(_awaited(task.consume_transactions(CONSUMER.policy(**options)))), script


async def _awaited(running: Any) -> Any:
    return await running


def test_a_limit_that_is_kept_costs_no_task() -> None:
    counts: list[int] = []

    async def count_tasks(_: Transaction) -> None:
        await asyncio.sleep(0)
        counts.append(len(asyncio.all_tasks()))

    consume(count_tasks, *some(3), batch=3)
    assert counts == [2, 2, 2], "the caller's and the slot's"


def test_what_a_handler_with_a_limit_sets_in_its_context_is_seen_by_no_other() -> None:
    tenant.set("caller")
    seen: list[str] = []

    async def look(transaction: Transaction) -> None:
        seen.append(tenant.get())
        tenant.set(transaction.id)
        await asyncio.sleep(0)
        seen.append(tenant.get())
        raise ValueError

    consume(look, Transaction("a", 1), work=RetryPolicy(max_attempts=2, timeout=FOREVER))
    assert seen == ["caller", "a", "caller", "a"]


def test_a_handler_that_cancels_its_own_task_disturbs_nothing_else() -> None:
    async def cancel_itself(_: Transaction) -> str:
        task: Any = asyncio.current_task()
        task.cancel()
        return "done"

    class Waiting(MemoryConnector):
        async def acknowledge_async(self, transaction: Transaction, outcome: Any) -> None:
            await asyncio.sleep(0)
            self.acknowledge(transaction, outcome)

    connector = Waiting(some(2))
    report, script = consume(cancel_itself, connector=connector)
    assert (report.succeeded, script.stages()) == (2, ["success", "success"])
    assert len(connector.outcomes) == 2


def test_limits_and_groups_that_a_handler_has_of_its_own_are_its_own() -> None:
    async def limit_itself(transaction: Transaction) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(FOREVER)
        with pytest.raises(ExceptionGroup):
            await fail_together()
        return transaction.id

    async def fail_together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(FOREVER))
            group.create_task(run_with_timeout_async(asyncio.sleep, 0.01, FOREVER))

    report, script = consume(limit_itself, *some(2), batch=2)
    assert report.succeeded == 2
    assert script.arguments("success") == ["t0", "t1"]


def test_a_late_handler_keeps_its_task_and_ends_by_its_own_limits() -> None:
    tasks: list[Any] = []

    async def tidy_up_for_too_long(_: Transaction) -> str:
        tasks.append(asyncio.current_task())
        if len(tasks) == 2:
            await asyncio.wait(tasks[:1])  # its own limit ends the first attempt, and nothing else
            return "done"
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(FOREVER)
        async with asyncio.timeout(0.2):
            await asyncio.sleep(FOREVER)
        return "late"

    report, script = consume(tidy_up_for_too_long, *some(1), work=RetryPolicy(max_attempts=2, timeout=0.1))
    assert tasks[0] is not tasks[1]
    assert (report.succeeded, script.arguments("success")) == (1, ["done"])


class Lending(MemoryConnector):
    """Loses transactions to another worker when it is told to."""

    def __init__(self, transactions: list[Transaction]) -> None:
        super().__init__(transactions)
        self.lost: set[str] = set()
        self.tell: Callable[[Sequence[Transaction]], None] | None = None

    def is_lost(self, transaction: Transaction) -> bool:
        return transaction.id in self.lost

    def on_lost(self, callback: Callable[[Sequence[Transaction]], None] | None) -> None:
        self.tell = callback


def test_a_stubborn_handler_whose_lease_is_lost_frees_its_slot() -> None:
    connector, is_over = Lending(some(2)), threading.Event()

    async def hang_on(transaction: Transaction) -> str:
        if transaction.id == "t1":
            is_over.set()
            return "done"
        connector.lost = {"t0"}
        assert connector.tell is not None
        connector.tell([transaction])
        while not is_over.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
        return "late"

    report, script = consume(hang_on, connector=connector, batch=2)
    assert (report.succeeded, report.failed) == (1, 0)
    assert script.arguments("success") == ["done"]
    assert [name for name, _ in connector.outcomes] == ["t1"]


def test_what_a_late_handler_raises_is_nobodys_failure() -> None:
    is_over = threading.Event()

    async def raise_late(_: Transaction) -> None:
        while not is_over.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
        raise SystemExit(3)

    async def start() -> Any:
        task = CONSUMER.task(script, {"m": MemoryConnector(some(1))})
        task.process_transaction, task.cancel_grace = raise_late, 0.0
        report = await task.consume_transactions(CONSUMER.policy(work=RetryPolicy(timeout=0.01)))
        try:
            await asyncio.to_thread(eventually, lambda: task.abandoned_attempts == 1, "it is abandoned")
        finally:
            is_over.set()
        await asyncio.to_thread(eventually, lambda: task.abandoned_attempts == 0, "it has ended")
        return report

    script = Script()
    assert asyncio.run(start()).failed == 1
    assert script.stages() == ["exception"]


def test_an_awaitable_that_is_no_coroutine_is_awaited_within_its_limit() -> None:
    def promise(transaction: Transaction) -> Any:
        future = asyncio.get_running_loop().create_future()
        if transaction.id == "t0":
            asyncio.get_running_loop().call_soon(future.set_result, "done")
        return future

    kept, _ = consume(promise, Transaction("t0", 1))
    late, _ = consume(promise, Transaction("t1", 1), work=RetryPolicy(timeout=0.05))
    assert (kept.succeeded, late.failed) == (1, 1)


@pytest.mark.parametrize("timeout", [None, FOREVER])
def test_tasks_that_begin_at_once_run_one_after_the_other(timeout: float | None) -> None:
    """Python 3.12 has a factory of such tasks; before that there are none, and nothing else to see here."""

    async def begin_at_once(transaction: Transaction) -> None:
        asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory", None))
        if transaction.id == "t7":
            await asyncio.sleep(0)

    limited = RetryPolicy(timeout=timeout)
    report, _ = consume(begin_at_once, *some(2000), batch=2000, work=limited, success=limited)
    assert report.succeeded == 2000
