"""What tests of durable transactions share: pipelines, a worker, a way to run and settle by hand, real consumers."""

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from engines import policies, transactions, workers
from engines.core.attempt import AttemptRecord
from engines.core.errors import TransactionException, wrap
from engines.core.outcome import Failure, Outcome, Success
from engines.core.steps import Stage
from engines.models import Pipeline, TransactionRecord
from engines.transactions import LeasedTransaction, Settlement
from tests import warm
from tests.processes import LIMIT, environment

QUICK = {
    "loop": {"concurrency": {"value": 4}, "batch": {"size": 20}, "empty_queue": {"backoff": 0.05, "backoff_cap": 0.2}},
    "steps": {"process": {"retry": {"max_attempts": 1}}},
}


def make_policy(name: str = "quick", body: Any = None, kind: str = "consumer") -> str:
    policies.write(name, QUICK if body is None else body, kind=kind, by="tests", reason="for a test")
    return name


def submit(pipeline: Pipeline, count: int = 1, **payload: Any) -> list[str]:
    drafts = [transactions.Draft({"n": number, **payload}) for number in range(count)]
    return [one.id for one in transactions.submit_many(pipeline.name, drafts)]


def claim(pipeline: Pipeline, count: int = 10) -> list[LeasedTransaction]:
    return transactions.claim(pipeline.pk, count, workers.enrol([pipeline.name]).pk)


def failed(message: str = "no such customer", cause: Exception | None = None) -> Failure:
    return Failure(wrap(TransactionException(message), cause or ValueError(message)))


def settle(batch: Sequence[LeasedTransaction], outcome: Outcome | None = None) -> list[LeasedTransaction]:
    """Write down one attempt and the outcome of each."""
    outcome = Success("done") if outcome is None else outcome
    for one in batch:
        one.lease.attempts.append((AttemptRecord(Stage.PROCESS, 1, 1, time.monotonic(), 0.01, outcome), None))
    return transactions.settle([Settlement(one, outcome) for one in batch])


def states(*ids: str) -> list[str]:
    words = {record.uid: record.word for record in TransactionRecord.objects.filter(uid__in=ids)}
    return [words[uid] for uid in ids]


def count(state: int) -> int:
    return TransactionRecord.objects.filter(state=state).count()


@contextmanager
def consumer(*arguments: str, command: str = "consume", **changes: str) -> Iterator[subprocess.Popen[str]]:
    """A real consumer on the test's database; killed when the block ends, if it still runs."""
    variables = {"ERGON_TASKS": "tests.tasks", "ERGON_LEASE_SECONDS": "20", **changes}
    # In a session of its own: one that is frozen would be woken by the end of the shell that runs the tests.
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    process = warm.start([command, *arguments, "--json"], environment(**variables), **pipes)
    try:
        yield process
    except AssertionError:
        _show(process)
        raise
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(LIMIT)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _show(process: subprocess.Popen[str]) -> None:
    """Print how far a process has come that a test waits for in vain."""
    code = process.poll()
    state = "still ran" if code is None else f"had ended with code {code}"
    process.kill()
    with suppress(ValueError, subprocess.TimeoutExpired):  # somebody else may have read it
        output, errors = process.communicate(timeout=10)
        print(f"{process.args!r} {state}", output, errors, sep="\n")


def consume(*arguments: str, command: str = "consume", **changes: str) -> "Run":
    """Run a consumer to its end."""
    with consumer(*arguments, command=command, **changes) as process:
        output, errors = process.communicate(timeout=2 * LIMIT)
        return Run(process.returncode, [json.loads(line) for line in output.splitlines()], errors)


class Run:
    """How a consumer ended, and what it told."""

    def __init__(self, code: int, events: list[dict[str, Any]], errors: str) -> None:
        self.code, self.events, self.errors = code, events, errors

    def last(self, event: str) -> dict[str, Any]:
        return [one for one in self.events if one["event"] == event][-1]


def wait_until_started(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The first event of a consumer: from then on it claims."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    event: dict[str, Any] = json.loads(line)
    return event
