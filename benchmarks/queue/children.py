"""The processes of a run: for each contender one that submits and watches, and its workers, which come and go."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
# What a developer has set for their own runs must not reach a measurement.
FORGOTTEN = ("ERGON_", "DJANGO_", "DATABASE_", "CELERY_", "OTEL_", "BENCHMARK_")
LIMIT = 90.0
# The jobs are done, or nobody waits for them any more.
STOP_LIMIT = 1.0
MEBIBYTE = 2**20


class FailedError(Exception):
    """A process that did not do what it was started for."""


def own_worker(key: str) -> list[str]:
    """The command line of a worker that is a loop of ours."""
    return [sys.executable, "-m", "benchmarks.queue.worker", key]


class Child:
    """A process that we started; a submitter is asked and answers in lines."""

    def __init__(self, command: list[str], process: subprocess.Popen[bytes], log: Path) -> None:
        self._command = " ".join(command[1:])
        self._process = process
        self._log = log

    def ask(self, *question: Any) -> None:
        assert self._process.stdin  # noqa: S101 (a submitter has one)
        with suppress(BrokenPipeError):  # it has ended, and has no answer either
            self._process.stdin.write(json.dumps(question).encode() + b"\n")

    def answer(self, workers: "Sequence[Child]" = (), limit: float = LIMIT) -> Any:
        """Its next line; a failure if it, or a worker that it depends on, ends without one."""
        assert self._process.stdout  # noqa: S101 (a submitter has one)
        until = time.monotonic() + limit
        while not select.select([self._process.stdout], [], [], 0.1)[0]:
            for child in (self, *workers):
                child.refuse_failure()
            if time.monotonic() > until:
                msg = f"no answer within {limit:.0f} s"
                raise FailedError(msg)
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self.refuse_failure()
            msg = "ended without an answer"
            raise FailedError(msg)
        return json.loads(line)

    def memory(self) -> float:
        """What it and its children hold in memory, in MiB; what they share counts once for each."""
        return float(sum(one.memory_info().rss for one in self._family())) / MEBIBYTE

    def cpu_time(self) -> float:
        """Seconds that it and its children have computed."""
        return float(sum(sum(one.cpu_times()[:2]) for one in self._family()))

    def _family(self) -> list[psutil.Process]:
        process = psutil.Process(self._process.pid)
        return [process, *process.children(recursive=True)]

    def refuse_failure(self) -> None:
        if self._process.poll():
            lines = self._log.read_text(errors="replace").strip().splitlines() or ["without a word"]
            msg = f"{self._command} ended with {self._process.returncode}: {lines[-1]}"
            raise FailedError(msg)

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT)
        # Its own children are in its group, and the group is its own.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def submitter(key: str, environment: Mapping[str, str], log: Path) -> Iterator[Child]:
    command = [sys.executable, "-m", "benchmarks.queue.submitter", key]
    with _started(command, environment, log, answers=True) as process:
        yield process


@contextmanager
def workers(commands: list[list[str]], environment: Mapping[str, str], log: Path) -> Iterator[list[Child]]:
    with ExitStack() as stack:
        yield [stack.enter_context(_started(command, environment, log, answers=False)) for command in commands]


@contextmanager
def _started(command: list[str], environment: Mapping[str, str], log: Path, *, answers: bool) -> Iterator[Child]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FORGOTTEN)}
    with log.open("ab") as errors:
        process = subprocess.Popen(  # noqa: S603 (a command of our own)
            command,
            cwd=ROOT,
            env={**kept, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.PIPE if answers else subprocess.DEVNULL,
            stdout=subprocess.PIPE if answers else errors,
            stderr=errors,
            bufsize=0,
            start_new_session=True,
        )
    running = Child(command, process, log)
    try:
        yield running
    finally:
        running.stop()
