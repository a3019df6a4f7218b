"""VERBS: discard, reveal, settle_as_replayed; and what is decided for a whole group."""

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from engines.core.states import GroupState, LetterState
from engines.dead_letters.errors import GroupUnknownError, LetterSettledError, LetterUnknownError
from engines.dead_letters.finding import payload_of, redacted_of
from engines.models import DeadLetter, DeadLetterGroup
from ergon_site.access import audit
from ergon_site.access.database.retrying import retry_conflicts


@retry_conflicts
@transaction.atomic
def discard(letter_id: int, *, by: str, reason: str) -> DeadLetter:
    """Decide that a dead letter will not be replayed."""
    letter = lock_open(letter_id)
    _settle(letter, LetterState.DISCARDED, by=by, reason=reason)
    audit.record(actor=by, action="dead_letter.discard", target=audit_target(letter), reason=reason)
    return letter


@retry_conflicts
@transaction.atomic
def reveal(letter_id: int, *, by: str, reason: str = "") -> Any:
    """The whole payload that would be replayed, hidden fields included; whoever looks is written down."""
    letter = DeadLetter.objects.filter(pk=letter_id).first()
    if letter is None:
        raise LetterUnknownError(letter_id)
    fields = {"fields": redacted_of(letter)}
    audit.record(actor=by, action="dead_letter.reveal", target=audit_target(letter), reason=reason, after=fields)
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


def lock_open(letter_id: int) -> DeadLetter:
    """An open dead letter, locked until the end of the database transaction."""
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


def audit_target(letter: DeadLetter) -> str:
    return f"dead letter {letter.pk} of {letter.uid}"[:300]
