"""VERBS of workers: enrol, beat, retire, notice the dead, and lead the maintenance."""

import os
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import DurationField, ExpressionWrapper, F, Q, QuerySet
from django.db.models.functions import Now

from engines.conf import settings
from engines.core.states import WorkerState
from engines.models import Leadership, Worker
from engines.models.workers import RELEASE
from ergon_site.access.database.clock import database_time

# What a process needs at most, however many pipelines it serves: to renew, to settle, to listen, and two to claim.
CONNECTIONS = 5
MAINTENANCE = "maintain"
TERM = timedelta(seconds=15)
ALIVE = (WorkerState.RUNNING.value, WorkerState.STOPPING.value)


def enrol(pipelines: list[str]) -> Worker:
    """A row for this process, which begins to run transactions."""
    about = {"host": socket.gethostname(), "pid": os.getpid(), "release": settings().release[:RELEASE]}
    worker = Worker(**about, pipelines=pipelines, lease=settings().lease)
    worker.save()
    return worker


def beat(worker: Worker, *, is_stopping: bool, **in_hand: Any) -> None:
    """Record a heartbeat and the work in hand, by column. A worker that was thought dead is alive again."""
    state = WorkerState.STOPPING if is_stopping else WorkerState.RUNNING
    row, told = Worker.objects.filter(pk=worker.pk), {"heartbeat_at": Now(), "state": state.value, **in_hand}
    if not row.update(**told):
        # A replica that was promoted may lack its row. Under the same id: its leases name it.
        Worker.objects.bulk_create([worker], ignore_conflicts=True)
        row.update(**told)


def retire(
    worker_id: int, *, settled: int = 0, note: str = "", executors: Sequence[dict[str, Any]] | None = None
) -> None:
    """Record that a worker has ended in order."""
    last_words = {} if executors is None else {"executors": list(executors)}
    Worker.objects.filter(pk=worker_id).update(
        state=WorkerState.STOPPED.value, in_flight=0, settled=settled, stopped_at=Now(), note=note, **last_words
    )


def mark_dead(worker_id: int, *, note: str) -> None:
    """Record that a worker is known to have died."""
    enrolled().filter(pk=worker_id).update(**_death(note))


def notice_the_dead() -> int:
    """Workers whose heart has not beaten for a lease."""
    return silent().update(**_death("no heartbeat within its lease"))


def forget(*, older_than: timedelta = timedelta(days=7)) -> int:
    """Drop the rows of workers that ended long ago."""
    return Worker.objects.exclude(state__in=ALIVE).filter(stopped_at__lt=database_time() - older_than).delete()[0]


def lead(name: str, holder: str, *, term: timedelta = TERM) -> bool:
    """Become or stay the leader for a term; False if another process is, and alive."""
    now = database_time()
    mine_or_vacant = Leadership.objects.filter(Q(holder=holder) | Q(expires_at__lte=now), name=name)
    if mine_or_vacant.update(holder=holder, expires_at=now + term):
        return True
    # Another process leads, or nobody ever has.
    first = Leadership(name=name, holder=holder, expires_at=now + term)
    Leadership.objects.bulk_create([first], ignore_conflicts=True)
    return leader(name) == holder


def leader(name: str) -> str | None:
    """The leader of the maintenance jobs, if there is one."""
    in_office = Leadership.objects.filter(name=name, expires_at__gt=database_time())
    return in_office.values_list("holder", flat=True).first()


def resign(name: str, holder: str) -> None:
    """Stop leading: the next process that asks leads."""
    Leadership.objects.filter(name=name, holder=holder).update(expires_at=database_time())


def enrolled() -> QuerySet[Worker]:
    """The workers that have not ended, as far as the database knows."""
    return Worker.objects.filter(state__in=ALIVE)


def alive() -> QuerySet[Worker]:
    """The enrolled workers whose heartbeat is within their lease, by the clock that wrote it."""
    return _by_silence().filter(silence__lte=LEASE)


def silent() -> QuerySet[Worker]:
    """The enrolled workers whose heartbeat is older than their lease."""
    return _by_silence().filter(silence__gt=LEASE)


def is_alive(worker: Worker, now: datetime) -> bool:
    """The same of a row, by the time of the database."""
    return worker.state in ALIVE and (now - worker.heartbeat_at).total_seconds() <= worker.lease


LEASE = ExpressionWrapper(F("lease") * timedelta(seconds=1), output_field=DurationField())


def _by_silence() -> QuerySet[Any]:
    silence = ExpressionWrapper(Now() - F("heartbeat_at"), output_field=DurationField())
    return enrolled().alias(silence=silence)


def _death(note: str) -> dict[str, Any]:
    return {"state": WorkerState.DEAD.value, "in_flight": 0, "stopped_at": Now(), "note": note}
