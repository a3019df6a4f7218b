"""dramatiq on Valkey: 8 threads in each process. It has no call that sends many: `submit_many` sends one by one."""

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.queue.jobs import payload

if TYPE_CHECKING:
    from benchmarks.queue.servers import Servers

WORKER = [sys.executable, "-m", "dramatiq", "benchmarks.queue.workers.dramatiq", "--threads", "8"]


@dataclass(frozen=True, slots=True)
class Dramatiq:
    name: str = "dramatiq, 8 threads"
    jobs: int = 6_000
    wakes: bool = False

    def environment(self, servers: "Servers") -> dict[str, str]:
        return {"BENCHMARK_BROKER": servers.broker("valkey")}

    def commands(self, processes: int, *, drain: bool) -> list[list[str]]:
        return [[*WORKER, "--processes", str(processes)]]

    def install(self) -> None: ...

    def prepare(self) -> None:
        from benchmarks.queue.workers.dramatiq import broker

        broker.flush_all()

    def submit(self, number: int) -> None:
        from benchmarks.queue.workers.dramatiq import noop

        noop.send(payload(number))

    def submit_many(self, numbers: range) -> None:
        for number in numbers:
            self.submit(number)

    def settle_down(self) -> None: ...

    def unsettled(self) -> int:
        from redis import Redis

        return int(Redis.from_url(os.environ["BENCHMARK_BROKER"]).hlen("dramatiq:default.msgs"))
