"""Where the machine has no more threads or files for a while: limits are kept, processes end, and all goes on."""

import asyncio
import io
import os
import resource
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.core.management.base import OutputWrapper
from django.db import connection, transaction
from structlog.testing import capture_logs

from engines import BatchPolicy, ConcurrencyPolicy, ConsumerLoopPolicy, ConsumerPolicy, ConsumerTask, Transaction
from engines.connectors.database import DatabaseConnector
from engines.connectors.memory import MemoryConnector
from engines.drivers import watcher
from engines.drivers.timeouts import Abandoned, SpareThread
from engines.drivers.watcher import SupersededError, WatchedCall
from engines.drivers.work import Waiting
from engines.executors import child
from engines.executors.errors import ExecutorNoRoomError
from engines.executors.settings import executors_in
from engines.executors.stdio import ExecutorProcess
from engines.worker.heartbeat import Heartbeat
from engines.worker.poller import Poller
from engines.worker.supervisor import Child, Supervisor
from engines.worker.thread_pool import NoThreadError, ThreadPool
from ergon_site.access.database import calls
from ergon_site.access.database.calls import DatabaseTimeoutError, time_limit
from facts.forwarding import running
from providers.calls import rating
from tests.durable_transactions import submit
from tests.executors.executor_pools import HANDLERS, left_of, pool_of
from tests.factories import make_pipeline
from tests.facts.drafts import make_boundary
from tests.facts.test_forwarding import forwarding_all
from tests.processes import LIMIT, eventually
from tests.providers.scripted_providers import WHO

pytestmark = pytest.mark.django_db(transaction=True)


POLICY = ConsumerPolicy(loop=ConsumerLoopPolicy(concurrency=ConcurrencyPolicy(value=3), batch=BatchPolicy(size=6)))
WAITING = Waiting(is_wanted=lambda: True, aside=nullcontext, may_postpone=False)  # type: ignore[arg-type]


@contextmanager
def no_threads() -> Iterator[None]:
    """No machine has a stack as large as this, so that none can be started."""
    before = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(before)


