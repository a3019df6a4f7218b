"""Ergon: `manage.py consume` on a pipeline with 8 threads and batches of 100."""

import statistics
import sys
import time
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.queue.jobs import payload

if TYPE_CHECKING:
    from collections.abc import Callable

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
    idle: int = 0  # pipelines without work that the same worker serves

    def environment(self, servers: "Servers") -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": "ergon_site.settings",
            "ERGON_DATA_DIR": str(servers.folder),
            "ERGON_TASKS": "benchmarks.queue.workers.ergon",
            "DATABASE_URL": servers.database("ergon"),
        }

    def commands(self, processes: int, *, drain: bool) -> list[list[str]]:
        # Pipelines without work would end a drain of theirs at once.
        options = ["--drain"] if drain and not self.idle else []
        if processes > 1:
            options += ["--processes", str(processes)]
        return [[sys.executable, "manage.py", "consume", *self._pipelines(), *options]]

    def _pipelines(self) -> list[str]:
        return [self.pipeline, *(f"{self.pipeline}-{number}" for number in range(1, self.idle + 1))]

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
        known = set(Pipeline.objects.values_list("name", flat=True))
        for name in self._pipelines():
            if name not in known:
                pipelines.create(name, pipelines.Plan(task="benchmarks.noop", policy=self.policy), by=BY)

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

    def own_time(self, count: int) -> float:
        """Milliseconds of the middle `submit` in a transaction, beyond those of its statement."""
        import psycopg
        from django.db import connection, transaction
        from uuid_utils import uuid7

        from engines.transactions import payloads
        from engines.transactions.statements.postgresql import INSERT_PLAIN

        def insert(number: int) -> None:
            text = payloads.encode(payload(number), limit=10_000)
            document = f'[{{"payload":{text},"uid":"{uuid7()}"}}]'
            psycopg.Cursor(connection.connection).execute(INSERT_PLAIN, [self.pipeline, document, 1]).fetchall()

        took: dict[Callable[[int], None], list[float]] = {self.submit: [], insert: []}
        for number in range(count):
            for function, times in took.items():
                with transaction.atomic():
                    started = time.perf_counter()
                    function(number)
                    times.append(time.perf_counter() - started)
        whole, statement = (statistics.median(times) for times in took.values())
        return 1e3 * (whole - statement)

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
