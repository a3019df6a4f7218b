"""Ergon's verbs in a loop of one thread, without an engine: what its statements alone allow."""

import time
from dataclasses import dataclass

from benchmarks.queue.children import own_worker
from benchmarks.queue.contenders.ergon import Ergon
from benchmarks.queue.jobs import enter

BATCH = 100


@dataclass(frozen=True, slots=True)
class Verbs(Ergon):
    name: str = "Ergon's verbs alone"
    wakes: bool = False

    def commands(self, processes: int, *, drain: bool) -> list[list[str]]:
        return [own_worker("verbs")] * processes

    def work(self) -> None:
        """Claim a hundred, enter each, settle them with the two attempts that an engine would have made of each."""
        import django

        django.setup()
        from engines import pipelines, transactions, workers
        from engines.core.attempt import AttemptRecord
        from engines.core.outcome import Success
        from engines.core.steps import Stage

        pipeline, worker = pipelines.find(self.pipeline).pk, workers.enrol([self.pipeline]).pk
        success = Success(None)
        while claimed := transactions.claim(pipeline, BATCH, worker):
            for one in claimed:
                started = time.monotonic()
                enter(one.payload["number"])
                for stage in (Stage.PROCESS, Stage.SUCCESS):
                    one.lease.attempts.append((AttemptRecord(stage, 1, 1, started, 0.0, success), None))
            transactions.settle([transactions.Settlement(one, success) for one in claimed], worker=worker)
        workers.retire(worker)
