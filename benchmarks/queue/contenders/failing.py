"""Ergon with the shipped policy, and before its jobs a thousand that fail and wait a minute for their next attempt."""

from copy import deepcopy
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from benchmarks.queue.contenders.ergon import Ergon
from benchmarks.queue.jobs import FAILING, payload

COUNT = 1000


@dataclass(frozen=True, slots=True)
class Failing(Ergon):
    name: str = "Ergon, 1,000 retries waiting"
    pipeline: str = "failing"
    policy: str = "waiting-for-a-minute"
    wakes: bool = False

    def commands(self, processes: int, *, drain: bool) -> list[list[str]]:
        """It never drains, which would take until the last of their attempts."""
        return Ergon.commands(self, processes, drain=False)

    def body(self, shipped: dict[str, Any]) -> dict[str, Any]:
        patient = deepcopy(shipped)
        patient["steps"]["process"]["retry"] |= {"backoff": 60, "backoff_cap": 0}
        return patient

    def submit_many(self, numbers: range) -> None:
        from engines import transactions

        # They have failed, and wait, before the jobs that warm up are done.
        payloads = chain(repeat(payload(FAILING), COUNT), map(payload, numbers))
        transactions.submit_many(self.pipeline, map(transactions.Draft, payloads))

    def unsettled(self) -> int:
        from engines.models import TransactionRecord

        return TransactionRecord.objects.filter(finished_at=None, error=None).count()
