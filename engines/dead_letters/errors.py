"""Errors of the verbs of dead letters."""

from engines.core.errors import EngineError
from engines.core.failures import storable
from engines.models import DeadLetter


class GroupUnknownError(EngineError):
    code = "group_unknown"

    def __init__(self, group_id: object) -> None:
        super().__init__(f"there is no dead-letter group {group_id}")


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
