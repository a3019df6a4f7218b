"""Executors die with their worker, even with one that is killed and cannot see to it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.executors.executor_pools import ENVIRONMENT, left_of, lives
from tests.processes import LIMIT, ROOT, eventually, words_of

pytestmark = pytest.mark.once


@contextmanager
def worker(mark: Path, function: str = "spawn") -> Iterator["subprocess.Popen[str]"]:
    """It has a warm executor already, and begins its long job when it is told to."""
    command = [sys.executable, "-m", "tests.executors.orphaning", str(mark), function]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env=ENVIRONMENT
    ) as one:
        try:
            assert one.stdout
            assert "ready\n" in iter(one.stdout.readline, ""), "after what it logs"
            yield one
        finally:
            one.kill()


def begin(one: "subprocess.Popen[str]", mark: Path) -> int:
    """Let it begin; the grandchild's pid."""
    assert one.stdin
    one.stdin.write("go\n")
    one.stdin.flush()
    eventually(lambda: mark.exists() and mark.read_text() != "", "the grandchild runs")
    return int(mark.read_text())


def families(one: "subprocess.Popen[str]") -> tuple[list[int], list[int]]:
    """Its keepers, and its executors, which are theirs."""
    keepers = [child for child in psutil.Process(one.pid).children() if "keeper.py" in words_of(child)]
    executors = [child.pid for keeper in keepers for child in children_of(keeper) if "handlers" in words_of(child)]
    return [keeper.pid for keeper in keepers], executors


def children_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children())
    except psutil.Error:  # it ended a moment ago
        return []


@pytest.mark.parametrize("is_keeper_killed", [False, True])
def test_executors_and_their_children_are_gone_when_their_worker_is_killed(
    tmp_path: Path, *, is_keeper_killed: bool
) -> None:
    mark = tmp_path / "mark"
    with worker(mark) as one:
        if is_keeper_killed:
            ((keeper,), (executor,)) = families(one)
            os.kill(keeper, signal.SIGKILL)
            eventually(lambda: not lives(executor), "an executor dies with its keeper, and is replaced")
        grandchild = begin(one, mark)
        eventually(lambda: [len(family) for family in families(one)] == [2, 2], "both executors run")
        keepers, executors = families(one)
        one.kill()
        one.wait(LIMIT)
    eventually(lambda: not left_of(set(executors)), "no executor is left")
    eventually(lambda: not lives(grandchild), "nor its grandchild")
    eventually(lambda: not any(lives(pid) for pid in keepers), "nor a keeper")


def test_keepers_ignore_what_ends_other_processes(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with worker(mark) as one:
        begin(one, mark)
        keepers, executors = families(one)
        for keeper in keepers:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(keeper, number)
        assert all(lives(pid) for pid in (*keepers, *executors))
        one.kill()
        one.wait(LIMIT)
    eventually(lambda: not left_of(set(executors)), "no executor is left")


def test_what_left_the_group_and_lost_its_parent_is_gone_when_the_worker_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with worker(mark, "spawn_daemon") as one:
        daemon = begin(one, mark)
        assert lives(daemon)
        one.kill()
        one.wait(LIMIT)
    eventually(lambda: not lives(daemon), "nothing is left")
