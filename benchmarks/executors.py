"""What an executor costs: one job that does nothing against the bare pipe, and work on two cores.

The baseline writes the same request to a `subprocess` that copies lines, and reads it back: what any two processes that
talk over pipes pay. The goals are printed beside the figures; nothing is asserted.
"""

import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from benchmarks import goals as goals_of
from benchmarks.goals import Figure, at_most
from engines import (
    BatchPolicy,
    ConcurrencyPolicy,
    ConsumerLoopPolicy,
    ConsumerPolicy,
    ConsumerSteps,
    ProcessPolicy,
    RetryPolicy,
    Transaction,
)
from engines.connectors.memory import MemoryConnector
from engines.executors.pool import Pools
from engines.executors.protocol import ExecutionContext, ExecutionRequest, encode_request
from engines.executors.settings import executors_in
from engines.executors.task import RunInExecutor

JOBS, ROUNDS = 2_000, 5
BURNS, BURN = 40, 0.05
GOAL_OVERHEAD, GOAL_CORES = 1000.0, 1.8
ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-m", "engines.executors", "--handlers", "tests.executors.handlers"]
COPY = "import sys\nfor line in sys.stdin.buffer:\n    sys.stdout.buffer.write(line)\n    sys.stdout.buffer.flush()\n"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
LINE = encode_request(
    ExecutionRequest(job_id="t0", function_name="echo", args=[1], context=ExecutionContext(job_id="t0"))
)


@contextmanager
def copier() -> Iterator[Callable[[], None]]:
    """A process that copies lines; the function makes one round trip."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-S", "-c", COPY], stdin=pipe, stdout=pipe) as process:  # noqa: S603
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError

        def go() -> None:
            stdin.write(LINE)
            stdin.flush()
            stdout.readline()

        yield go
        stdin.close()


@contextmanager
def pools(size: int) -> Iterator[Pools]:
    told = {"python": {"command": COMMAND, "pool_size": size, "cwd": str(ROOT)}}
    made = Pools(executors_in(told), ENVIRONMENT)
    try:
        yield made
    finally:
        made.close()


def run(made: Pools, jobs: list[Transaction], concurrency: int, timeout: float | None = 60.0) -> float:
    """Seconds for all of them, through the whole engine."""
    task = RunInExecutor(
        made, executor="python", pipeline="bench", worker_id="w", connectors={"memory": MemoryConnector(jobs)}
    )
    policy = ConsumerPolicy(
        loop=ConsumerLoopPolicy(concurrency=ConcurrencyPolicy(value=concurrency), batch=BatchPolicy(size=len(jobs))),
        steps=ConsumerSteps(process=ProcessPolicy(retry=RetryPolicy(timeout=timeout))),
    )
    started = time.perf_counter()
    report = task.consume_transactions(policy)
    elapsed = time.perf_counter() - started
    if report.succeeded != len(jobs):
        sys.exit(f"{report.failed} of {len(jobs)} jobs failed: {report.failures[0].exception}")
    return elapsed


def jobs_of(count: int, function: str, *args: float) -> list[Transaction]:
    return [Transaction(f"t{number}", {"function": function, "args": list(args)}) for number in range(count)]


def main() -> list[Figure]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    figures = goals(overhead(), cores())
    goals_of.show(figures)
    return figures


def goals(over_pipe: float | None = None, two_cores: float | None = None) -> list[Figure]:
    return [
        at_most("a job that does nothing, beyond a bare pipe", over_pipe, GOAL_OVERHEAD, "{:,.0f} µs"),
        Figure("jobs that keep a core busy, a pool of two / of one", two_cores, GOAL_CORES),
    ]


def overhead() -> float:
    print(f"{JOBS:,} jobs that do nothing, one at a time; median of {ROUNDS} rounds, µs each")
    bare: list[float] = []
    through: list[float] = []
    with copier() as go, pools(1) as made:
        go()
        run(made, jobs_of(10, "echo", 1), 1)
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for _ in range(JOBS):
                go()
            bare.append((time.perf_counter() - started) / JOBS * 1e6)
            through.append(run(made, jobs_of(JOBS, "echo", 1), 1) / JOBS * 1e6)
    least, most = statistics.median(bare), statistics.median(through)
    print(f"  bare pipe          {least:7.1f}  ({min(bare):.1f} to {max(bare):.1f})")
    print(
        f"  warm executor      {most:7.1f}  ({min(through):.1f} to {max(through):.1f})  {most / least:5.2f}x bare pipe"
    )
    return most - least


def cores() -> float:
    print(f"{BURNS} jobs that keep a core busy for {BURN * 1000:.0f} ms; median of {ROUNDS} rounds, jobs a second")
    rates: dict[int, list[float]] = {1: [], 2: []}
    with pools(1) as one, pools(2) as two:
        for _ in range(ROUNDS):
            for size, made in ((1, one), (2, two)):
                run(made, jobs_of(2 * size, "burn", 0.01), size)
                rates[size].append(BURNS / run(made, jobs_of(BURNS, "burn", BURN), size))
    single, double = (statistics.median(rates[size]) for size in (1, 2))
    print(f"  pool of one        {single:7.1f}  ({min(rates[1]):.1f} to {max(rates[1]):.1f})  at most {1 / BURN:.0f}")
    print(f"  pool of two        {double:7.1f}  ({min(rates[2]):.1f} to {max(rates[2]):.1f})")
    return double / single


if __name__ == "__main__":
    main()