@contextmanager
def no_files() -> Iterator[None]:
    """No other file or pipe can be opened."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open() as used:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used.fileno(), before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def run_into_limit() -> None:
    with time_limit(0.1), connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(600)")


@pytest.mark.postgresql
def test_a_statement_that_nobody_can_cancel_ends_all_the_same_and_so_does_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "CANCEL_WITHIN", 0.1)
    with time_limit(LIMIT):  # the thread that watches has been there for long
        connection.ensure_connection()
    with no_threads():
        for within in (nullcontext(), transaction.atomic()):
            with pytest.raises(DatabaseTimeoutError), within:
                run_into_limit()
    with pytest.raises(DatabaseTimeoutError):
        run_into_limit()
    with connection.cursor() as cursor:  # the server goes on with a statement whose client has gone
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'")


@pytest.mark.postgresql
def test_database_calls_are_watched_as_soon_as_there_is_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_watcher", calls._Watcher())
    with no_threads(), capture_logs() as logs, time_limit(0.1), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    assert [line["event"] for line in logs] == ["no_thread"]
    with pytest.raises(DatabaseTimeoutError):
        run_into_limit()


def test_a_call_with_a_limit_is_made_as_soon_as_somebody_can_watch_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "_watcher", watcher._Watcher())
    superseded, may_end, has_begun = threading.Event(), threading.Event(), threading.Event()

    def function() -> None:
        has_begun.set()
        may_end.wait(LIMIT)

    call = WatchedCall(function, 0.01, Abandoned(), lambda _: superseded.set())
    with ThreadPoolExecutor(1) as threads, capture_logs() as logs:
        threads.submit(int).result()
        with no_threads():
            late = threads.submit(call.run, copy_context(), ())
            eventually(lambda: len(logs) > 1, "it was tried")
            assert not has_begun.is_set()
        assert superseded.wait(LIMIT)
        may_end.set()
        assert isinstance(late.exception(), SupersededError)
    assert {line["event"] for line in logs} == {"attempt_waits_for_a_thread"}


@pytest.mark.parametrize("has_slot", [False, True])
def test_slots_that_find_no_thread_wait_for_one_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, *, has_slot: bool
) -> None:
    """A thread of its own ends the scarcity: the loop needs this one."""
    monkeypatch.setattr(SpareThread, "idle", [SpareThread()] if has_slot else [])
    connector = MemoryConnector([Transaction(str(number), None) for number in range(6)])
    with capture_logs() as logs:

        class Lingering(ConsumerTask):
            """A slot that was done at once would be free for what the next one is to do."""

            def process_transaction(self, transaction: Transaction) -> None:
                eventually(lambda: bool(logs), "no thread was found")

        task = Lingering(connectors={"memory": connector})

        def end_scarcity() -> None:
            eventually(lambda: len(connector.outcomes) == 6 if has_slot else bool(logs), "it was tried")
            threading.stack_size(0)

        helper = threading.Thread(target=end_scarcity)
        helper.start()
        with no_threads():
            report = task.consume_transactions(POLICY)
        helper.join()
    assert report.succeeded == 6
    assert {line["event"] for line in logs} == {"slots_wait_for_threads"}


def test_calls_wait_for_the_threads_that_a_pool_has_and_one_that_is_refused_is_never_made() -> None:
    made: list[int] = []
    with ThreadPool(2) as threads:
        with no_threads():
            assert threads.submit_or_none(made.append, 1) is None
            with pytest.raises(NoThreadError):
                threads.submit(made.append, 1)
        may_end = threading.Event()
        first = threads.submit(may_end.wait, LIMIT)
        with no_threads():
            second = threads.submit(made.append, 2)
            may_end.set()
            first.result()
            second.result()
    assert made == [2]


def test_an_async_task_claims_as_soon_as_there_is_a_thread_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Event()

    def submit_or_none(*given: Any) -> Any:
        future = ThreadPool.submit_or_none(*given)
        tried.set()
        return future

    pipeline = make_pipeline()
    (transaction_id,) = submit(pipeline, 1)
    with Heartbeat([pipeline.name]) as heartbeat, ThreadPoolExecutor(1) as threads:
        connector = DatabaseConnector(pipeline, heartbeat)
        monkeypatch.setattr(connector, "_thread", pool := ThreadPool(1))
        monkeypatch.setattr(pool, "submit_or_none", partial(submit_or_none, pool))
        threads.submit(int).result()
        with no_threads():
            fetched = threads.submit(asyncio.run, connector.fetch_transactions_async(5))
            assert tried.wait(LIMIT)
            assert not fetched.done()
        assert [one.id for one in fetched.result(LIMIT)] == [transaction_id]
        connector.close()


@pytest.mark.parametrize(("scarcity", "told"), [(no_threads, "can't start new thread"), (no_files, "Too many open")])
def test_a_job_waits_for_an_executor_that_cannot_be_started_now(
    scarcity: Callable[[], AbstractContextManager[None]], told: str
) -> None:
    with pool_of(HANDLERS) as crew, ThreadPoolExecutor(1) as threads, capture_logs() as logs:
        threads.submit(int).result()
        pool = crew.pools.find("one")
        with scarcity():
            held = threads.submit(pool.hold, "j", WAITING)
            eventually(lambda: len(logs) > 1, "it was tried")
            assert not held.done()
        process = held.result(LIMIT)
        assert isinstance(process, ExecutorProcess)
        pool.free(process)
    assert all(told in line["fault"] for line in logs if line["event"] == "executor_fault")


def test_a_keeper_that_finds_no_process_for_its_executor_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keeper = tmp_path / "keeper.py"
    fails = "def fork(): raise OSError(errno.EAGAIN, 'none left')"
    runs = f"runpy.run_path({str(child.KEEPER)!r}, run_name='__main__')"
    keeper.write_text(f"import errno, os, runpy\n{fails}\nos.fork = fork\n{runs}\n")
    monkeypatch.setattr(child, "KEEPER", keeper)
    settings = executors_in({"one": {"command": HANDLERS}})["one"]
    with pytest.raises(ExecutorNoRoomError, match="Resource temporarily unavailable"):
        child.Child(settings, {})


@pytest.mark.parametrize("how", ["kill", "halt_job", "halt"])
def test_a_process_ends_at_once_and_its_place_is_free(how: str) -> None:
    with pool_of(HANDLERS) as crew:
        pool = crew.pools.find("one")
        process = pool.hold("j", WAITING)
        assert isinstance(process, ExecutorProcess)
        process.job_id = "j"
        end = {"kill": lambda: pool.kill(process), "halt_job": lambda: pool.halt_job("j"), "halt": pool.halt}[how]
        with no_threads():
            end()
        assert left_of({process.pid}) == []
        if how != "kill":  # whoever waits for its answer sees that it has died
            pool.lose(process, "it has died")
        eventually(lambda: pool.snapshot()["processes"] == [], "its place is free")


def test_the_pipelines_that_come_later_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: set[int] = set()
    poller = Poller()

    def look(waiting: set[int]) -> set[int]:
        looked_for.update(waiting)
        return set()

    monkeypatch.setattr(poller, "_due", look)
    with no_threads(), pytest.raises(RuntimeError):
        poller.expect(1, 0.0, None)
    poller.expect(2, 0.0, None)
    eventually(lambda: 2 in looked_for, "the second pipeline is looked for")
    poller.close()


def test_a_provider_call_does_not_fail_because_its_health_must_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr(rating, "show", shown.append)
    board = rating.Board()
    with no_threads():
        board.mark(WHO, 60.0)
    board.mark(WHO, 60.0)
    eventually(lambda: shown == [{WHO: 60.0}], "both are shown")
    board.release_connection()


def test_boundaries_that_are_opened_meanwhile_are_forwarded_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LOOK", 0.01)
    monkeypatch.setattr(running, "SELDOM", 0.01)
    monkeypatch.setattr(running, "LOOK_FOR_NEW", 0.01)
    with forwarding_all() as (service, _):
        with no_threads(), capture_logs() as logs:
            boundary = make_boundary()
            eventually(lambda: any(line["event"] == "boundary_not_forwarded" for line in logs), "it was tried")
        eventually(lambda: [one.id for one in service.forwarders] == [boundary.pk], "it is forwarded")


@pytest.mark.usefixtures("_signals")
def test_a_process_that_cannot_be_started_now_is_started_later() -> None:
    supervisor = Supervisor([["-c", "pass"]], OutputWrapper(io.StringIO()), as_json=True)
    with capture_logs() as logs:

        def end_scarcity() -> None:
            eventually(lambda: bool(logs), "it was tried")
            threading.stack_size(0)

        helper = threading.Thread(target=end_scarcity)
        helper.start()
        with no_threads():
            assert supervisor.run() == 0
        helper.join()
    assert {line["event"] for line in logs} == {"process_not_started"}
    assert len(supervisor._children) == 1


def test_the_leases_of_a_dead_process_that_nobody_can_give_back_are_left_to_run_out() -> None:
    supervisor = Supervisor([], OutputWrapper(io.StringIO()), as_json=True)
    dead = SimpleNamespace(process=SimpleNamespace(returncode=-9, pid=1), worker=1)
    with no_threads(), capture_logs() as logs:
        supervisor._bury(cast("Child", dead), is_replaced=True)
    assert [line["event"] for line in logs] == ["process_died", "leases_not_given_back"]
