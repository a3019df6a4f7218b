"""How long commands take that do little: the start of Python, Django and Ergon.

On PostgreSQL, with a database that is up to date, and with compiled modules at hand: each command is run once before.
Commands take turns; a figure is the median. The CPU time depends less than the other on what else a machine does.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory
from types import MappingProxyType

from benchmarks import goals as goals_of
from benchmarks.goals import Figure, at_most
from benchmarks.queue.children import FORGOTTEN

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 7
GOAL = 0.7
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "Django alone": ["-c", "import django.core.management as m; m.execute_from_command_line(['', 'help'])"],
    **{
        name: ["manage.py", *name.split()]
        for name in ("help", "status", "pipeline list", "dead_letters", "submit orders --payload 1", "check")
    },
}
# The first two are for comparison, and the third looks at every page of the console.
WITHOUT_GOAL = ("python -c pass", "Django alone", "check")


def main() -> list[Figure]:
    rounds = 1 if "--quick" in sys.argv else ROUNDS
    (ROOT / "var").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=ROOT / "var", prefix="benchmark-") as folder, ExitStack() as stack:
        Path(folder).chmod(0o755)
        environment = _environment(Path(folder), stack)
        _run(["manage.py", "migrate", "--verbosity=0"], environment)
        _run(["manage.py", "pipeline", "create", "orders", "--task", "orders.book"], environment)
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
        for number in range(rounds + 1):
            for name, command in COMMANDS.items():
                took = _run(command, environment)
                if number:
                    measured[name].append(took)
    print(f"{'':32} {'seconds':>8} {'of CPU':>8}")
    reached = {}
    for name, taken in measured.items():
        wall, cpu = (statistics.median(figures) for figures in zip(*taken, strict=True))
        print(f"{name:32} {wall:8.2f} {cpu:8.2f}")
        reached[name] = wall
    figures = goals(reached)
    goals_of.show(figures)
    return figures


def goals(seconds: Mapping[str, float] = MappingProxyType({})) -> list[Figure]:
    return [
        at_most(f"`{name}`", seconds.get(name), None if name in WITHOUT_GOAL else GOAL, "{:.2f} s") for name in COMMANDS
    ]


def _environment(folder: Path, stack: ExitStack) -> dict[str, str]:
    from ergon_site import embedded

    kept = {key: value for key, value in os.environ.items() if not key.startswith((*FORGOTTEN, "PYTHONDONT"))}
    return kept | {"ERGON_DATA_DIR": str(folder), "DATABASE_URL": stack.enter_context(embedded.postgres(folder))}


def _run(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """The seconds that a command took, and those of the CPU."""
    before, started = getrusage(RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, *command], env=environment, cwd=ROOT, check=True, capture_output=True)  # noqa: S603 (ours)
    wall, after = time.monotonic() - started, getrusage(RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
