"""Programs that run handlers in other processes: whether this host can start them, and how workers fare with them."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from engines.conf import settings
from engines.core import failures
from engines.executors.child import Child
from engines.executors.errors import ExecutorStartError
from engines.executors.settings import ExecutorSettings
from engines.reads.doctor.finding import Finding, ok, problem, warning
from engines.reads.executors import list_executors
from ergon_site.access.core.durations import span

# An executor waits for its first request; one that has ended by then never would have answered.
MOMENT = 2.0
LAST_WORDS = 1 << 16


def executors() -> Iterator[Finding]:
    here = settings().executors
    if not here:
        yield ok("executors", "none is named in ERGON_EXECUTORS")
    with ExitStack() as trials:
        begun = [(one, trials.enter_context(_started(one))) for one in here.values()]
        until = time.monotonic() + MOMENT
        for executor, started in begun:
            yield _finding(executor, started, until)
    # Those that keep dying on a worker.
    for known in list_executors():
        for share in known.shares:
            if deaths := share.deaths_in_a_row:
                wait = f", and starts again in {span(share.waits)}" if share.waits else ""
                text = f"{known.name} died {deaths:,} times in a row on {share.worker}{wait}"
                fault = str(share.told.get("last_fault", ""))
                yield warning("executors", f"{text}: {fault}", "check its stderr in the worker's log")


@contextmanager
def _started(executor: ExecutorSettings) -> Iterator[Child | str]:
    """An executor, at last ended with all that it has started; or why this host cannot start it."""
    folder, program, environment = executor.cwd, executor.command[0], settings().executor_environment
    if folder is not None and not Path(folder).is_dir():
        yield f"there is no folder {folder}"
        return
    path = {**environment, **executor.env}.get("PATH")
    # With a slash it is a path, from the folder that it is started in.
    if not shutil.which(Path(folder or ".") / program if "/" in program else program, path=path):
        yield f"the program {program} is not found, or may not be run"
        return
    try:
        child = Child(executor, environment)
    except ExecutorStartError as error:
        yield str(error).removeprefix(f"executor {executor.name!r} ")
        return
    try:
        yield child
    finally:
        child.kill()
        child.close()
        child.stderr.close()


def _finding(executor: ExecutorSettings, started: Child | str, until: float) -> Finding:
    name, program, fault = executor.name, executor.command[0], started
    if isinstance(started, Child):
        if not started.has_ended(max(0.0, until - time.monotonic())):
            return ok("executors", f"{name}: {program} starts and waits for work")
        os.set_blocking(started.stderr.fileno(), False)
        said = (started.stderr.read(LAST_WORDS) or b"").decode("utf-8", "replace")
        lines = failures.without_secrets(said).strip().splitlines()
        last_line = f": {lines[-1].strip()}" if lines else ""
        fault = f"{program} ended at once with code {started.code}{last_line}"
    hint = "correct its 'command', 'cwd' or 'env' in ERGON_EXECUTORS, or install what it needs on this host"
    return problem("executors", f"{name}: {fault}", hint)
