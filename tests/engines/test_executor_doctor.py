"""Executors that cannot run are found before a job is lost on them: by the doctor, and when a command starts."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.core.management import CommandError, call_command

from engines import conf
from engines.executors.settings import ExecutorConfigurationError, executors_in
from engines.management.base import EngineCommand
from engines.reads import executors as executor_reads
from engines.reads.doctor import executors as diagnosis
from tests.executors.telling import told, working
from tests.processes import LIMIT, eventually, manage

pytestmark = pytest.mark.django_db

PYTHON = {"command": [sys.executable, "-m", "engines.executors", "--handlers", "tests.executors.handlers"]}
BROKEN = {"command": ["sh", "-c", "echo no such module >&2; exit 3"]}
TELLING = {"command": ["sh", "-c", "echo no account at https://ada:hunter2@bank.example/ >&2; exit 3"]}


def configure(monkeypatch: pytest.MonkeyPatch, **executors: Any) -> None:
    known = replace(conf.settings(), executors=executors_in(executors))
    for module in (executor_reads, diagnosis):
        monkeypatch.setattr(module, "settings", lambda: known)


def findings() -> list[tuple[str, str]]:
    return [(finding.level.value, finding.text) for finding in diagnosis.executors()]


def test_the_doctor_starts_every_executor_and_leaves_none_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = str(10**6 + os.getpid())  # by which it is known
    script = f"sleep {seconds} & cat"
    configure(monkeypatch, python=PYTHON, sleepy={"command": ["sh", "-c", script]})
    assert findings() == [
        ("ok", f"python: {sys.executable} starts and waits for work"),
        ("ok", "sleepy: sh starts and waits for work"),
    ]
    eventually(lambda: not _runs("sleep", seconds), "what an executor had started has gone with it")


def _runs(*command: str) -> bool:
    return any(one.info["cmdline"] == [*command] for one in psutil.process_iter(["cmdline"]))


@pytest.mark.once
@pytest.mark.parametrize(
    ("executor", "text"),
    [
        (BROKEN, "x: sh ended at once with code 3: no such module"),
        (TELLING, "x: sh ended at once with code 3: no account at https://•••@bank.example/"),
        ({"command": ["true"]}, "x: true ended at once with code 0"),
        ({"command": ["no-such-program"]}, "x: the program no-such-program is not found, or may not be run"),
        ({"command": ["./tool"], "cwd": "/"}, "x: the program ./tool is not found, or may not be run"),
        ({"command": ["cat"], "env": {"PATH": "/nowhere"}}, "x: the program cat is not found, or may not be run"),
        ({"command": ["cat"], "cwd": "/no/such/folder"}, "x: there is no folder /no/such/folder"),
    ],
)
def test_the_doctor_says_why_an_executor_cannot_run(
    executor: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "MOMENT", LIMIT)  # each ends by itself, or is never started
    configure(monkeypatch, x=executor)
    assert findings() == [("problem", text)]


@pytest.mark.once
def test_the_doctor_finds_a_program_in_the_folder_of_its_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\ncat\n")
    (tmp_path / "tool").chmod(0o755)
    configure(monkeypatch, x={"command": ["./tool"], "cwd": str(tmp_path)})
    assert findings() == [("ok", "x: ./tool starts and waits for work")]


@pytest.mark.once
def test_the_doctor_knows_a_program_that_is_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tool").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "tool").chmod(0o755)
    configure(monkeypatch, x={"command": [str(tmp_path / "tool")]})
    ((level, text),) = findings()
    assert (level, text.startswith("x: cannot be started: ")) == ("problem", True)


def test_the_doctor_tells_of_executors_that_keep_dying_on_a_worker() -> None:
    worker = working(told("python", deaths_in_a_row=7, starts_again_in=25.0, last_fault="executor exited with code 9"))
    warned = [text for level, text in findings() if level == "warning"]
    assert len(warned) == 1
    assert warned[0].startswith(f"python died 7 times in a row on {worker}, and starts again in 2")
    assert warned[0].endswith(": executor exited with code 9")


@pytest.mark.once
@pytest.mark.parametrize("command", [["consume"], ["doctor"], ["check"]])
@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"command": "python"}, "the executor 'py': 'command' must be a list of strings"),
        ({"command": ["x"], "pool_size": 0}, "the executor 'py': 'pool_size' must be a whole number"),
        ({"command": ["x"], "shell": True}, "the executor 'py': 'shell' is none of"),
    ],
)
def test_a_malformed_executor_ends_every_command_with_one_line_and_code_78(
    command: list[str], about: dict[str, Any], words: str
) -> None:
    failed = manage(*command, ERGON_EXECUTORS=json.dumps({"py": about}))
    assert failed.returncode == os.EX_CONFIG
    assert failed.stderr.startswith(f"ergon: ERGON_EXECUTORS cannot be used: {words}")
    assert failed.stderr.count("\n") == 1


@pytest.mark.once
def test_settings_of_another_project_that_name_a_malformed_executor_are_code_78_too() -> None:
    class Broken(EngineCommand):
        def run(self, **_: Any) -> None:
            executors_in({"py": {"command": []}})

    with pytest.raises(CommandError, match="the executor 'py': 'command'") as caught:
        call_command(Broken())
    assert caught.value.returncode == os.EX_CONFIG
    assert isinstance(caught.value.__cause__, ExecutorConfigurationError)
