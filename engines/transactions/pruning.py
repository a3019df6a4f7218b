"""VERB: prune. By age and state, in batches, so that nothing else waits."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import F, QuerySet
from django.db.models.functions import Greatest

from engines import dead_letters
from engines.core.states import LetterState, State
from engines.models import Attempt, BulkItem, BulkOperation, DeadLetter, DeadLetterGroup, Pipeline, TransactionRecord
from engines.models.dead_letters import REPLAYS_RUN
from ergon_site.access import audit
from ergon_site.access.database.calls import retry_conflicts, short_transaction
from ergon_site.access.database.clock import database_time

BATCH = 1000
MOST_COUNTED = 10_000
ENDED = (State.SUCCEEDED, State.FAILED, State.CANCELLED)


class Pruned(NamedTuple):
    """The number of deleted transactions by state, and of dead letters from other sources."""

    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        return sum(self)


def prune(
    *,
    older_than: timedelta | None = None,
    by: str | None = None,
    reason: str = "",
    progress: Callable[[int], None] = lambda _: None,
) -> Pruned:
    """Delete what has ended long enough ago: by each pipeline's own retention, or by the age given.

    Done by somebody, it is written down; maintenance does it all the time. Of each batch `progress` is told how many
    transactions it deleted.
    """
    counts = dict.fromkeys(ENDED, 0)
    for pipeline_id, state, before in _limits(older_than):
        while count := _delete(pipeline_id, state, before):
            counts[state] += count
            progress(count)
    counts[State.FAILED] += _prune_letters(older_than)
    while _delete_items(older_than):
        pass
    pruned = Pruned(*counts.values())
    if by is not None:
        age = None if older_than is None else older_than / timedelta(days=1)
        after = {"older_than_days": age, **pruned._asdict()}
        audit.record(actor=by, action="transactions.prune", target="transactions", reason=reason, after=after)
    return pruned


def prunable(older_than: timedelta | None, *, most: int = MOST_COUNTED) -> int:
    """The number of transactions that `prune` would delete; counting ends soon after `most`."""
    count = 0
    for pipeline_id, state, before in _limits(older_than):
        count += _ended(pipeline_id, state, before)[: most + 1].count()
        if count > most:
            break
    return count


def _limits(older_than: timedelta | None) -> Iterator[tuple[int, State, datetime]]:
    """Each pipeline and final state, and the time before which its transactions are deleted."""
    for pipeline in Pipeline.objects.order_by("pk"):
        for state in ENDED:
            days = pipeline.keep_failed_days if state is State.FAILED else pipeline.keep_succeeded_days
            yield pipeline.pk, state, database_time() - (timedelta(days=days) if older_than is None else older_than)


@retry_conflicts
@short_transaction()
def _delete(pipeline_id: int, state: State, before: datetime) -> int:
    old = _ended(pipeline_id, state, before)
    ids = list(old.order_by("pipeline", "state", "created_at").values_list("pk", flat=True)[:BATCH])
    if state is State.FAILED:
        _delete_letters(DeadLetter.objects.filter(transaction_id__in=ids))
    Attempt.objects.filter(transaction_id__in=ids).delete()
    return old.filter(pk__in=ids).delete()[0]


def _ended(pipeline_id: int, state: State, before: datetime) -> QuerySet[TransactionRecord]:
    return TransactionRecord.objects.filter(
        pipeline_id=pipeline_id,
        state=state.value,
        finished_at__isnull=False,
        created_at__lt=before,
        finished_at__lt=before,
    )


@retry_conflicts
@short_transaction(savepoint=False)
def _delete_letters(letters: QuerySet[DeadLetter]) -> int:
    """Lock the letters by their keys, then count them out of their groups, by fingerprint."""
    rows = list(letters.select_for_update().order_by("pk").values_list("pk", "state", "group_id"))
    still_open = Counter(group_id for _, state, group_id in rows if state == LetterState.OPEN.value)
    groups = DeadLetterGroup.objects.filter(pk__in=still_open).order_by("fingerprint")
    for group_id in list(groups.values_list("pk", flat=True)):
        less = Greatest(F("open_count") - still_open[group_id], 0)
        DeadLetterGroup.objects.filter(pk=group_id).update(open_count=less)
    dead_letters.resolve_if_empty(still_open)
    ids = [pk for pk, _, _ in rows]
    items = BulkItem.objects.filter(letter__in=ids)
    # A replay that still runs is followed to its end, though what it replays is gone.
    items.filter(operation__verb="replay", result="done", outcome="").update(letter=None)
    items.delete()
    return DeadLetter.objects.filter(pk__in=ids).delete()[0]


@retry_conflicts
@short_transaction()
def _delete_items(older_than: timedelta | None) -> int:
    """Delete results of bulk operations that ended long ago; the operations stay, with their counts."""
    kept = timedelta(days=Pipeline().keep_failed_days) if older_than is None else older_than
    ended = BulkOperation.objects.filter(finished_at__lt=database_time() - kept).exclude(REPLAYS_RUN)
    ids = list(BulkItem.objects.filter(operation__in=ended).values_list("pk", flat=True)[:BATCH])
    return BulkItem.objects.filter(pk__in=ids).delete()[0]


def _prune_letters(older_than: timedelta | None) -> int:
    """Prune dead letters without a record, by their age and the retention of their pipeline, or of most."""
    days = dict(Pipeline.objects.values_list("name", "keep_failed_days"))
    sources = DeadLetterGroup.objects.order_by("source").values_list("source", flat=True).distinct()
    letters = DeadLetter.objects.order_by("pk").values_list("pk", "created_at", "transaction_id")
    count = 0
    for source in list(sources):
        kept = timedelta(days=days.get(source, Pipeline().keep_failed_days)) if older_than is None else older_than
        before, last = database_time() - kept, 0
        # From the oldest on, and no further than to the first that stays: a long list of younger ones is not read.
        while found := list(letters.filter(source=source, pk__gt=last)[:BATCH]):
            old = [pk for pk, created_at, record_id in found if record_id is None and created_at < before]
            count += _delete_letters(DeadLetter.objects.filter(pk__in=old)) if old else 0
            last, newest_at, _ = found[-1]
            if newest_at >= before:
                break
    return count
