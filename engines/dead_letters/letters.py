"""VERBS: find, discard, reveal, settle; and what is decided for a whole group."""

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from engines.core.errors import EngineError
from engines.core.failures import storable
from engines.core.states import GroupState, LetterState
from engines.dead_letters.replayers import replayer_of
from engines.models import DeadLetter, DeadLetterGroup, Pipeline, TransactionRecord
from ergon_site.access import audit
from ergon_site.access.core.texts import is_key, is_storable
from ergon_site.access.database.calls import retry_conflicts, short_transaction

# Of the details: why what is kept of a payload, or of its metadata, is not what failed.
NOT_REPLAYABLE = "not_replayable"


class GroupUnknownError(EngineError):
    code = "group_unknown"


class LetterSettledError(EngineError):
    code = "letter_settled"

    def __init__(self, letter: DeadLetter) -> None:
        super().__init__(f"the dead letter of {letter.uid!r} was {letter.state} by {letter.settled_by}")


class LetterUnknownError(EngineError):
    code = "letter_unknown"

    def __init__(self, letter_id: object) -> None:
        super().__init__(f"there is no dead letter {storable(str(letter_id))}")


class NotReplayableError(EngineError):
    code = "not_replayable"

    def __init__(self, letter: DeadLetter, why: str | None = None) -> None:
        reason = why or f"it comes from {letter.source!r}, which is not a pipeline"
        super().__init__(f"the dead letter of {letter.uid!r} cannot be replayed: {reason}")


class ReplayerUnavailableError(NotReplayableError):
    """Who would run it again cannot be reached: neither this letter nor the next one can be replayed now."""

    def __init__(self, letter: DeadLetter, why: str) -> None:
        super().__init__(letter, why)
        self.why = why


def find(letter_id: object) -> DeadLetter:
    """A dead letter by its number, or by the id of its transaction."""
    letters = DeadLetter.objects.select_related("group")
    text = str(letter_id)
    letter = letters.filter(pk=int(text)).first() if is_key(text) else None
    letter = letter or (letters.filter(uid=text).first() if is_storable(text) else None)
    if letter is None:
        raise LetterUnknownError(letter_id)
    return letter


def find_group(group_id: int, *, is_locked: bool = False) -> DeadLetterGroup:
    """A group, locked if so asked until the end of the database transaction."""
    groups = DeadLetterGroup.objects.select_for_update() if is_locked else DeadLetterGroup.objects.all()
    group = groups.filter(pk=group_id).first()
    if group is None:
        msg = f"there is no dead-letter group {group_id}"
        raise GroupUnknownError(msg)
    return group


def is_replayable(letter: DeadLetter) -> bool:
    """Whether somebody knows how to run it again."""
    return replayer_of(letter) is not None or Pipeline.objects.filter(name=letter.source).exists()


def is_whole(letter: DeadLetter) -> bool:
    """Whether its payload is kept as it was. Of another one, people decide what to run."""
    return not letter.details.get(NOT_REPLAYABLE)


def payload_of(letter: DeadLetter) -> Any:
    """The payload that a replay uses."""
    if letter.transaction_id is None:
        return letter.payload
    return TransactionRecord.objects.values_list("payload", flat=True).filter(pk=letter.transaction_id).first()


def redacted_of(letter: DeadLetter) -> list[str]:
    """The fields of its payload that pages hide: its pipeline says so."""
    fields: list[str] = Pipeline.objects.values_list("redacted", flat=True).filter(name=letter.source).first() or []
    return fields


@retry_conflicts
@short_transaction()
def discard(letter_id: int, *, by: str, reason: str) -> DeadLetter:
    """Decide that a dead letter will not be replayed."""
    letter = lock_open(letter_id)
    settle(letter, LetterState.DISCARDED, by=by, reason=reason)
    states = {"before": {"state": LetterState.OPEN.value}, "after": {"state": LetterState.DISCARDED.value}}
    audit.record(actor=by, action="dead_letter.discard", target=audit_target(letter), reason=reason, **states)
    return letter


@retry_conflicts
@transaction.atomic
def reveal(letter_id: int, *, by: str) -> None:
    """Write down that somebody looks at the whole payload, hidden fields included."""
    letter = find(letter_id)
    fields = {"fields": redacted_of(letter)}
    audit.record(actor=by, action="dead_letter.reveal", target=audit_target(letter), after=fields)


@retry_conflicts
@short_transaction()
def decide(group_id: int, state: GroupState, *, by: str, reason: str) -> DeadLetterGroup:
    """Mute a group, say that it is resolved, or open it again."""
    group = find_group(group_id, is_locked=True)
    before = group.state
    group.state, group.decided_by, group.decision_reason = state.value, by, reason
    group.save(update_fields=["state", "decided_by", "decision_reason"])
    audit.record(
        actor=by,
        action=f"dead_letter_group.{state.value}",
        target=f"dead-letter group {group.pk}: {group}",
        reason=reason,
        before={"state": before},
        after={"state": state.value},
    )
    return group


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


def settle(letter: DeadLetter, state: LetterState, *, by: str, reason: str, replayed_as: str = "") -> None:
    letter.state, letter.settled_by, letter.reason, letter.replayed_as = state.value, by, reason, replayed_as
    letter.settled_at = Now()
    letter.save(update_fields=["state", "settled_by", "reason", "settled_at", "replayed_as"])
    DeadLetterGroup.objects.filter(pk=letter.group_id).update(open_count=F("open_count") - 1)
    resolve_if_empty([letter.group_id])


def audit_target(letter: DeadLetter) -> str:
    return f"dead letter {letter.pk} of {letter.uid}"
