"""Any program that reads a line and writes a line is an executor, in whatever language."""

import shutil
from collections.abc import Iterator

import pytest

from engines import ExceptionType, RetryPolicy
from tests.executors.executor_pools import HERE, Crew, job, pool_of

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def node() -> Iterator[Crew]:
    program = shutil.which("node")
    assert program, "needs Node: install the package nodejs"
    with pool_of([program, str(HERE / "node_executor.js")], pool_size=2) as crew:
        yield crew


def test_a_handler_in_node_gets_arguments_and_gives_a_result(node: Crew) -> None:
    assert node.run(job("t0", 2, 3, function="add")).value == 5
    assert node.run(job("t1", "añ☃", function="one#reverse")).value == "☃ña"


def test_a_handler_in_node_is_told_everything_that_the_document_names(node: Crew) -> None:
    told = node.run(job("t2", function="context"), retry=RetryPolicy(timeout=60)).value
    assert (told["job_id"], told["attempt"], told["queue_name"], told["worker_id"]) == ("t2", 1, "p", "w")
    assert set(told) == {*("job_id", "attempt", "queue_name", "worker_id", "enqueue_time", "deadline", "trace_context")}
    assert told["enqueue_time"].endswith("Z")
    assert told["deadline"].endswith("Z")


def test_failures_in_node_have_their_own_names(node: Crew) -> None:
    error = node.run(job("t3", "too far", function="fail")).error
    assert (error.category, error.error_type, str(error)) == (ExceptionType.SYSTEM, "RangeError", "too far")
    assert node.run(job("t4", function="nobody"), retry=RetryPolicy(max_attempts=5)).error.is_fatal


def test_a_retry_that_node_asks_for_is_made(node: Crew) -> None:
    assert node.run(job("t5", function="retry"), retry=RetryPolicy(max_attempts=3, timeout=20)).value == "attempt 2"


def test_a_handler_in_node_that_never_ends_is_ended(node: Crew) -> None:
    assert node.run(job("t6", function="forever"), retry=RetryPolicy(timeout=0.5)).error.category == "TIMEOUT"
    assert node.run(job("t7", 1, 1, function="add")).value == 2


def test_many_jobs_run_in_node_at_a_time(node: Crew) -> None:
    ran = node.run(*(job(f"many-{n}", n, n, function="add") for n in range(100)), concurrency=4)
    assert ran.values == {f"many-{n}": 2 * n for n in range(100)}


def test_an_executor_can_be_a_few_lines_of_shell() -> None:
    with pool_of(["sh", str(HERE / "shell_executor.sh")]) as crew:
        first = crew.run(job("t0", function="greet")).value
        assert first.startswith("hello from pid ")
        assert crew.run(job("t1", function="greet")).value == first, "the same process"
        assert crew.run(job("t2", function="curse")).error.is_fatal
