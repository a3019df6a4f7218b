"""VERBS of bulk operations: begin, pause, resume, cancel, advance. A record of each, and of what came of each item."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from engines import dead_letters
from engines.core.allowed_actions import TURNS
from engines.core.states import LetterState
from engines.dead_letters import bulk_replays
from engines.dead_letters.bulk_replays import Replays
from engines.dead_letters.bulk_selection import (
    EXPORT,
    GONE,
    MOST_SELECTED,
    BulkError,
    DryRun,
    Selection,
    checked,
    dry_run,
    dry_run_of_groups,
    exported,
    found,
    groups_of,
    groups_with_letters,
    keys_of,
    means_letters,
    nouns_of,
    verbs_of,
)
from engines.models import BulkItem, BulkOperation, DeadLetter, DeadLetterGroup
from engines.reads import blockers
from ergon_site.access import audit, keyset
from ergon_site.access.bulk_kinds import BulkKind
from ergon_site.access.core.search_terms import PAYLOAD
from ergon_site.access.database.calls import retry_conflicts, short_transaction
from ergon_site.access.database.clock import database_time

# The verbs, and what the edges need to call them.
__all__ = [
    "AT_ONCE",
    "EXPORT",
    "MOST",
    "MOST_FIRST",
    "MOST_SELECTED",
    "BulkError",
    "DryRun",
    "Selection",
    "Terms",
    "advance",
    "begin",
    "begin_selected",
    "dry_run",
    "exported",
    "find",
    "keys_of",
    "nouns_of",
    "replays_of",
    "turn",
    "verbs_of",
]
MOST = 100_000
MOST_FIRST = 1000
AT_ONCE = 500
LONGEST_LABEL = 300
UNFINISHED = ("running", "paused")
TAG = "bulk"
RUNNING = """
SELECT id FROM engines_bulkoperation WHERE state = 'running'
UNION SELECT id FROM engines_bulkoperation WHERE verb = 'replay'
AND done > ((replays_succeeded + replays_failed) + replays_cancelled) + replays_lost ORDER BY 1
"""


class GroupBusyError(BulkError):
    """Another operation is running for this group."""

    code = "group_busy"


class OperationUnknownError(BulkError):
    code = "operation_unknown"


class TurnError(BulkError):
    """The operation cannot change from its state to that one."""

    code = "operation_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The limits of a bulk operation: size of the canary, rows per second, and rows in all."""

    canary: int = 0
    rate: float = 10.0
    cap: int = MOST


@retry_conflicts
@short_transaction()
def begin(verb: str, group_id: int, terms: Terms, *, by: str, reason: str) -> BulkOperation:
    """Replay or discard the open dead letters of a group: a few first, then the rest at a pace."""
    group = dead_letters.find_group(group_id, is_locked=True)
    return _begin_on_groups(verb, [group], terms, by=by, reason=reason)


@retry_conflicts
@short_transaction()
def begin_selected(verb: str, selection: Selection, terms: Terms, *, by: str, reason: str) -> BulkOperation:
    """Act on the selected rows, or on all that a filter finds: a few first, then the rest at a pace."""
    kind = checked(verb, selection)
    if means_letters(verb, selection):
        groups = groups_with_letters(selection).select_for_update().order_by("fingerprint")
        return _begin_on_groups(verb, list(groups), terms, by=by, reason=reason)
    _check_terms(terms)
    dry = dry_run(verb, selection)
    operation = _new(verb, kind.name, terms, dry, by=by, reason=reason)
    operation.filter = {"ids": list(selection.keys)} if selection.where is None else {"where": dict(selection.where)}
    if verb == EXPORT:
        # A dry run does not look at all rows, and the files have them all.
        operation.done = min(dry.matched - sum(dry.skipped.values()), operation.cap)
        operation.state, operation.finished_at = "done", database_time()
    operation.save()
    about = {"selected": len(selection.keys)} if selection.where is None else {"filter": _shown(selection.where)}
    _write_down(operation, {"kind": kind.name, **about})
    return operation


