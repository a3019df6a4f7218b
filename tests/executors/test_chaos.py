"""Processes are killed at random while they work: every job ends exactly once, with its own answer or the reason."""

import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from engines import ExceptionType, Failure, RetryPolicy, Success
from tests.executors.executor_pools import HANDLERS, Crew, adversary, job, pool_of
from tests.processes import LIMIT

pytestmark = pytest.mark.once

NAMED = re.compile(r"executor exited with code (137 \(SIGKILL\)|143 \(SIGTERM\)|0)( in the middle of a line)?: 'one'")


@pytest.fixture(autouse=True)
def _nobody_hurries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The death of a process is waited for until it is told, however long this machine stands still."""
    monkeypatch.setattr("engines.executors.stdio.OBITUARY", LIMIT)


@contextmanager
def killings(crew: Crew, every: int, signals: list[signal.Signals]) -> Iterator[list[int]]:
    """One of the processes is killed from outside, whatever it does, about once in so many answers."""
    chance, is_over, killed = random.Random(7), threading.Event(), []  # noqa: S311 (the same every time)

    def kill() -> None:
        answers = 0
        while not is_over.wait(chance.uniform(0, 0.01)):
            about = crew.pools.snapshot()
            pids = [one["pid"] for pool in about for one in pool["processes"]]
            if pids and sum(pool["answered"] for pool in about) >= answers + every:
                answers = sum(pool["answered"] for pool in about)
                with suppress(ProcessLookupError):
                    os.kill(pid := chance.choice(pids), chance.choice(signals))
                    killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        is_over.set()
        thread.join()


def prove(crew: Crew, count: int, every: int, retry: RetryPolicy) -> Counter[str]:
    jobs = [job(f"t{number}", number) for number in range(count)]
    with killings(crew, every, [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]) as killed:
        ran = crew.run(*jobs, concurrency=6, retry=retry)
    assert killed, "nothing was killed, and nothing proved"
    assert Counter(name for name, _ in ran.connector.outcomes) == Counter(one.id for one in jobs), "each exactly once"
    kinds: Counter[str] = Counter()
    for name, outcome in ran.connector.outcomes:
        match outcome:
            case Success(value):
                given = value["args"] if isinstance(value, dict) else value
                assert given == [int(name[1:])], "its own answer"
            case Failure(error):
                assert error.category is ExceptionType.SYSTEM
                assert NAMED.fullmatch(str(error)), str(error)
        kinds[type(outcome).__name__] += 1
    return kinds


def test_jobs_survive_the_death_of_their_executors_or_say_that_they_did_not() -> None:
    with adversary("works", pool_size=4) as crew:
        kinds = prove(crew, 300, 10, RetryPolicy(timeout=20))
        assert kinds["Failure"] > 0
        assert kinds["Success"] > kinds.total() / 2


def test_with_attempts_enough_every_job_succeeds() -> None:
    with adversary("works", pool_size=4) as crew:
        assert prove(crew, 100, 10, RetryPolicy(max_attempts=20, timeout=20)) == {"Success": 100}


@pytest.mark.soak
def test_thousands_of_jobs_survive_the_death_of_their_executors() -> None:
    with pool_of(HANDLERS, pool_size=4) as crew:
        until = time.monotonic() + 60
        kinds: Counter[str] = Counter()
        while time.monotonic() < until:
            kinds += prove(crew, 500, 25, RetryPolicy(timeout=20))
        assert kinds.total() > 2000
        assert kinds["Success"] > kinds.total() * 0.9
