"""Executors on every worker, as of its last heartbeat, and the job of a payload."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from engines import workers
from engines.conf import settings
from engines.executors.protocol import ProtocolError, Target, target_of
from engines.models import Pipeline, TransactionRecord, Worker
from ergon_site.access.database.clock import database_time

# Of one executor on one worker; those with a job come first.
SHOWN = 20
DIED = "ExecutorDied"


class Process(NamedTuple):
    """A process of an executor; `record` is the row of its current job."""

    pid: int
    job: str | None
    record: int | None
    answered: int
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """An executor on one worker, as of its last heartbeat."""

    name: str
    worker: Worker
    heard: float
    told: dict[str, Any]
    processes: list[Process]
    is_alive: bool

    @property
    def total(self) -> int:
        return len(self.told.get("processes", []))

    @property
    def unshown(self) -> int:
        return self.total - len(self.processes)

    @property
    def busy(self) -> int:
        return sum(1 for one in self.told.get("processes", []) if one.get("job"))

    @property
    def waits(self) -> float:
        """Seconds until it may start again, by now: it was told some time ago."""
        return max(0.0, float(self.told.get("starts_again_in", 0.0)) - self.heard) if self.is_alive else 0.0

    @property
    def deaths_in_a_row(self) -> int:
        return int(self.told.get("deaths_in_a_row", 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """An executor that ERGON_EXECUTORS names here, that a living worker has used, or that a pipeline runs."""

    name: str
    program: str
    pool_size: int | None
    is_configured: bool
    pipelines: list[Pipeline]
    shares: list[Share]

    @property
    def standing(self) -> str:
        if any(share.deaths_in_a_row for share in self.shares):
            return "backing off" if any(share.waits for share in self.shares) else "failing"
        if any(share.busy for share in self.shares):
            return "working"
        return "idle" if any(share.total for share in self.shares) else "not started"

    @property
    def totals(self) -> dict[str, int]:
        names = ("answered", "started", "died", "killed", "skipped")
        return {name: sum(int(share.told.get(name, 0)) for share in self.shares) for name in names}


def list_executors() -> list[Executor]:
    """Every executor that anybody here knows, by name."""
    shares = _shares(workers.alive())
    pipelines: dict[str, list[Pipeline]] = {}
    for pipeline in Pipeline.objects.exclude(executor=""):
        pipelines.setdefault(pipeline.executor, []).append(pipeline)
    found = []
    for name in sorted({*settings().executors, *(share.name for share in shares), *pipelines}):
        own, here = [share for share in shares if share.name == name], settings().executors.get(name)
        seen = own[0].told if own else {}
        executor = Executor(
            name=name,
            program=here.command[0] if here else str(seen.get("program", "")),
            pool_size=here.pool_size if here else seen.get("pool_size"),
            is_configured=here is not None,
            pipelines=pipelines.get(name, []),
            shares=own,
        )
        found.append(executor)
    return found


def _shares(found: Iterable[Worker]) -> list[Share]:
    told = [(worker, one) for worker in found for one in worker.executors]
    if not told:
        return []
    jobs = [process["job"] for _, one in told for process in _shown(one) if process.get("job")]
    records = dict(TransactionRecord.objects.filter(uid__in=jobs).values_list("uid", "pk")) if jobs else {}
    now, shares = database_time(), []
    for worker, one in told:
        is_alive = workers.is_alive(worker, now)
        share = Share(
            name=str(one.get("name", "")),
            worker=worker,
            heard=max(0.0, (now - worker.heartbeat_at).total_seconds()),
            told=one if is_alive else one | {"processes": []},
            processes=[
                Process(
                    pid=int(process.get("pid", 0)),
                    job=process.get("job"),
                    record=records.get(process.get("job") or ""),
                    answered=int(process.get("answered", 0)),
                    since=datetime.fromisoformat(process["since"]) if process.get("since") else None,
                )
                for process in (_shown(one) if is_alive else [])
            ],
            is_alive=is_alive,
        )
        shares.append(share)
    return shares


def _shown(told: dict[str, Any]) -> list[dict[str, Any]]:
    processes: list[dict[str, Any]] = told.get("processes", [])
    return sorted(processes, key=lambda process: int(process.get("pid", 0)))[:SHOWN]


def of_worker(worker: Worker) -> list[Share]:
    return _shares([worker])


def job_of(pipeline: Pipeline | None, payload: Any) -> Target | None:
    """The executor and the handler that a payload names; None if it is no job."""
    if pipeline is None or not pipeline.executor:
        return None
    try:
        return target_of(payload.get("function") if isinstance(payload, dict) else None, pipeline.executor)
    except ProtocolError:
        return Target(pipeline.executor, "")


def is_stderr(pipeline: Pipeline | None, error_type: str | None, text: str | None) -> bool:
    """Whether what is kept as a failure's traceback is what an executor wrote to its stderr."""
    if pipeline is None or not pipeline.executor or not text:
        return False
    # An executor in Python dies with a traceback on its stderr; what fails on this side has one of its own.
    return error_type == DIED or not text.startswith(("Traceback ", "engines."))
