"""VERBS: replay, discard, reveal; and what is decided for a whole group."""

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from engines.core.states import GroupState, LetterState
from engines.dead_letters.errors import GroupUnknownError, LetterSettledError, LetterUnknownError, NotReplayableError
from engines.dead_letters.finding import payload_of, redacted_of
from engines.dead_letters.recording import TEXT
from engines.dead_letters.replayers import replayer_of
from engines.models import DeadLetter, DeadLetterGroup, Pipeline
from ergon_site.access import audit
from ergon_site.access.core import differences
from ergon_site.access.database.retrying import retry_conflicts

AS_IT_WAS: Any = object()


@retry_conflicts
@transaction.atomic
def replay(letter_id: int, *, by: str, reason: str, payload: Any = AS_IT_WAS) -> str:
    """Run a dead letter's transaction again as a new one; the id of that."""
    from engines import transactions  # noqa: PLC0415 (settling buries, and replaying settles letters)

    letter = _open(letter_id)
    if letter.transaction_id is not None:
        return transactions.replay(letter.uid, by=by, reason=reason, payload=payload).id
    is_edited = payload is not AS_IT_WAS
    if (replayer := replayer_of(letter)) is not None:
        new = replayer.replay(letter, payload)
    elif Pipeline.objects.filter(name=letter.source).exists():
        new = _submit_again(letter, payload)
    else:
        raise NotReplayableError(letter)
    settle_as_replayed(letter, new, by=by, reason=reason)
    # Which fields were edited, never what they hold: payloads stay out of the log.
    edited = [change["path"] for change in _changes(letter, payload) or []]
    audit.record(
        actor=by,
        action="dead_letter.replay_edited" if is_edited else "dead_letter.replay",
        target=_target(letter),
        reason=reason,
        after={"as": new} | ({"edited": edited} if is_edited else {}),
    )
    return new


@retry_conflicts
@transaction.atomic
def discard(letter_id: int, *, by: str, reason: str) -> DeadLetter:
    """Decide that a dead letter will not be replayed."""
    letter = _open(letter_id)
    _settle(letter, LetterState.DISCARDED, by=by, reason=reason)
    audit.record(actor=by, action="dead_letter.discard", target=_target(letter), reason=reason)
    return letter


@retry_conflicts
@transaction.atomic
def reveal(letter_id: int, *, by: str, reason: str = "") -> Any:
    """The whole payload that would be replayed, hidden fields included; whoever looks is written down."""
    letter = DeadLetter.objects.filter(pk=letter_id).first()
    if letter is None:
        raise LetterUnknownError(letter_id)
    fields = {"fields": redacted_of(letter)}
    audit.record(actor=by, action="dead_letter.reveal", target=_target(letter), reason=reason, after=fields)
    return payload_of(letter)


@retry_conflicts
@transaction.atomic
def decide(group_id: int, state: GroupState, *, by: str, reason: str) -> DeadLetterGroup:
    """Mute a group, say that it is resolved, or open it again."""
    group = DeadLetterGroup.objects.select_for_update().filter(pk=group_id).first()
    if group is None:
        raise GroupUnknownError(group_id)
    before = group.state
    group.state, group.decided_by, group.decision_reason = state.value, by, reason
    group.save(update_fields=["state", "decided_by", "decision_reason"])
    audit.record(
        actor=by,
        action=f"dead_letter_group.{state.value}",
        target=f"dead-letter group {group.pk}: {group}"[:300],
        reason=reason,
        before={"state": before},
        after={"state": state.value},
    )
    return group


def settle_as_replayed(letter: DeadLetter, new: str, *, by: str, reason: str) -> None:
    letter.replayed_as = new
    _settle(letter, LetterState.REPLAYED, by=by, reason=reason)


def resolve_if_empty(group_ids: Iterable[int]) -> None:
    """A group of which nothing is open any more is resolved, unless somebody has muted it."""
    left = DeadLetterGroup.objects.filter(pk__in=group_ids, open_count__lte=0).exclude(state=GroupState.MUTED.value)
    left.update(state=GroupState.RESOLVED.value)


def _submit_again(letter: DeadLetter, payload: Any) -> str:
    """As a transaction of its pipeline, with all that is known of the one that came from elsewhere."""
    from engines import transactions  # noqa: PLC0415 (settling buries, and replaying settles letters)

    known = {name: (letter.details.get(name) or "")[:TEXT] or None for name in ("correlation_id", "source")}
    submitted = transactions.submit(
        letter.source,
        letter.payload if payload is AS_IT_WAS else payload,
        metadata=letter.details.get("metadata"),
        parent_id=letter.uid,
        payload_changes=_changes(letter, payload),
        **known,
    )
    return submitted.id


def _changes(letter: DeadLetter, payload: Any) -> list[dict[str, Any]] | None:
    return None if payload is AS_IT_WAS else differences.changes(letter.payload, payload)


def _open(letter_id: int) -> DeadLetter:
    letter = DeadLetter.objects.select_for_update().filter(pk=letter_id).first()
    if letter is None:
        raise LetterUnknownError(letter_id)
    if letter.state != LetterState.OPEN.value:
        raise LetterSettledError(letter)
    return letter


def _settle(letter: DeadLetter, state: LetterState, *, by: str, reason: str) -> None:
    letter.state, letter.settled_by, letter.reason = state.value, by, reason
    letter.settled_at = Now()
    letter.save(update_fields=["state", "settled_by", "reason", "settled_at", "replayed_as"])
    DeadLetterGroup.objects.filter(pk=letter.group_id).update(open_count=F("open_count") - 1)
    resolve_if_empty([letter.group_id])


def _target(letter: DeadLetter) -> str:
    return f"dead letter {letter.pk} of {letter.uid}"[:300]
