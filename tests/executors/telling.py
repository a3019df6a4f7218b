"""What workers tell of their executors, made up for pages and commands."""

from typing import Any

from engines import workers
from engines.models import Worker


def process(pid: int = 4711, job: str | None = None) -> dict[str, Any]:
    return {"pid": pid, "job": job, "answered": 3, "since": "2026-01-01T10:00:00+00:00"}


def told(name: str = "python", *processes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What a worker tells of one executor."""
    counts = {"started": 2, "answered": 5, "died": 1, "killed": 3, "skipped": 7}
    state = {"deaths_in_a_row": 0, "starts_again_in": 0.0, "last_fault": ""}
    about = {"name": name, "program": "/usr/bin/x", "pool_size": 2, "processes": list(processes)}
    return {**about, **counts, **state, **changes}


def working(*executors: dict[str, Any]) -> Worker:
    """A worker that has told of its executors."""
    worker = workers.enrol(["jobs"])
    beat(worker, *executors)
    worker.refresh_from_db()
    return worker


def beat(worker: Worker, *executors: dict[str, Any]) -> None:
    workers.beat(worker, in_flight=0, abandoned=0, settled=0, is_stopping=False, executors=executors)
