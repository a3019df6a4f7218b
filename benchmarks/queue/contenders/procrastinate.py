"""procrastinate: its asynchronous worker with the concurrency of its manual, 30."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.queue import database
from benchmarks.queue.contenders import in_thousands
from benchmarks.queue.jobs import payload

if TYPE_CHECKING:
    from benchmarks.queue.servers import Servers

APP = "benchmarks.queue.workers.procrastinate.app"
WORKER = [
    sys.executable,
    "-m",
    "procrastinate",
    "--app",
    APP,
    "--log-level",
    "warning",
    "worker",
    "--concurrency",
    "30",
]


@dataclass(frozen=True, slots=True)
class Procrastinate:
    name: str = "procrastinate"
    jobs: int = 2_000
    wakes: bool = True

    def environment(self, servers: "Servers") -> dict[str, str]:
        return {"BENCHMARK_DATABASE": servers.database("procrastinate")}

    def commands(self, processes: int, *, drain: bool) -> list[list[str]]:
        return [WORKER] * processes

    def install(self) -> None:
        from benchmarks.queue.workers import procrastinate

        procrastinate.opened().schema_manager.apply_schema()

    def prepare(self) -> None:
        database.execute("TRUNCATE procrastinate_jobs, procrastinate_events, procrastinate_workers CASCADE")

    def submit(self, number: int) -> None:
        from benchmarks.queue.workers import procrastinate

        procrastinate.opened().tasks["noop"].defer(carried=payload(number))

    def submit_many(self, numbers: range) -> None:
        from benchmarks.queue.workers import procrastinate

        task = procrastinate.opened().tasks["noop"]
        for thousand in in_thousands(numbers):
            task.batch_defer(*({"carried": payload(number)} for number in thousand))

    def settle_down(self) -> None:
        database.execute("VACUUM (ANALYZE)")

    def unsettled(self) -> int:
        return database.number("SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')")