def _begin_on_groups(
    verb: str, groups: Sequence[DeadLetterGroup], terms: Terms, *, by: str, reason: str
) -> BulkOperation:
    keys = [group.pk for group in groups]
    _refuse_busy(keys)
    _check_terms(terms)
    operation = _new(verb, "dead_letter", terms, dry_run_of_groups(verb, keys), by=by, reason=reason)
    operation.filter = {"state": LetterState.OPEN.value, "known_total": sum(group.total for group in groups)}
    if len(groups) == 1:
        operation.group = groups[0]
        operation.filter |= {"group": groups[0].fingerprint}
    else:
        operation.filter |= {"groups": keys}
    operation.save()
    _write_down(operation, {"group": str(groups[0])} if len(groups) == 1 else {"groups": len(groups)})
    return operation


def _refuse_busy(groups: Sequence[int]) -> None:
    """Refuse groups, which are locked, if an operation that has not ended concerns one of them."""
    unfinished = BulkOperation.objects.filter(state__in=UNFINISHED, kind="dead_letter")
    if not {key for operation in unfinished for key in groups_of(operation)}.isdisjoint(groups):
        msg = "another bulk operation on this group has not finished: wait for it, or cancel it"
        raise GroupBusyError(msg)


def _check_terms(terms: Terms) -> None:
    if not 0 < terms.rate <= AT_ONCE:
        msg = f"the pace is 1 to {AT_ONCE} per second, not {terms.rate:g}"
        raise BulkError(msg)
    if not 0 <= terms.canary <= MOST_FIRST:
        msg = f"the canary is 0 to {MOST_FIRST:,}, not {terms.canary:,}"
        raise BulkError(msg)
    if terms.cap < 1:
        msg = f"the cap is at least 1, not {terms.cap:,}"
        raise BulkError(msg)


def _new(verb: str, kind: str, terms: Terms, dry: DryRun, *, by: str, reason: str) -> BulkOperation:
    operation = BulkOperation(verb=verb, kind=kind, by=by, reason=reason, expected=dry.matched)
    operation.cap, operation.dry_run = min(terms.cap, MOST), asdict(dry)
    operation.canary, operation.rate = (terms.canary if verb == "replay" else 0), terms.rate
    return operation


def _write_down(operation: BulkOperation, about: dict[str, Any]) -> None:
    terms = {name: getattr(operation, name) for name in ("expected", "canary", "rate", "cap")}
    audit.record(
        actor=operation.by,
        action=f"bulk.{operation.verb}",
        target=f"bulk operation {operation.pk}",
        reason=operation.reason,
        after=about | terms,
    )


def _shown(where: Mapping[str, str]) -> dict[str, str]:
    """The words of a filter for the log, which holds nothing of payloads."""
    return {word: "…" if word.startswith(PAYLOAD) else value for word, value in where.items()}


@retry_conflicts
@short_transaction()
def turn(operation_id: int, state: str, *, by: str, reason: str) -> BulkOperation:
    """Pause, resume or cancel."""
    operation = find(operation_id, is_locked=True)
    if operation.state not in TURNS[state]:
        msg = f"a bulk operation that is {operation.state} cannot become {state}"
        raise TurnError(msg)
    if operation.state == "stopped" and state == "running":
        # Another one may have begun on its groups meanwhile.
        groups = DeadLetterGroup.objects.filter(pk__in=groups_of(operation)).order_by("fingerprint")
        _refuse_busy([group.pk for group in groups.select_for_update()])
    audit.record(
        actor=by,
        action=f"bulk.{state}",
        target=f"bulk operation {operation.pk}",
        reason=reason,
        before={"state": operation.state},
        after={"state": state},
    )
    operation.state, operation.note, operation.moved_at = state, "", database_time()
    if state == "cancelled":
        operation.finished_at = operation.moved_at
    if state == "running":
        # Whoever resumes it knows of these: only further ones stop it again.
        known = {"known_failures": replays_of(operation).failed, "known_total": _total(operation)}
        operation.filter = operation.filter | known
    operation.save(update_fields=["state", "note", "moved_at", "finished_at", "filter"])
    return operation


