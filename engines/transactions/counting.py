"""VERBS: count_ends, fold_counts. The counters behind charts and totals."""

from datetime import timedelta

from django.db import transaction

from engines.models import Throughput
from engines.transactions.statements import statements
from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.database.clock import database_time

FOLD_AFTER = timedelta(minutes=5)
COARSEN_AFTER = timedelta(days=2)


def count_ends(pipeline_id: int, *, worker: int = 0, succeeded: int = 0, failed: int = 0, cancelled: int = 0) -> None:
    """Count transactions that ended other than by a settle."""
    statements().count_ends(pipeline_id, worker, succeeded, failed, cancelled)


def fold_counts() -> int:
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
    # No row has come since they were locked: whoever settles counts into the present minute.
    rows.delete()
    for total in sums.values():
        there = Throughput.objects.filter(pk=(total.pipeline_id, total.minute, 0)).first()
        if there is not None:
            _add(total, there)
            there.delete()
    Throughput.objects.bulk_create(sums.values())
    return len(taken)


def _add(total: Throughput, row: Throughput) -> None:
    for name in ("succeeded", "failed", "cancelled", "seconds"):
        setattr(total, name, getattr(total, name) + getattr(row, name))
    total.longest = max(total.longest, row.longest)
