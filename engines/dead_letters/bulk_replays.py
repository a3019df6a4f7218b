"""How the replays of bulk operations end: counted as they end, and kept when what was replayed is deleted later."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import OuterRef, Subquery

from engines.core.states import State
from engines.dead_letters.replayers import replayer_of
from engines.models import BulkItem, BulkOperation, DeadLetter, TransactionRecord

# Looked at in one go; with more than these, figures are some seconds behind.
AT_ONCE = 2000
ENDS = {State.SUCCEEDED: "succeeded", State.FAILED: "failed", State.CANCELLED: "cancelled"}
LOST = "lost"
DONE = {
    "discard": "discarded",
    "cancel": "cancelled",
    "pause": "paused",
    "resume": "resumed",
    "mute": "muted",
    "resolve": "resolved",
    "reopen": "reopened",
    "sweep": "removed",
    "export": "exported",
}
COLUMNS = {end: f"replays_{end}" for end in (*ENDS.values(), LOST)}


class Replays(NamedTuple):
    """The replays that a bulk operation has started, by how they ended."""

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0

    @property
    def running(self) -> int:
        return self.started - self.succeeded - self.failed - self.cancelled - self.lost

    def as_dict(self) -> dict[str, int]:
        return {**self._asdict(), "running": self.running}


def tally(operation: BulkOperation, replays: Replays | None) -> str:
    """What an operation has done, in words."""
    rest = f"{operation.skipped:,} skipped, {operation.failed:,} refused"
    if replays is None:
        return f"{operation.done:,} {DONE.get(operation.verb, 'done')}, {rest}"
    noun = "replay" if replays.started == 1 else "replays"
    ends = f"{replays.succeeded:,} succeeded, {replays.failed:,} failed again"
    more = {"cancelled": replays.cancelled, "deleted before their end was seen": replays.lost}
    ends += "".join(f", {count:,} {words}" for words, count in more.items() if count)
    return f"{replays.started:,} {noun} started: {ends}, {replays.running:,} still running; {rest}"


def figures_of(operations: Iterable[BulkOperation]) -> dict[int, Replays]:
    """The figures of each, by key: those that were counted, and the ends that nobody has counted yet."""
    replaying = {one.pk: one for one in operations if one.verb == "replay"}
    runs = [pk for pk, one in replaying.items() if counted(one).running]
    seen: defaultdict[int, Counter[str]] = defaultdict(Counter)
    if runs:
        state = TransactionRecord.objects.filter(uid=OuterRef("note")).values("state")
        items = list(_running(runs).annotate(state=Subquery(state))[:AT_ONCE])
        states = {item.note: item.state for item in items if item.state is not None}
        ends = _ends(items, states)
        for item in items:
            if item.pk in ends:
                seen[item.operation_id][ends[item.pk]] += 1
    return {pk: _plus(counted(one), seen[pk]) for pk, one in replaying.items()}


def with_figures(operations: Sequence[BulkOperation]) -> Sequence[Any]:
    """The operations, each with its `replays`: None where it replays nothing."""
    figures = figures_of(operations)
    for one in operations:
        one.replays = figures.get(one.pk)  # type: ignore[attr-defined]
    return operations


def with_outcomes(operation: BulkOperation, items: Sequence[BulkItem]) -> Sequence[BulkItem]:
    """The items of an operation, with the outcomes that its replays have now."""
    replays = [item for item in items if operation.verb == "replay" and item.result == "done"]
    ends = ends_of([item for item in replays if not item.outcome])
    for item in replays:
        item.outcome = item.outcome or ends.get(item.pk, "running")
    return items


def follow(operation: BulkOperation) -> bool:
    """Count the replays of a locked operation that have ended; whether it must be saved."""
    if operation.verb != "replay" or not counted(operation).running:
        return False
    before = operation.followed
    items = list(_running([operation.pk]).filter(pk__gt=before)[:AT_ONCE])
    ends = ends_of(items)
    for end, count in Counter(ends.values()).items():
        BulkItem.objects.filter(pk__in=[pk for pk, ended in ends.items() if ended == end]).update(outcome=end)
        setattr(operation, COLUMNS[end], getattr(operation, COLUMNS[end]) + count)
    # From the first again, once the last was looked at.
    operation.followed = items[-1].pk if len(items) == AT_ONCE else 0
    if not items and not before:
        # Their items went with their dead letters, which were pruned.
        operation.replays_lost += counted(operation).running
        return True
    return bool(ends) or operation.followed != before


def ends_of(items: Sequence[BulkItem]) -> dict[int, str]:
    """The ends of those replays that have ended, by the keys of their items."""
    found = TransactionRecord.objects.filter(uid__in=[item.note for item in items])
    return _ends(items, dict(found.values_list("uid", "state")))


def _ends(items: Sequence[BulkItem], states: Mapping[str, int]) -> dict[int, str]:
    found = {
        item.pk: ENDS[State(states[item.note])]
        for item in items
        if item.note in states and State(states[item.note]).is_final
    }
    if elsewhere := [item for item in items if item.note not in states]:
        found |= _ends_elsewhere(elsewhere)
    return found


def _ends_elsewhere(items: Sequence[BulkItem]) -> dict[int, str]:
    """Of replays that are not transactions here: those of another source, and those that were pruned."""
    letters = DeadLetter.objects.only("details", "source").in_bulk({item.letter_id for item in items if item.letter_id})
    sent: defaultdict[Any, dict[str, int]] = defaultdict(dict)
    found = {}
    for item in items:
        letter = letters.get(item.letter_id or 0)
        if letter is None or (replayer := replayer_of(letter)) is None:
            found[item.pk] = LOST
        else:
            sent[replayer][item.note] = item.pk
    for replayer, keys in sent.items():
        found |= {keys[note]: end for note, end in replayer.outcomes(list(keys)).items()}
    return found


def _running(operations: Sequence[int]) -> Any:
    return BulkItem.objects.filter(operation_id__in=operations, result="done", outcome="").order_by(
        "operation_id", "pk"
    )


def counted(operation: BulkOperation) -> Replays:
    """The figures as they were counted last."""
    return Replays(operation.done, *(getattr(operation, column) for column in COLUMNS.values()))


def _plus(counted: Replays, seen: Counter[str]) -> Replays:
    return counted._replace(**{end: getattr(counted, end) + count for end, count in seen.items()})
