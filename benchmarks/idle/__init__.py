"""What every long-running process takes while nothing happens: of a core, and of memory.

A whole deployment on a fresh database, once on PostgreSQL and once on SQLite: one pipeline of each direction, five
boundaries, and all processes at once, since what one of them writes is seen by the others. Once all have been quiet for
a while, the kernel's count of the time that each has run, its children's included, is read twice, 20 s apart.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from benchmarks import goals as goals_of
from benchmarks.facts.over_http import free_port
from benchmarks.goals import Figure, at_most
from benchmarks.queue.children import FORGOTTEN

ROOT = Path(__file__).resolve().parents[2]
SECONDS, SETTLED_AFTER = 20.0, 30.0
BOUNDARIES = 5
CORE_GOAL, MEMORY_GOAL = 0.3, 90
DATABASES = ("PostgreSQL", "SQLite")
MANAGE = (sys.executable, "manage.py")
GRANIAN = str(Path(sys.executable).parent / "granian")
PROCESSES = {
    "consume": [*MANAGE, "consume"],
    "consume --processes 2, each": [*MANAGE, "consume", "--processes", "2"],
    "produce": [*MANAGE, "produce", "outbound"],
    f"forward, {BOUNDARIES} boundaries": [*MANAGE, "forward"],
    "maintain": [*MANAGE, "maintain"],
    "web": [GRANIAN, "--interface", "wsgi", "ergon_site.wsgi:application"],
}


def main() -> list[Figure]:
    (ROOT / "var").mkdir(exist_ok=True)
    measured = {}
    for name in DATABASES:
        with TemporaryDirectory(dir=ROOT / "var", prefix="benchmark-") as folder, ExitStack() as stack:
            Path(folder).chmod(0o755)
            measured[name] = _measured(_environment(name, Path(folder), stack), Path(folder), stack)
    figures = goals(measured)
    goals_of.show(figures)
    return figures


def goals(measured: Mapping[str, Mapping[str, tuple[float, float]]] = MappingProxyType({})) -> list[Figure]:
    figures = []
    for database in DATABASES:
        found = measured.get(database, {})
        for name in PROCESSES:
            share, memory = found.get(name, (None, None))
            figures.append(at_most(f"`{name}`, {database}", share, CORE_GOAL, "{:.2f} % of a core"))
            if name == "consume":
                figures.append(at_most(f"memory of `{name}`, {database}", memory, MEMORY_GOAL, "{:.0f} MiB"))
    return figures


def _environment(name: str, folder: Path, stack: ExitStack) -> dict[str, str]:
    from ergon_site import embedded

    kept = {key: value for key, value in os.environ.items() if not key.startswith(FORGOTTEN)}
    address = stack.enter_context(embedded.postgres(folder)) if name == "PostgreSQL" else f"sqlite:///{folder}/ergon"
    named = {"ERGON_DATA_DIR": str(folder), "DATABASE_URL": address, "ERGON_TASKS": "benchmarks.idle.tasks"}
    environment = kept | named
    prepare = [sys.executable, "-m", "benchmarks.idle.prepare"]
    subprocess.run(prepare, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 (ours)
    return environment


def _measured(environment: Mapping[str, str], folder: Path, stack: ExitStack) -> dict[str, tuple[float, float]]:
    """The percentage of a core and the mebibytes of each process."""
    running = {}
    for name, parts in PROCESSES.items():
        command = [*parts, "--port", str(free_port())] if name == "web" else parts
        with (folder / f"{name}.log").open("wb") as log:
            running[name] = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)  # noqa: S603 (ours)
        stack.callback(running[name].wait)
        stack.callback(running[name].terminate)
    quick = "--quick" in sys.argv
    time.sleep(5.0 if quick else SETTLED_AFTER)
    before, began = {name: _time_taken(one.pid) for name, one in running.items()}, time.monotonic()
    time.sleep(1.0 if quick else SECONDS)
    after, seconds = {name: _time_taken(one.pid) for name, one in running.items()}, time.monotonic() - began
    for name, one in running.items():
        if one.poll() is not None:
            sys.exit(f"{name} has ended with {one.returncode}: {(folder / f'{name}.log').read_text()}")
    # The parent of several processes is counted with them.
    count = {name: 2 if "--processes" in name else 1 for name in running}
    return {
        name: (100 * (after[name] - before[name]) / seconds / count[name], _memory(one.pid))
        for name, one in running.items()
    }


def _time_taken(process: int) -> float:
    """The seconds that the threads of a process and of its children have run."""
    paths = (path for one in _family(process) for path in Path(f"/proc/{one}/task").glob("*/schedstat"))
    return sum(int(path.read_text().split()[0]) for path in paths) / 1e9


def _memory(process: int) -> float:
    """The most that one of them has in memory."""
    lines = (line for one in _family(process) for line in Path(f"/proc/{one}/status").read_text().splitlines())
    return max(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _family(process: int) -> Iterator[int]:
    yield process
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for child in path.read_text().split():
            yield from _family(int(child))