def find(operation_id: int, *, is_locked: bool = False) -> BulkOperation:
    """A bulk operation, locked if so asked until the end of the database transaction."""
    operations = BulkOperation.objects.select_related("group").filter(pk=operation_id)
    operation = (operations.select_for_update(of=("self",)) if is_locked else operations).first()
    if operation is None:
        msg = f"there is no bulk operation {operation_id}"
        raise OperationUnknownError(msg)
    return operation


def replays_of(operation: BulkOperation) -> Replays:
    """How the replays of an operation have ended so far; of none, if it replays nothing."""
    return bulk_replays.figures_of([operation]).get(operation.pk, Replays())


def advance() -> int:
    """Take every running operation as far as its pace allows; how many rows were settled."""
    # By hand: asked every second, and mostly for nothing.
    with connection.cursor() as cursor:
        cursor.execute(RUNNING)
        running = cursor.fetchall()
    settled, faults = 0, list[Exception]()
    for (operation_id,) in running:
        try:
            settled += _advance(operation_id)
        except Exception as error:  # noqa: BLE001 (told below; one that is broken holds up no other)
            faults.append(error)
    if faults:
        raise faults[0]
    return settled


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """The next rows of an operation, the keys of those that are gone, and where it goes on after them."""

    rows: list[Any]
    missing: list[int] = field(default_factory=list)
    cursor: str = ""
    last_letter: int = 0
    is_last: bool


@retry_conflicts
@short_transaction()
def _advance(operation_id: int) -> int:
    # One that a person changes at this moment is passed by until the next turn.
    locked = BulkOperation.objects.select_for_update(of=("self",), skip_locked=True).select_related("group")
    operation = locked.filter(pk=operation_id).first()
    if operation is None:
        return 0
    is_changed, settled = bulk_replays.follow(operation), 0
    if operation.state == "running":
        is_changed, settled = True, _take_on(operation)
    if is_changed:
        operation.save()
    return settled


def _take_on(operation: BulkOperation) -> int:
    """Act on the next rows of a running operation, end it, or stop it; how many rows were settled."""
    now = database_time()
    if operation.processed >= operation.cap:
        operation.state, operation.finished_at = "done", now
        return 0
    replays = bulk_replays.counted(operation)
    allowance = _allowance(operation, replays, now)
    try:
        kind = checked(operation.verb, Selection(kind=operation.kind, where={}))
        batch = _next(operation, kind, max(allowance, 1))
    except BulkError as error:
        operation.state, operation.note = "stopped", str(error)
        return 0
    if trouble := _trouble(operation, replays, batch.rows):
        operation.state, operation.note = "stopped", trouble
        return 0
    if not allowance:
        return 0
    count = _settle(operation, kind, batch)
    operation.cursor, operation.last_letter = batch.cursor, batch.last_letter
    if operation.state == "running" and (operation.processed >= operation.cap or batch.is_last):
        operation.state, operation.finished_at = "done", now
    return count


def _allowance(operation: BulkOperation, replays: Replays, now: datetime) -> int:
    """The number to process now: the canary at once, the rest by the rate, never more than the cap."""
    left = operation.cap - operation.processed
    # What was skipped is no canary.
    if operation.done < operation.canary:
        return min(left, operation.canary - operation.done)
    if operation.canary and operation.done == operation.canary and replays.running:
        operation.moved_at = now
        return 0
    due = int((now - operation.moved_at).total_seconds() * operation.rate)
    if due > 0:
        operation.moved_at = now
    return max(0, min(left, due, AT_ONCE))


