"""Programs that run handlers in other processes: whether this host can start them, and how workers fare with them."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Self

from engines.conf import settings
from engines.executors.settings import ExecutorSettings
from engines.reads.doctor.finding import Finding, ok, problem, warning
from engines.reads.executors import list_executors
from ergon_site.access.core.durations import span

# An executor waits for its first request; one that has ended by then never would have answered.
MOMENT = 2.0
GRACE = 1.0
LAST_WORDS = 2000


def executors() -> Iterator[Finding]:
    here = settings().executors
    if not here:
        yield ok("executors", "none is named in ERGON_EXECUTORS")
    with ExitStack() as trials:
        begun = [trials.enter_context(Trial(one)) for one in here.values()]
        until = time.monotonic() + MOMENT
        for trial in begun:
            yield trial.finding(until)
    # Those that keep dying on a worker.
    for executor in list_executors():
        for share in executor.shares:
            if deaths := share.deaths_in_a_row:
                wait = f", and starts again in {span(share.waits)}" if share.waits else ""
                text = f"{executor.name} died {deaths:,} times in a row on {share.worker}{wait}"
                fault = str(share.told.get("last_fault", ""))
                yield warning("executors", f"{text}: {fault}", "check its stderr in the worker's log")


class Trial:
    """An executor, started and left alone for a moment."""

    def __init__(self, executor: ExecutorSettings) -> None:
        self._executor = executor
        self._process: subprocess.Popen[bytes] | None = None
        self._fault = ""

    def __enter__(self) -> Self:
        self._said: IO[bytes] = TemporaryFile()
        self._fault = self._missing()
        if self._fault:
            return self
        try:
            self._process = subprocess.Popen(  # noqa: S603 (the program that an administrator has named)
                self._executor.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                cwd=self._executor.cwd,
                env=self._environment(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._fault = f"cannot be started: {error}"
        return self

    def __exit__(self, *_: object) -> None:
        """End it with all that it has started."""
        if (process := self._process) is not None:
            if process.stdin is not None:
                process.stdin.close()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._said.close()

    def finding(self, until: float) -> Finding:
        name, program, process = self._executor.name, self._executor.command[0], self._process
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            if process.returncode is None:
                return ok("executors", f"{name}: {program} starts and waits for work")
            size = self._said.seek(0, os.SEEK_END)
            self._said.seek(max(0, size - LAST_WORDS))
            lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
            last_line = f": {lines[-1].strip()}" if lines else ""
            self._fault = f"{program} ended at once with code {process.returncode}{last_line}"
        hint = "correct its 'command', 'cwd' or 'env' in ERGON_EXECUTORS, or install what it needs on this host"
        return problem("executors", f"{name}: {self._fault}", hint)

    def _missing(self) -> str:
        """The folder or program that this host lacks."""
        folder, program = self._executor.cwd, self._executor.command[0]
        if folder is not None and not Path(folder).is_dir():
            return f"there is no folder {folder}"
        path = self._environment().get("PATH")
        # With a slash it is a path, from the folder that it is started in.
        found = shutil.which(Path(folder or ".") / program if "/" in program else program, path=path)
        return "" if found else f"the program {program} is not found, or may not be run"

    def _environment(self) -> dict[str, str]:
        return {**settings().executor_environment, **self._executor.env}
