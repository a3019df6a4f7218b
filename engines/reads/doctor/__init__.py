"""Is everything well, and if not, what is to be done? Looks at what `manage.py doctor` tells; changes nothing."""

from collections.abc import Callable, Iterator

from django.utils.module_loading import import_string

from engines.conf import settings
from engines.core.errors import error_text
from engines.reads.doctor import executors, fleet, ground, work
from engines.reads.doctor.finding import Finding, Level, problem

__all__ = ["Finding", "Level", "examine"]

Check = Callable[[], Iterator[Finding]]

# Everything that follows asks the database for rows, so each of these must hold before the next is tried.
GROUND: list[Check] = [ground.database, ground.migrations]
REST: list[Check] = [
    ground.connection_pooler,
    ground.clock,
    ground.statistics,
    ground.snapshots,
    ground.broker,
    ground.disk,
    work.tasks,
    work.pipelines,
    work.policies,
    executors.executors,
    fleet.waiting_work,
    fleet.connections,
    fleet.maintenance,
    fleet.lost_workers,
]


def examine() -> Iterator[Finding]:
    """Every finding, as it is found."""
    for check in GROUND:
        findings = list(_run(check))
        yield from findings
        if any(finding.level is Level.PROBLEM for finding in findings):
            yield from _run(ground.disk)
            return
    for check in (*REST, *map(import_string, settings().findings)):
        yield from _run(check)


def _run(check: Check) -> Iterator[Finding]:
    """A check that fails itself is a finding too, and keeps nobody from the others."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 (whatever it is, the doctor goes on)
        name = check.__name__.replace("_", " ")
        yield problem(name, f"could not be checked: {type(error).__name__}: {error_text(error)}", "see the message")