def _next(operation: BulkOperation, kind: BulkKind, count: int) -> _Batch:
    """The next rows, without those that are newer than the operation."""
    if "ids" in operation.filter:
        ids = operation.filter["ids"]
        keys = ids[operation.processed : operation.processed + count]
        there = kind.rows().in_bulk(keys)
        rows, missing = [there[key] for key in keys if key in there], [key for key in keys if key not in there]
        return _Batch(rows=rows, missing=missing, is_last=operation.processed + len(keys) >= len(ids))
    if "where" in operation.filter:
        page = keyset.paginate(found(kind, operation.filter["where"]), size=count, at=operation.cursor, tag=TAG)
        rows = [row for row in page.rows if getattr(row, kind.born) <= operation.created_at]
        return _Batch(rows=rows, cursor=page.next, is_last=not page.next)
    groups, place, last = groups_of(operation), int(operation.cursor or 0), operation.last_letter
    letters = kind.rows().filter(state=LetterState.OPEN.value, created_at__lte=operation.created_at).order_by("pk")
    rows = list(letters.filter(group_id=groups[place], pk__gt=last)[:count])
    if len(rows) == count:
        return _Batch(rows=rows, cursor=str(place), last_letter=rows[-1].pk, is_last=False)
    return _Batch(rows=rows, cursor=str(place + 1), is_last=place + 1 >= len(groups))


def _total(operation: BulkOperation) -> int:
    groups = DeadLetterGroup.objects.filter(pk__in=groups_of(operation))
    return sum(groups.values_list("total", flat=True))


def _trouble(operation: BulkOperation, replays: Replays, batch: Sequence[Any]) -> str:
    """The reason to stop: replays failed again, new failures of the same kind, or an open breaker."""
    if operation.verb != "replay":
        return ""
    known = operation.filter
    if replays.failed > known.get("known_failures", 0):
        return f"{replays.failed} of its replays failed again"
    if "known_total" in known and (came := _total(operation) - known["known_total"]) > 0:
        return f"{came} more failed in the same way since it was started or resumed"
    elsewhere: dict[Any, list[DeadLetter]] = {}
    for row in batch:
        if isinstance(row, DeadLetter) and (replayer := dead_letters.replayer_of(row)) is not None:
            elsewhere.setdefault(replayer, []).append(row)
    for replayer, letters in elsewhere.items():
        if hindrance := replayer.hindrance(letters):
            return str(hindrance)
    here = {row.uid for row in batch} - {letter.uid for letters in elsewhere.values() for letter in letters}
    return next((str(one) for one in blockers.blockers_of(here)), "") if here else ""


def _settle(operation: BulkOperation, kind: BulkKind, batch: _Batch) -> int:
    """Act on each row of a batch, and write down what came of it; stop once whoever replays cannot be reached."""
    # All of them are locked before the first is settled, since that locks further rows.
    rows = kind.lock(operation.verb, batch.rows)
    gone = {row.pk: row for row in batch.rows}.keys() - {row.pk for row in rows}
    items = [_item(operation, None, key, "skipped", GONE) for key in (*batch.missing, *gone)]
    for row, refusal in zip(rows, kind.refusals(operation.verb, rows), strict=True):
        if refusal:
            result, note = "skipped", refusal
        elif operation.state == "stopped":
            # One has waited for an answer; the others need not.
            result, note = "failed", operation.note
        else:
            result, note = _act(operation, kind, row)
        items.append(_item(operation, row, row.pk, result, note, kind.label(row)))
    BulkItem.objects.bulk_create(items)
    for result, count in Counter(item.result for item in items).items():
        setattr(operation, result, getattr(operation, result) + count)
    return len(items)


def _act(operation: BulkOperation, kind: BulkKind, row: Any) -> tuple[str, str]:
    try:
        with transaction.atomic():
            return "done", kind.verbs[operation.verb](row, by=operation.by, reason=operation.reason)
    except dead_letters.ReplayerUnavailableError as error:
        operation.state, operation.note = "stopped", error.why
        return "failed", error.why
    except kind.skipped_by as error:
        return "skipped", str(error)
    except kind.refused_by as error:
        return "failed", str(error)


def _item(operation: BulkOperation, row: Any, key: int, result: str, note: str, label: str = "") -> BulkItem:
    letter = row if isinstance(row, DeadLetter) else None
    label = (label or str(key))[:LONGEST_LABEL]
    return BulkItem(operation=operation, letter=letter, target=key, label=label, result=result, note=note)
