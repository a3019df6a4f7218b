"""Checks of workers, connections and maintenance."""

from collections.abc import Iterator
from datetime import timedelta

from django.db import connection

from engines import workers
from engines.core.states import State, WorkerState
from engines.models import BulkOperation, Pipeline, Schedule, TransactionRecord, Worker
from engines.reads.doctor.finding import Finding, graded, ok, problem, warning
from ergon_site.access.cli.program import typed
from ergon_site.access.core.durations import span
from ergon_site.access.database.clock import database_time

RECENTLY = timedelta(days=1)
COUNTED = 10_000
FEW_LEFT = 0.1
# Sessions of all databases; those kept back for administrators are out of reach.
CONNECTIONS = """
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - COALESCE(current_setting('reserved_connections', true), '0')::int
"""


def waiting_work() -> Iterator[Finding]:
    """Pipelines that have due transactions and no worker."""
    living, is_served = list(workers.alive()), True
    served = {name for worker in living for name in worker.pipelines}
    for pipeline in Pipeline.objects.all():
        if pipeline.name in served:
            continue
        rows = TransactionRecord.objects.filter(
            pipeline=pipeline, state=State.PENDING.value, available_at__lte=database_time()
        )
        count = rows.order_by("-priority", "available_at")[:COUNTED].count()
        if not count:
            continue
        is_served = False
        many = f"{count:,}{'+' if count == COUNTED else ''} due in {pipeline.name}"
        if pipeline.is_paused:
            hint = typed(f"resume {pipeline.name} --reason …")
            yield warning("workers", f"{many}, which was paused by {pipeline.paused_by}", hint)
        else:
            command = typed("consume" if pipeline.direction == "inbound" else "produce")
            yield problem("workers", f"{many}, which no worker serves", f"run {command} {pipeline.name}")
    if is_served:
        yield ok("workers", f"{len(living):,} alive; every pipeline with due work has a worker")


def connections() -> Iterator[Finding]:
    """Whether the server has connections for those workers that are there, and for one more."""
    if connection.vendor != "postgresql":
        yield ok("connections", "every process opens the file itself")
        return
    with connection.cursor() as cursor:
        cursor.execute(CONNECTIONS)
        used, most = cursor.fetchone()
    living, needed = workers.alive().count(), workers.CONNECTIONS
    who = f"{living:,} worker needs" if living == 1 else f"{living:,} workers need"
    text = f"{used:,} of {most:,} connections in use; {who} up to {living * needed:,}, and those of their handlers"
    hint = "raise max_connections, use fewer processes, or put a pooler before the server: see Pool connections"
    left = most - used
    yield graded("connections", text, hint, is_problem=left < needed, is_warning=left < most * FEW_LEFT)


def maintenance() -> Iterator[Finding]:
    leader = workers.leader(workers.MAINTENANCE)
    if leader is not None:
        yield ok("maintenance", f"run by {leader}")
        return
    hint = f"run {typed('maintain')}, on one host or on several"
    counts = {
        "active schedules": Schedule.objects.filter(paused_at=None).count(),
        "running bulk operations": BulkOperation.objects.filter(state="running").count(),
    }
    if due := ", ".join(f"{what}: {count:,}" for what, count in counts.items() if count):
        yield problem("maintenance", f"no process runs it, but there is work for it: {due}", hint)
    else:
        yield warning("maintenance", "no process runs it", hint)


def lost_workers() -> Iterator[Finding]:
    now = database_time()
    died = Worker.objects.filter(state=WorkerState.DEAD.value, stopped_at__gt=now - RECENTLY).count()
    silent = list(workers.silent())
    for worker in silent:
        text = f"{worker} has been silent for {span((now - worker.heartbeat_at).total_seconds())}"
        yield warning("lost workers", text, "check its host; its transactions are rescued when its lease has expired")
    if died:
        text = f"{died:,} died within a day"
        yield warning("lost workers", text, "check the logs of their hosts: memory, restarts, crashes")
    if not silent and not died:
        yield ok("lost workers", "none within a day")
