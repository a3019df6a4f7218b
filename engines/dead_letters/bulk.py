"""VERBS of bulk operations: begin, pause, resume, cancel, advance. A record of each, and of what came of each item."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction
from django.db.models import Count, Q

from engines import dead_letters, transactions
from engines.core.allowed_actions import TURNS
from engines.core.errors import EngineError
from engines.core.states import LetterState, State
from engines.dead_letters import Fates
from engines.models import BulkItem, BulkOperation, DeadLetter, TransactionRecord
from engines.reads import blockers
from ergon_site.access import audit
from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.database.clock import database_time

OUT = (State.PENDING.value, State.RUNNING.value)
MOST = 100_000
MOST_FIRST = 1000
AT_ONCE = 500


class BulkError(EngineError):
    """A bulk operation that cannot be as asked."""

    code = "invalid_bulk_operation"


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
    """The limits of a bulk operation: size of the canary, replays per second, and dead letters in all."""

    canary: int = 0
    rate: float = 10.0
    cap: int = MOST


@retry_conflicts
@transaction.atomic
def begin(verb: str, group_id: int, terms: Terms, *, by: str, reason: str) -> BulkOperation:
    """Replay or discard the open dead letters of a group: a few first, then the rest at a pace."""
    group = dead_letters.find_group(group_id, is_locked=True)
    if group.operations.filter(state__in=["running", "paused"]).exists():
        msg = "a bulk operation on this group has not finished: wait for it, or cancel it"
        raise GroupBusyError(msg)
    if not 0 < terms.rate <= AT_ONCE:
        msg = f"the pace is 1 to {AT_ONCE} per second, not {terms.rate:g}"
        raise BulkError(msg)
    if not 0 <= terms.canary <= MOST_FIRST:
        msg = f"the canary is 0 to {MOST_FIRST:,}, not {terms.canary:,}"
        raise BulkError(msg)
    if terms.cap < 1:
        msg = f"the cap is at least 1, not {terms.cap:,}"
        raise BulkError(msg)
    expected = group.letters.filter(state=LetterState.OPEN.value).count()
    operation = BulkOperation(verb=verb, group=group, by=by, reason=reason, expected=expected, cap=min(terms.cap, MOST))
    operation.canary, operation.rate = (terms.canary if verb == "replay" else 0), terms.rate
    operation.filter = {"group": group.fingerprint, "state": LetterState.OPEN.value, "known_total": group.total}
    operation.save()
    audit.record(
        actor=by,
        action=f"bulk.{verb}",
        target=f"bulk operation {operation.pk}",
        reason=reason,
        after={"group": str(group)}
        | {name: getattr(operation, name) for name in ("expected", "canary", "rate", "cap")},
    )
    return operation


@retry_conflicts
@transaction.atomic
def turn(operation_id: int, state: str, *, by: str, reason: str) -> BulkOperation:
    """Pause, resume or cancel."""
    operation = find(operation_id, is_locked=True)
    if operation.state not in TURNS[state]:
        msg = f"a bulk operation that is {operation.state} cannot become {state}"
        raise TurnError(msg)
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
        known = {"known_failures": fates_of(operation).failed, "known_total": operation.group.total}
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


def advance() -> int:
    """Take every running operation as far as its pace allows; how many dead letters were settled."""
    # By hand: asked every second, and mostly for nothing.
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM engines_bulkoperation WHERE state = 'running' ORDER BY id")
        running = cursor.fetchall()
    return sum(_advance(operation_id) for (operation_id,) in running)


@retry_conflicts
@transaction.atomic
def _advance(operation_id: int) -> int:
    locked = BulkOperation.objects.select_for_update(of=("self",)).select_related("group")
    operation = locked.filter(pk=operation_id, state="running").first()
    if operation is None:
        return 0
    now = database_time()
    if operation.processed >= operation.cap:
        operation.state, operation.finished_at = "done", now
        operation.save()
        return 0
    fates = fates_of(operation)
    allowance = _allowance(operation, fates, now)
    # The open ones that it has not processed yet, without those that are newer than it.
    following = DeadLetter.objects.filter(
        group=operation.group,
        state=LetterState.OPEN.value,
        pk__gt=operation.last_letter,
        created_at__lte=operation.created_at,
    ).order_by("pk")
    # All of them are locked before the first is settled, since that locks their group.
    batch = list((following.select_for_update() if allowance else following)[: max(allowance, 1)])
    if trouble := _trouble(operation, fates, batch):
        operation.state, operation.note = "stopped", trouble
        operation.save()
        return 0
    for letter in batch[:allowance]:
        _settle_one(operation, letter)
    if operation.processed >= operation.cap or len(batch) < allowance:
        operation.state, operation.finished_at = "done", now
    operation.save()
    return min(len(batch), allowance)


def _allowance(operation: BulkOperation, fates: Fates, now: datetime) -> int:
    """The number to process now: the canary at once, the rest by the rate, never more than the cap."""
    gone = operation.processed
    left = operation.cap - gone
    if operation.canary and gone < operation.canary:
        return min(left, operation.canary - gone)
    if operation.canary and gone == operation.canary and fates.out:
        operation.moved_at = now
        return 0
    due = int((now - operation.moved_at).total_seconds() * operation.rate)
    if due > 0:
        operation.moved_at = now
    return max(0, min(left, due, AT_ONCE))


def _trouble(operation: BulkOperation, fates: Fates, batch: Sequence[DeadLetter]) -> str:
    """The reason to stop: replays failed again, new failures of the same kind, or an open breaker."""
    if operation.verb != "replay":
        return ""
    known, total = operation.filter, operation.group.total
    if fates.failed > known.get("known_failures", 0):
        return f"{fates.failed} of its replays failed again"
    if (came := total - known.get("known_total", total)) > 0:
        return f"{came} more failed in the same way since it was started or resumed"
    if not batch:
        return ""
    if (replayer := dead_letters.replayer_of(batch[0])) is not None:
        return replayer.hindrance(batch)
    return next((str(one) for one in blockers.blockers_of({letter.uid for letter in batch})), "")


def fates_of(operation: BulkOperation) -> Fates:
    """The outcomes of its replays, by pipeline or by provider."""
    done = operation.items.filter(result="done")
    first = done.select_related("letter").first() if operation.verb == "replay" else None
    if first is None:
        return Fates()
    ids = done.values("letter__replayed_as")
    if (replayer := dead_letters.replayer_of(first.letter)) is not None:
        return replayer.fates(ids)
    counts = TransactionRecord.objects.filter(uid__in=ids).aggregate(
        out=Count("pk", filter=Q(state__in=OUT)), failed=Count("pk", filter=Q(state=State.FAILED.value))
    )
    return Fates(**counts)


def _settle_one(operation: BulkOperation, letter: DeadLetter) -> None:
    result, note = "done", ""
    try:
        with transaction.atomic():
            if operation.verb == "replay":
                note = transactions.replay_letter(letter.pk, by=operation.by, reason=operation.reason)
            else:
                dead_letters.discard(letter.pk, by=operation.by, reason=operation.reason)
    except dead_letters.LetterSettledError as error:
        result, note = "skipped", str(error)
    except EngineError as error:
        result, note = "failed", str(error)
    BulkItem.objects.create(operation=operation, letter=letter, result=result, note=note)
    setattr(operation, result, getattr(operation, result) + 1)
    operation.last_letter = letter.pk
