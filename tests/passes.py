"""`python -m tests.passes`: the whole suite, in passes that run side by side.

Tests wait for another process, or for a limit to pass, as much as they compute: one after the other, the passes would
leave most of the machine idle. Each has servers, a database and folders of its own; those on the same kind of database
copy one that was migrated, and hand out the modules among themselves. The first is read as it runs, and what the others
have said meanwhile follows, so that no two are mixed.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import find, strategies

from tests import handout, servers, warm

CORE = ("tests/core", "--cov", "--cov-report=term-missing:skip-covered", "--cov-fail-under=100")
# As many as keep two cores busy.
PASSES = {"sqlite": 5, "postgresql": 5}
# On servers that are given, one pass would take what another has sent.
SHARED = {"TEST_DATABASE_URL", "TEST_REDIS_URL", "TEST_RABBITMQ_URL"}
GLANCE, PATIENCE = 0.2, 20.0
INTERRUPTED, TOLD_TO_END = 130, 143
IN_ORDER = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}


@dataclass(frozen=True, slots=True)
class Pass:
    """A part of the suite that runs, and what it says."""

    name: str
    process: subprocess.Popen[Any]
    said: IO[bytes]

    def follow(self) -> int:
        """Tell what it has said and will say, until it has ended; its code."""
        print(f"\n{self.name}:", flush=True)
        code = None
        while code is None:
            code = self.process.poll()
            sys.stdout.buffer.write(self.said.read())
            sys.stdout.flush()
            time.sleep(GLANCE if code is None else 0)
        return code


@dataclass(frozen=True, slots=True)
class Template:
    """A folder with a database that is being migrated."""

    folder: Path
    process: subprocess.Popen[Any]

    def made(self) -> Path:
        """Wait until its database is migrated."""
        if code := self.process.wait():
            sys.exit(code)
        return self.folder


def main(arguments: Sequence[str]) -> int:
    """Run every pass, with these arguments for each but the core's: its coverage is of all its tests."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TOLD_TO_END))
    with servers.stack, ExitStack() as stack:
        folders = {kind: Path(stack.enter_context(tempfile.TemporaryDirectory())) for kind in PASSES}
        passes = _start(stack, folders, arguments)
        codes = {one.name: one.follow() for one in (passes if SHARED & set(os.environ) else list(passes))}
        incomplete = [kind for kind, folder in folders.items() if not handout.is_complete(folder)]
    print()
    for name, code in codes.items():
        print(f"{name}: {'in order' if code in IN_ORDER else f'FAILED ({code})'}")
    for kind in incomplete:
        print(f"{kind}: FAILED (not every test was run)")
    is_core_well = codes.pop("core") == pytest.ExitCode.OK
    # What the arguments choose need not be in every pass, but must be in one.
    is_well = set(codes.values()) <= IN_ORDER and pytest.ExitCode.OK in codes.values()
    return int(not (is_core_well and is_well) or bool(incomplete))


def _start(stack: ExitStack, folders: Mapping[str, Path], arguments: Sequence[str]) -> Iterator[Pass]:
    _remember_characters()
    yield stack.enter_context(_running("core", CORE))
    is_shared = bool(SHARED & set(os.environ))
    templates = {} if is_shared else {kind: stack.enter_context(_migrating(kind)) for kind in folders}
    for kind, folder in folders.items():
        chosen = [f"--database={kind}", f"--handout={folder}", "--ignore=tests/core", *arguments]
        if kind in templates:
            chosen.append(f"--template={templates[kind].made()}")
        for number in range(1, PASSES[kind] + 1):
            yield stack.enter_context(_running(f"{kind} {number}", chosen))


def _remember_characters() -> None:
    """Whoever draws the first text in a clone lists all of Unicode, for seconds: once, not in every pass."""
    find(strategies.text(), lambda _text: True)


@contextmanager
def _migrating(kind: str) -> Iterator[Template]:
    with (
        servers.data_folder() as folder,
        warm.start_module("tests.template", [kind, str(folder)], _environment()) as process,
    ):
        try:
            yield Template(folder, process)
        finally:
            _end(process)


@contextmanager
def _running(name: str, arguments: Sequence[str]) -> Iterator[Pass]:
    options = ["-o", f"cache_dir=.pytest_cache/{name}", *_colour(), *arguments]
    with tempfile.NamedTemporaryFile(prefix="ergon-pass-") as said:
        pipes: dict[str, Any] = {"stdout": said, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        with Path(said.name).open("rb") as reading, _pytest(name, options, **pipes) as process:
            try:
                yield Pass(name, process, reading)
            except KeyboardInterrupt:  # which it has heard, too: the terminal tells all
                _wait_for(process)
                raise
            finally:
                _end(process)


def _pytest(name: str, options: Sequence[str], **pipes: Any) -> "subprocess.Popen[Any]":
    """Forked from a process that has Ergon loaded; but the core's coverage counts what runs as it is loaded."""
    if name == "core":
        return subprocess.Popen([sys.executable, "-m", "pytest", *options], env=_environment(), **pipes)
    return warm.start_module("tests.one_pass", options, _environment(), **pipes)


def _environment() -> dict[str, str]:
    """Without bytecode, each process would compile anew what it loads."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _colour() -> list[str]:
    return ["--color=yes"] if sys.stdout.isatty() else []


def _wait_for(process: subprocess.Popen[Any]) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)


def _end(process: subprocess.Popen[Any]) -> None:
    """Interrupted, it puts its servers and folders away; but one that hangs must not hold up the others."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        _wait_for(process)
        process.kill()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
