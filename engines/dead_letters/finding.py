"""A dead letter, a group of them, and what would be replayed."""

from typing import Any

from engines.dead_letters.errors import GroupUnknownError, LetterUnknownError
from engines.dead_letters.replayers import replayer_of
from engines.models import DeadLetter, DeadLetterGroup, Pipeline, TransactionRecord
from ergon_site.access.core.texts import is_key, is_storable


def find(letter_id: object) -> DeadLetter:
    """A dead letter by its number, or by the id of its transaction."""
    letters = DeadLetter.objects.select_related("group")
    text = str(letter_id)
    letter = letters.filter(pk=int(text)).first() if is_key(text) else None
    letter = letter or (letters.filter(uid=text).first() if is_storable(text) else None)
    if letter is None:
        raise LetterUnknownError(letter_id)
    return letter


def find_group(group_id: int) -> DeadLetterGroup:
    group = DeadLetterGroup.objects.filter(pk=group_id).first()
    if group is None:
        raise GroupUnknownError(group_id)
    return group


def is_replayable(letter: DeadLetter) -> bool:
    """Whether somebody knows how to run it again."""
    return replayer_of(letter) is not None or Pipeline.objects.filter(name=letter.source).exists()


def payload_of(letter: DeadLetter) -> Any:
    """The payload that a replay uses."""
    if letter.transaction_id is None:
        return letter.payload
    return TransactionRecord.objects.values_list("payload", flat=True).filter(pk=letter.transaction_id).first()


def redacted_of(letter: DeadLetter) -> list[str]:
    """The fields of its payload that pages hide: its pipeline says so."""
    fields: list[str] = Pipeline.objects.values_list("redacted", flat=True).filter(name=letter.source).first() or []
    return fields
