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

from tests.executors.pooled import ENVIRONMENT, left_of, lives
from tests.processes import LIMIT, ROOT, eventually

pytestmark = pytest.mark.once


@contextmanager
def worker(mark: Path) -> Iterator["subprocess.Popen[str]"]:
    """It has a warm executor already, and begins its long job when it is told to."""
    command = [sys.executable, "-m", "tests.executors.orphaning", str(mark), "spawn"]
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
    """Its keeper, and its executors."""
    children = [child for child in psutil.Process(one.pid).children() if lives(child.pid)]
    keepers = [child.pid for child in children if "keeper.py" in words_of(child)]
    return keepers, [child.pid for child in children if child.pid not in keepers]


def words_of(child: psutil.Process) -> str:
    try:
        return " ".join(child.cmdline())
    except psutil.Error:  # it ended a moment ago
        return ""


@pytest.mark.parametrize("is_keeper_killed", [False, True])
def test_executors_and_their_children_are_gone_when_their_worker_is_killed(
    tmp_path: Path, *, is_keeper_killed: bool
) -> None:
    mark = tmp_path / "mark"
    with worker(mark) as one:
        if is_keeper_killed:
            ((keeper,), _) = families(one)
            os.kill(keeper, signal.SIGKILL)
        grandchild = begin(one, mark)
        # A keeper that has died is replaced at the next start; for a moment the new one has no words of its own yet.
        eventually(lambda: [len(family) for family in families(one)] == [1, 2], "a keeper and both executors run")
        keepers, executors = families(one)
        one.kill()
        one.wait(LIMIT)
    eventually(lambda: not left_of(set(executors)), "no executor is left")
    eventually(lambda: not lives(grandchild), "nor its grandchild")
    eventually(lambda: not any(lives(pid) for pid in keepers), "nor the keeper")


def test_the_keeper_ignores_what_ends_other_processes(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with worker(mark) as one:
        begin(one, mark)
        ((keeper,), executors) = families(one)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(keeper, number)
        one.kill()
        one.wait(LIMIT)
    eventually(lambda: not left_of(set(executors)), "no executor is left")
