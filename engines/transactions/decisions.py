"""VERBS of people: reveal, cancel, replay, replay_letter. Each is written down."""

from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from engines import dead_letters
from engines.core.states import LetterState, State
from engines.dead_letters import AS_IT_WAS
from engines.models import DeadLetter, Pipeline, TransactionRecord
from engines.transactions.counting import count_ends
from engines.transactions.errors import NotFinishedError, NotPendingError, TransactionUnknownError
from engines.transactions.submitting import Submitted, submit
from ergon_site.access import audit
from ergon_site.access.core import differences
from ergon_site.access.core.texts import is_storable
from ergon_site.access.database.calls import retry_conflicts, short_transaction

LONGEST_TEXT = 200


def find(uid: str) -> TransactionRecord:
    """The record of a transaction, with its pipeline."""
    rows = TransactionRecord.objects.select_related("pipeline").filter(uid=uid)
    record = rows.first() if is_storable(uid) else None
    if record is None:
        msg = f"there is no transaction {uid!r}"
        raise TransactionUnknownError(msg)
    return record


@retry_conflicts
@transaction.atomic
def reveal(uid: str, *, by: str) -> None:
    """Write down that somebody looks at the whole payload, hidden fields included."""
    fields = {"fields": find(uid).pipeline.redacted}
    audit.record(actor=by, action="transaction.reveal", target=f"transaction {uid}", after=fields)


@retry_conflicts
@short_transaction()
def cancel(uid: str, *, by: str, reason: str) -> TransactionRecord:
    """End a transaction that has not begun, or request the end of one that runs: it is returned as running."""
    row = TransactionRecord.objects.filter(pk=find(uid).pk)
    record = row.select_for_update().first() or find(uid)
    state, after = State(record.state), {"state": State.CANCELLED.word}
    if state.is_final:
        msg = f"the transaction {uid!r} {state.predicate}; only a pending or running transaction can be cancelled"
        raise NotPendingError(msg)
    if state is State.PENDING:
        row.update(state=State.CANCELLED.value, finished_at=Now())
        count_ends(record.pipeline_id, cancelled=1)
    elif record.cancel_requested_at is None:
        row.update(cancel_requested_at=Now())
        after = {"state": state.word, "requested": State.CANCELLED.word}
    else:
        return find(uid)
    states = {"before": {"state": state.word}, "after": after}
    audit.record(actor=by, action="transaction.cancel", target=f"transaction {uid}", reason=reason, **states)
    return find(uid)


@retry_conflicts
@transaction.atomic
def replay(uid: str, *, by: str, reason: str, payload: Any = AS_IT_WAS) -> Submitted:
    """Run a transaction that has ended once more, as a new one; an edited payload is kept with what was changed."""
    record = find(uid)
    if not State(record.state).is_final:
        msg = f"the transaction {uid!r} is still {record.word}; only a finished transaction can be replayed"
        raise NotFinishedError(msg)
    letter = DeadLetter.objects.select_for_update().filter(transaction_id=record.pk).first()
    if letter is not None and letter.state != LetterState.OPEN.value:
        raise dead_letters.LetterSettledError(letter)
    is_edited = payload is not AS_IT_WAS
    changes = differences.changes(record.payload, payload) if is_edited else None
    new = submit(
        record.pipeline.name,
        payload if is_edited else record.payload,
        priority=record.priority,
        correlation_id=record.correlation_id,
        metadata=record.metadata,
        parent_id=record.uid,
        source=record.source,
        replay_of=record.pk,
        payload_changes=changes,
    )
    if letter is not None:
        dead_letters.settle(letter, LetterState.REPLAYED, by=by, reason=reason, replayed_as=new.id)
    _write_down("transaction", f"transaction {uid}", new.id, changes, by=by, reason=reason)
    return new


@retry_conflicts
@transaction.atomic
def replay_letter(letter_id: int, *, by: str, reason: str, payload: Any = AS_IT_WAS) -> str:
    """Run a dead letter's transaction again as a new one; the id of that."""
    letter = dead_letters.lock_open(letter_id)
    if letter.transaction_id is not None:
        return replay(letter.uid, by=by, reason=reason, payload=payload).id
    is_edited = payload is not AS_IT_WAS
    if not (is_edited or dead_letters.is_whole(letter)):
        why = f"{letter.details[dead_letters.NOT_REPLAYABLE]}; it can be replayed with an edited payload"
        raise dead_letters.NotReplayableError(letter, why)
    changes = differences.changes(letter.payload, payload) if is_edited else None
    if (replayer := dead_letters.replayer_of(letter)) is not None:
        new = replayer.replay(letter, payload)
    elif Pipeline.objects.filter(name=letter.source).exists():
        # With all that is known of the one that came from elsewhere.
        known = {name: (letter.details.get(name) or "")[:LONGEST_TEXT] or None for name in ("correlation_id", "source")}
        new = submit(
            letter.source,
            payload if is_edited else letter.payload,
            metadata=letter.details.get("metadata") if dead_letters.is_whole(letter) else None,
            parent_id=letter.uid,
            payload_changes=changes,
            **known,
        ).id
    else:
        raise dead_letters.NotReplayableError(letter)
    dead_letters.settle(letter, LetterState.REPLAYED, by=by, reason=reason, replayed_as=new)
    _write_down("dead_letter", dead_letters.audit_target(letter), new, changes, by=by, reason=reason)
    return new


def _write_down(noun: str, target: str, new: str, changes: list[Any] | None, *, by: str, reason: str) -> None:
    """Which fields were edited, never what they hold: payloads stay out of the log."""
    verb, edited = "replay", {}
    if changes is not None:
        verb, edited = "replay_edited", {"edited": [change["path"] for change in changes]}
    audit.record(actor=by, action=f"{noun}.{verb}", target=target, reason=reason, after={"as": new} | edited)
