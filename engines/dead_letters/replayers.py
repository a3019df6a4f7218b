"""Replayers of dead letters whose source is not a pipeline: the modules that installed apps name."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from engines.conf import settings
from engines.models import DeadLetter

# In place of a payload: the letter's own.
AS_IT_WAS: Any = object()


class Replayer(Protocol):
    """Replays the dead letters of a source that is not a pipeline; a module will do."""

    def knows(self, letter: DeadLetter, /) -> bool:
        """Whether it is a letter of theirs."""

    def replay(self, letter: DeadLetter, payload: Any, /) -> str:
        """Run it again with this payload or `AS_IT_WAS`, in the database transaction that settles it; the new id.

        `ReplayerUnavailableError` says that it cannot be run now, nor any other.
        """

    def outcomes(self, ids: Sequence[str], /) -> Mapping[str, str]:
        """Of the replays with these ids those that have ended: `succeeded` or `failed`."""

    def hindrance(self, letters: Sequence[DeadLetter], /) -> str:
        """The blocker of replaying these now; empty if there is none."""


def replayer_of(letter: DeadLetter) -> Replayer | None:
    """The replayer of a dead letter, if its source is not a pipeline."""
    replayers = (cast("Replayer", import_module(name)) for name in settings().replayers)
    return next((replayer for replayer in replayers if replayer.knows(letter)), None)
