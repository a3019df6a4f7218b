"""Celery: one prefork child for each worker, a generous prefetch, no results; its other settings as they come.

It has no call that publishes many: `submit_many` publishes one after the other, over one connection.
"""

import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.queue.jobs import payload

if TYPE_CHECKING:
    from benchmarks.queue.servers import Servers

APP = "benchmarks.queue.workers.celery"
WORKER = [sys.executable, "-m", "celery", "--app", APP, "worker", "--pool", "prefork", "--concurrency", "1"]
QUICK = ["--prefetch-multiplier", "128", "--without-gossip", "--without-mingle", "--loglevel", "WARNING"]


@dataclass(frozen=True, slots=True)
class Celery:
    name: str
    broker: str
    jobs: int = 4_000
    wakes: bool = True

    def environment(self, servers: "Servers") -> dict[str, str]:
        return {"BENCHMARK_BROKER": servers.broker(self.broker)}

    def commands(self, processes: int, *, drain: bool) -> list[list[str]]:
        return [[*WORKER, *QUICK, "--hostname", f"worker{number}@localhost"] for number in range(processes)]

    def install(self) -> None: ...

    def prepare(self) -> None:
        from benchmarks.queue.workers.celery import app

        app.control.purge()

    def submit(self, number: int) -> None:
        from benchmarks.queue.workers.celery import noop

        noop.delay(payload(number))

    def submit_many(self, numbers: range) -> None:
        from benchmarks.queue.workers.celery import app, noop

        with app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                noop.apply_async((payload(number),), producer=producer)

    def settle_down(self) -> None: ...

    def unsettled(self) -> int:
        from amqp.exceptions import ChannelError

        from benchmarks.queue.workers.celery import app

        with app.connection_for_read() as connection, suppress(ChannelError):
            queue = connection.default_channel.queue_declare(app.conf.task_default_queue, passive=True)
            return int(queue.message_count)
        # In Valkey an empty queue is none.
        return 0
