"""Jobs through real pools of real processes, without a database."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from engines import (
    BatchPolicy,
    ConcurrencyPolicy,
    ConsumerLoopPolicy,
    ConsumerPolicy,
    ConsumerSteps,
    Failure,
    ProcessPolicy,
    Report,
    RetryPolicy,
    Success,
    Transaction,
)
from engines.connectors.memory import MemoryConnector
from engines.executors.pool import Pools
from engines.executors.settings import executors_in
from engines.executors.task import RunInExecutor
from tests.processes import ROOT, eventually, is_alive

HERE = Path(__file__).parent
HANDLERS = [sys.executable, "-m", "engines.executors", "--handlers", "tests.executors.handlers"]
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@dataclass
class Crew:
    """Pools, and who their processes are."""

    pools: Pools
    groups: set[int] = field(default_factory=set)

    def run(self, *jobs: Transaction, retry: RetryPolicy | None = None, concurrency: int = 1, **loop: Any) -> "Ran":
        connector = MemoryConnector(jobs)
        task = RunInExecutor(self.pools, executor="one", pipeline="p", worker_id="w", connectors={"memory": connector})
        policy = ConsumerPolicy(
            loop=ConsumerLoopPolicy(
                concurrency=ConcurrencyPolicy(value=concurrency), batch=BatchPolicy(size=max(1, len(jobs))), **loop
            ),
            steps=ConsumerSteps(process=ProcessPolicy(retry=retry or RetryPolicy(timeout=20))),
        )
        watch = threading.Thread(target=self._watch, daemon=True)
        self._is_over = False
        watch.start()
        started = time.monotonic()
        try:
            report = task.consume_transactions(policy)
        finally:
            self._is_over = True
            watch.join()
        return Ran(connector, report, time.monotonic() - started)

    def look(self) -> None:
        self.groups |= {process["pid"] for pool in self.pools.snapshot() for process in pool["processes"]}

    def _watch(self) -> None:
        while not self._is_over:
            self.look()
            time.sleep(0.01)


@dataclass
class Ran:
    connector: MemoryConnector
    report: Report
    elapsed: float

    @property
    def outcome(self) -> Any:
        ((_, outcome),) = self.connector.outcomes
        return outcome

    @property
    def values(self) -> dict[str, Any]:
        """The result of each; fails if there is one that has none."""
        failed = [outcome for _, outcome in self.connector.outcomes if not isinstance(outcome, Success)]
        assert failed == []
        return {name: outcome.value for name, outcome in self.connector.outcomes if isinstance(outcome, Success)}

    @property
    def value(self) -> Any:
        assert isinstance(self.outcome, Success), self.outcome
        return self.outcome.value

    @property
    def error(self) -> Any:
        assert isinstance(self.outcome, Failure), self.outcome
        return self.outcome.error


@contextmanager
def pool_of(command: list[str], *, pool_size: int = 1, **about: Any) -> Iterator[Crew]:
    """One executor, named `one`; nothing of it is left when the block is over."""
    told = {"one": {"command": command, "pool_size": pool_size, "cwd": str(ROOT), **about}}
    crew = Crew(Pools(executors_in(told), ENVIRONMENT))
    try:
        yield crew
    finally:
        crew.look()
        crew.pools.close()
    eventually(lambda: not left_of(crew.groups), f"nothing is left of {crew.groups}")


@contextmanager
def adversary(behaviour: str, **about: Any) -> Iterator[Crew]:
    with pool_of([sys.executable, "-S", str(HERE / "adversary.py"), behaviour], **about) as crew:
        yield crew


def left_of(groups: set[int]) -> list[int]:
    """Processes that live, of these groups."""
    return [one.pid for one in psutil.process_iter() if is_alive(one) and group_of(one.pid) in groups]


def lives(pid: int) -> bool:
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def job(name: str = "t0", *args: Any, function: str = "echo", **kwargs: Any) -> Transaction:
    return Transaction(name, {"function": function, "args": list(args), "kwargs": kwargs})
