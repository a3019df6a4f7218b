"""Ergon: `manage.py consume` on a pipeline with 8 threads and batches of 100."""

import sys
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.queue.jobs import payload

if TYPE_CHECKING:
    from benchmarks.queue.servers import Servers

BY = "benchmark"
REASON = "To be measured"


@dataclass(frozen=True, slots=True)
class Ergon:
    name: str = "Ergon"
    pipeline: str = "plain"
    policy: str = "without-limits"
    jobs: int = 20_000
    wakes: bool = True

    def environment(self, servers: "Servers") -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": "ergon_site.settings",
            "ERGON_DATA_DIR": str(servers.folder),
            "ERGON_TASKS": "benchmarks.queue.workers.ergon",
            "DATABASE_URL": servers.database("ergon"),
        }

    def commands(self, processes: int, *, drain: bool) -> list[list[str]]:
        options = ["--drain"] if drain else []
        if processes > 1:
            options += ["--processes", str(processes)]
        return [[sys.executable, "manage.py", "consume", self.pipeline, *options]]

    def install(self) -> None:
        _set_up()
        from django.core.management import call_command

        from engines import pipelines, policies
        from engines.models import Pipeline, Policy

        call_command("migrate", verbosity=0)
        if not Policy.objects.filter(name=self.policy).exists():
            shipped = policies.find("default").active
            assert shipped is not None  # noqa: S101 (a migration makes it)
            policies.write(self.policy, self.body(shipped.body), kind="consumer", by=BY, reason=REASON)
        if not Pipeline.objects.filter(name=self.pipeline).exists():
            pipelines.create(self.pipeline, pipelines.Plan(task="benchmarks.noop", policy=self.policy), by=BY)

    def body(self, shipped: dict[str, Any]) -> dict[str, Any]:
        """The policy, made of the one that is shipped: without limits."""
        unlimited = deepcopy(shipped)
        for step in unlimited["steps"].values():
            step["retry"]["timeout"] = None
        return unlimited

    def prepare(self) -> None:
        _set_up()
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE engines_transactionrecord, engines_attempt, engines_throughput")

    def submit(self, number: int) -> None:
        from engines import transactions

        transactions.submit(self.pipeline, payload(number))

    def submit_many(self, numbers: range) -> None:
        from engines import transactions

        transactions.submit_many(self.pipeline, (transactions.Draft(payload(number)) for number in numbers))

    def create_bare(self, numbers: range) -> None:
        """The same rows by the ORM alone."""
        from uuid_utils import uuid7

        from engines.models import Pipeline, TransactionRecord

        pipeline = Pipeline.objects.get(name=self.pipeline)
        for number in numbers:
            TransactionRecord.objects.create(uid=str(uuid7()), pipeline=pipeline, payload=payload(number))

    def settle_down(self) -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("VACUUM (ANALYZE)")

    def unsettled(self) -> int:
        from engines.models import TransactionRecord

        return TransactionRecord.objects.filter(finished_at=None).count()


def _set_up() -> None:
    import django

    django.setup()
