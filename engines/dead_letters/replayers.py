"""Replayers of dead letters whose source is not a pipeline."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from django.db.models import QuerySet

from engines.models import DeadLetter

# In place of a payload: the letter's own.
AS_IT_WAS: Any = object()


class Fates(NamedTuple):
    """How replays fare: how many have not come to an end yet, and how many have failed again."""

    out: int = 0
    failed: int = 0


class Replayer(Protocol):
    """Whoever replays the letters of other sources than pipelines; a module will do."""

    def knows(self, letter: DeadLetter, /) -> bool:
        """Whether it is a letter of theirs."""

    def replay(self, letter: DeadLetter, payload: Any, /) -> str:
        """Run it again with this payload or `AS_IT_WAS`, in the database transaction that settles it; the new id."""

    def fates(self, ids: QuerySet[Any, Any], /) -> Fates:
        """How those fare that run under these ids."""

    def hindrance(self, letters: Sequence[DeadLetter], /) -> str:
        """Why it is of no use to replay these now; empty if nothing is known to stand in the way."""


_replayers: list[Replayer] = []


def replayed_by(replayer: Replayer) -> None:
    """Let another source replay its own letters."""
    if replayer not in _replayers:
        _replayers.append(replayer)


def replayer_of(letter: DeadLetter) -> Replayer | None:
    """Whoever else than its pipeline replays it."""
    return next((replayer for replayer in _replayers if replayer.knows(letter)), None)
