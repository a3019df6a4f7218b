"""Replayers of dead letters whose source is not a pipeline: the modules that installed apps name."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from django.db.models import QuerySet

from engines.conf import settings
from engines.models import DeadLetter

# In place of a payload: the letter's own.
AS_IT_WAS: Any = object()


class Fates(NamedTuple):
    """The outcomes of replays: how many have not ended, and how many failed again."""

    out: int = 0
    failed: int = 0


class Replayer(Protocol):
    """Replays the dead letters of a source that is not a pipeline; a module will do."""

    def knows(self, letter: DeadLetter, /) -> bool:
        """Whether it is a letter of theirs."""

    def replay(self, letter: DeadLetter, payload: Any, /) -> str:
        """Run it again with this payload or `AS_IT_WAS`, in the database transaction that settles it; the new id."""

    def fates(self, ids: QuerySet[Any, Any], /) -> Fates:
        """The outcomes of the replays with these ids."""

    def hindrance(self, letters: Sequence[DeadLetter], /) -> str:
        """The blocker of replaying these now; empty if there is none."""


def replayer_of(letter: DeadLetter) -> Replayer | None:
    """The replayer of a dead letter, if its source is not a pipeline."""
    replayers = (cast("Replayer", import_module(name)) for name in settings().replayers)
    return next((replayer for replayer in replayers if replayer.knows(letter)), None)
