"""The promises about timeouts, retries and classification, for a task whose work runs in an executor."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines import ConsumerLoopTimeout, ExceptionType, ProducerLoopTimeout, RetryPolicy, Transaction
from engines.connectors.memory import MemoryConnector
from engines.executors.pool import Pools
from engines.executors.settings import executors_in
from engines.executors.task import RunInExecutor
from tests.conformance.harness import ENGINES, SLACK, Engine
from tests.executors.executor_pools import ENVIRONMENT, HANDLERS
from tests.processes import ROOT, eventually

PATIENT = RetryPolicy(max_attempts=3, timeout=20)


class Elsewhere(RunInExecutor):
    """Remembers what its handlers are given."""

    def __init__(self, pools: Pools, connectors: dict[str, Any] | None) -> None:
        super().__init__(pools, executor="python", pipeline="p", worker_id="w", connectors=connectors)
        self.calls: list[tuple[str, Any]] = []

    def handle_transaction_success(self, transaction: Transaction, result: Any) -> None:
        self.calls.append(("success", result))

    def handle_transaction_exception(self, transaction: Transaction, exc: Exception) -> None:
        self.calls.append(("exception", exc))

    handle_produce_success = handle_transaction_success
    handle_produce_exception = handle_transaction_exception


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    made = Pools(executors_in({"python": {"command": HANDLERS, "pool_size": 2, "cwd": str(ROOT)}}), ENVIRONMENT)
    yield made
    made.close()


@pytest.fixture(params=[one for one in ENGINES if not one.is_async], ids=str)
def engine(request: pytest.FixtureRequest) -> Engine:
    chosen: Engine = request.param
    return chosen


def run(engine: Engine, pools: Pools, *jobs: Transaction, **options: Any) -> Elsewhere:
    task = Elsewhere(pools, options.pop("connectors", None))
    task.report = engine.start(task, jobs, engine.policy(**options))  # type: ignore[attr-defined]
    return task


def job(name: str, function: str, *args: Any, **kwargs: Any) -> Transaction:
    return Transaction(name, {"function": function, "args": list(args), "kwargs": kwargs})


def warm(engine: Engine, pools: Pools) -> None:
    """Two processes that run already: to start one takes its time too."""
    run(engine, pools, *(job(f"warm{n}", "sleep", 0.1) for n in range(2)), concurrency=2, batch=2)


def test_a_result_is_a_success_and_goes_to_the_success_handler(engine: Engine, pools: Pools) -> None:
    task = run(engine, pools, job("t0", "echo", 1, flag=True))
    assert task.calls == [("success", {"args": [1], "kwargs": {"flag": True}})]


def test_a_failing_handler_is_system_and_is_tried_until_the_attempts_run_out(
    engine: Engine, pools: Pools, tmp_path: Path
) -> None:
    task = run(engine, pools, job("t0", "mark_and_fail", str(tmp_path / "mark")), work=PATIENT)
    ((stage, error),) = task.calls
    assert (stage, error.category, str(error)) == ("exception", ExceptionType.SYSTEM, "no luck")
    assert error.error_type == "ValueError"
    assert (tmp_path / "mark").read_text().splitlines() == ["1", "2", "3"]


def test_a_handler_that_asks_for_it_is_tried_again_when_it_said(engine: Engine, pools: Pools) -> None:
    task = run(engine, pools, job("t0", "retry", 2, after=0.2), work=PATIENT)
    assert task.calls == [("success", "done at attempt 3")]
    assert task.report.elapsed >= 0.4  # type: ignore[attr-defined]


def test_an_attempt_that_never_returns_is_ended_in_time_and_is_timeout(engine: Engine, pools: Pools) -> None:
    warm(engine, pools)
    task = run(engine, pools, job("t0", "stubborn", 60), work=RetryPolicy(timeout=0.3))
    ((_, error),) = task.calls
    assert (error.category, str(error)) == (ExceptionType.TIMEOUT, f"{engine.work} attempt timed out after 0.3 s")
    assert 0.3 <= task.report.elapsed < 0.3 + SLACK  # type: ignore[attr-defined]


@pytest.mark.parametrize("handler", ["sleep", "stubborn"])
def test_a_slow_transaction_is_cut_and_tried_no_more_whoever_stops_it(
    engine: Engine, pools: Pools, handler: str
) -> None:
    warm(engine, pools)
    task = run(engine, pools, job("t0", handler, 60), work=RetryPolicy(max_attempts=5), transaction_timeout=0.4)
    ((_, error),) = task.calls
    assert (error.category, str(error)) == (ExceptionType.TIMEOUT, "the transaction timed out after 0.4 s")


@pytest.mark.parametrize("handler", ["sleep", "stubborn"])
def test_what_a_loop_timeout_cuts_is_given_back_and_runs_no_handler(engine: Engine, pools: Pools, handler: str) -> None:
    warm(engine, pools)
    connector = MemoryConnector([job("t0", handler, 60)])
    task = Elsewhere(pools, {"memory": connector})
    error: Any = ConsumerLoopTimeout if engine.is_consumer else ProducerLoopTimeout
    with pytest.raises(error):
        engine.start(task, [job("t0", handler, 60)], engine.policy(timeout=0.5))
    assert task.calls == []
    assert connector.outcomes == []
    eventually(lambda: connector.count() == 1, "it is given back once its process has ended")
    assert run(engine, pools, job("t1", "echo")).calls[0][0] == "success", "and the executor works on"


def test_a_handler_that_nobody_knows_is_fatal(engine: Engine, pools: Pools) -> None:
    task = run(engine, pools, job("t0", "nobody"), job("t1", "nowhere#echo"), work=PATIENT, batch=2)
    assert [error.is_fatal for _, error in task.calls] == [True, True]
