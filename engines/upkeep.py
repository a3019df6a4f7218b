"""VERBS of what must run somewhere: rescue, schedules, bulk operations, rollups, pruning. One process leads."""

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from django.db import transaction
from django.utils.module_loading import import_string

from engines import bulk, dead_letters, schedules, transactions, workers
from engines.clock import database_time
from engines.conf import settings
from engines.models import Leadership, Throughput
from engines.reads import depth
from ergon_site.access import idempotency
from ergon_site.access.database.retrying import retry_conflicts

TERM = timedelta(seconds=15)
FOLD_AFTER = timedelta(minutes=5)
COARSEN_AFTER = timedelta(days=2)
MAINTENANCE = "maintain"
RESCUE = "rescued"


class Chore(NamedTuple):
    """Something to be done every so many seconds; what it returns counts what it did."""

    name: str
    every: float
    run: Callable[[], int]


def chores(lease: float) -> list[Chore]:
    return [
        Chore(RESCUE, lease / 6, lambda: sum(transactions.rescue())),
        Chore("workers_lost", lease / 3, workers.notice_the_dead),
        Chore("scheduled", 1.0, schedules.fire),
        Chore("bulk", 1.0, bulk.advance),
        # Asked more often than once a minute, so that no minute is left out; only the first asking in each counts.
        Chore("sampled", 15.0, depth.sample),
        Chore("folded", 60.0, fold),
        Chore("pruned", 600.0, lambda: transactions.prune().total),
        Chore("trends", 3600.0, dead_letters.forget_trends),
        Chore("samples_forgotten", 3600.0, depth.forget),
        Chore("workers_forgotten", 3600.0, workers.forget),
        Chore("requests_forgotten", 600.0, idempotency.forget_old),
        *(Chore(name, every, import_string(path)) for name, (every, path) in settings().chores.items()),
    ]


def lead(name: str, holder: str, *, term: timedelta = TERM) -> bool:
    """Become or stay the one who does the chores for a term; False if somebody else is, and alive."""
    now = database_time()
    Leadership.objects.bulk_create([Leadership(name=name, holder=holder, expires_at=now)], ignore_conflicts=True)
    mine = Leadership.objects.filter(name=name, holder=holder)
    vacant = Leadership.objects.filter(name=name, expires_at__lte=now)
    return bool((mine | vacant).update(holder=holder, expires_at=now + term))


def leader(name: str) -> str | None:
    """The leader of the maintenance jobs, if there is one."""
    in_office = Leadership.objects.filter(name=name, expires_at__gt=database_time())
    return in_office.values_list("holder", flat=True).first()


def resign(name: str, holder: str) -> None:
    Leadership.objects.filter(name=name, holder=holder).update(expires_at=database_time())


def fold() -> int:
    """Put the minutes of all workers together, and those of old days into one row for each day."""
    now = database_time().replace(second=0, microsecond=0)
    folded = _fold("minute", now - FOLD_AFTER)
    return folded + _fold("day", (now - COARSEN_AFTER).replace(hour=0, minute=0))


@retry_conflicts
@transaction.atomic
def _fold(unit: str, before: object) -> int:
    """Rows older than that become one for each pipeline and minute or day, of no worker in particular."""
    folded = {"worker": 0} if unit == "minute" else {"worker": 0, "minute__hour": 0, "minute__minute": 0}
    rows = Throughput.objects.filter(minute__lt=before).exclude(**folded)
    taken = list(rows.select_for_update().order_by("pipeline_id", "minute", "worker"))
    sums: dict[tuple[int, object], Throughput] = {}
    for row in taken:
        minute = row.minute if unit == "minute" else row.minute.replace(hour=0, minute=0)
        total = sums.setdefault((row.pipeline_id, minute), Throughput(pipeline_id=row.pipeline_id, minute=minute))
        _add(total, row)
    for row in taken:
        Throughput.objects.filter(pk=row.pk).delete()
    for total in sums.values():
        there = Throughput.objects.filter(pk=(total.pipeline_id, total.minute, 0)).first()
        if there is not None:
            _add(total, there)
            Throughput.objects.filter(pk=there.pk).delete()
    Throughput.objects.bulk_create(sums.values())
    return len(taken)


def _add(total: Throughput, row: Throughput) -> None:
    for name in ("succeeded", "failed", "cancelled", "seconds"):
        setattr(total, name, getattr(total, name) + getattr(row, name))
    total.longest = max(total.longest, row.longest)
