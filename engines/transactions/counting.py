"""VERBS: count_ends, count_tally, count_durations, fold_counts. The counters behind charts and totals."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Value
from django.db.models.functions import Greatest

from engines.core import histogram
from engines.models import Durations, Throughput, Worker
from engines.reads.depth import ALL_PIPELINES
from engines.transactions.statements import statements
from ergon_site.access.database.calls import retry_conflicts, short_transaction
from ergon_site.access.database.clock import database_time

FOLD_AFTER = timedelta(minutes=5)
HOURS_AFTER = timedelta(days=2)
DAYS_AFTER = timedelta(days=9)  # a week's chart still has hours
# Rows that are folded in one transaction, and those of the last one's minute.
AT_ONCE = 1000
# What is zero in a time that begins an hour, or a day.
ROUND: dict[str, tuple[str, ...]] = {"minute": (), "hour": ("minute",), "day": ("hour", "minute")}
SUMMED: dict[type[Durations | Throughput], tuple[str, ...]] = {
    Throughput: ("succeeded", "failed", "cancelled", "seconds"),
    Durations: histogram.COLUMNS,
}


def count_ends(pipeline_id: int, *, worker: int = 0, succeeded: int = 0, failed: int = 0, cancelled: int = 0) -> None:
    """Count transactions that ended other than by a settle."""
    statements().count_ends(pipeline_id, worker, succeeded, failed, cancelled)


@retry_conflicts
@short_transaction()
def count_tally(tally: Mapping[tuple[int, bool], int], *, worker: int, number: int) -> bool:
    """Count what ended in a worker other than by a settle, by pipeline and success; each number of the worker once.

    False if there is no such worker: whether this number is counted already cannot be known.
    """
    if not Worker.objects.filter(pk=worker, last_tally__lt=number).update(last_tally=number):
        return Worker.objects.filter(pk=worker).exists()
    for (pipeline_id, is_success), count in sorted(tally.items()):
        count_ends(pipeline_id, worker=worker, **{"succeeded" if is_success else "failed": count})
    return True


@retry_conflicts
@short_transaction()
def count_durations(pipeline_id: int, durations: Sequence[float]) -> None:
    """Count how long transactions took that were settled a moment ago; not with them, which would cost them time.

    Also for all pipelines together, so that their chart need not add up hundreds of thousands of rows.
    """
    minute = database_time().replace(second=0, microsecond=0)
    counts = zip(histogram.COLUMNS, histogram.counted(durations), strict=True)
    added = {name: F(name) + count for name, count in counts if count}
    both = [Durations(pipeline_id=one, minute=minute) for one in (ALL_PIPELINES, pipeline_id)]
    Durations.objects.bulk_create(both, ignore_conflicts=True)
    rows = Durations.objects.filter(pipeline_id__in=(ALL_PIPELINES, pipeline_id), minute=minute)
    rows.update(longest=Greatest("longest", Value(max(durations))), **added)


def fold_counts() -> int:
    """Put the minutes of all workers together, older ones into a row for each hour, and old ones for each day."""
    now = database_time().replace(second=0, microsecond=0)
    folded = _fold(Throughput, "minute", now - FOLD_AFTER)
    for model in SUMMED:
        folded += _fold(model, "hour", (now - HOURS_AFTER).replace(minute=0))
        folded += _fold(model, "day", (now - DAYS_AFTER).replace(hour=0, minute=0))
    return folded


def _fold(model: type[Durations | Throughput], unit: str, before: datetime) -> int:
    """Rows older than that become one for each pipeline and unit of time, of no worker in particular."""
    folded = 0
    while count := _fold_oldest(model, unit, before):
        folded += count
    return folded


@retry_conflicts
@short_transaction()
def _fold_oldest(model: type[Durations | Throughput], unit: str, before: datetime) -> int:
    """The minutes of the oldest thousand: others that write must not wait for long."""
    zero = dict.fromkeys(ROUND[unit], 0)
    nobody = {"worker": 0} if model is Throughput else {}
    rows = model.objects.filter(minute__lt=before).exclude(**nobody, **{f"minute__{name}": 0 for name in zero})
    if last := list(rows.order_by("minute").values_list("minute", flat=True)[AT_ONCE - 1 : AT_ONCE]):
        rows = rows.filter(minute__lte=last[0])
    taken: list[Any] = list(rows.select_for_update().order_by("pk"))
    sums: dict[tuple[int, datetime], Any] = {}
    for row in taken:
        minute = row.minute.replace(**zero)
        total = sums.setdefault((row.pipeline_id, minute), model(pipeline_id=row.pipeline_id, minute=minute))
        _add(total, row)
    # No row has come since they were locked: whoever settles counts into the present minute.
    rows.delete()
    for there in model.objects.filter(minute__in={minute for _, minute in sums}, **nobody):
        if (total := sums.get((there.pipeline_id, there.minute))) is not None:
            _add(total, there)
    _write(model, [sums[key] for key in sorted(sums)])
    return len(taken)


def _write(model: type[Durations | Throughput], totals: Sequence[Any]) -> None:
    """In the place of what was there."""
    key = ["pipeline", "minute", "worker"] if model is Throughput else ["pipeline_id", "minute"]
    columns = [*SUMMED[model], "longest"]
    model.objects.bulk_create(totals, update_conflicts=True, unique_fields=key, update_fields=columns)


def _add(total: Any, row: Any) -> None:
    for name in SUMMED[type(total)]:
        setattr(total, name, getattr(total, name) + getattr(row, name))
    total.longest = max(total.longest, row.longest)
