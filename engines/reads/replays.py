"""Outcomes of the replays of dead letters, and whether further ones are blocked."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Count, Q, QuerySet

from engines import dead_letters
from engines.core.states import State
from engines.dead_letters import Fates
from engines.models import DeadLetter, TransactionRecord
from engines.reads import blockers

OUT = (State.PENDING.value, State.RUNNING.value)


def fates(letter: DeadLetter, ids: QuerySet[Any, Any]) -> Fates:
    """The outcomes of the replays with these ids; the letter says whose they are."""
    if (replayer := dead_letters.replayer_of(letter)) is not None:
        return replayer.fates(ids)
    counts = TransactionRecord.objects.filter(uid__in=ids).aggregate(
        out=Count("pk", filter=Q(state__in=OUT)), failed=Count("pk", filter=Q(state=State.FAILED.value))
    )
    return Fates(**counts)


def hindrance(letters: Sequence[DeadLetter]) -> str:
    """The blocker of replaying these; empty if there is none."""
    if not letters:
        return ""
    if (replayer := dead_letters.replayer_of(letters[0])) is not None:
        return replayer.hindrance(letters)
    return next((str(one) for one in blockers.of({letter.uid for letter in letters})), "")
