"""The record of one attempt."""

from typing import NamedTuple

from engines.core.outcome import Failure, Outcome
from engines.core.steps import Stage

FORGOTTEN = Failure(None)


class AttemptRecord(NamedTuple):
    """A try of a step, numbered from 1 for people; it began at `started` on the monotonic clock.

    `words` are what is kept of its error, once that is forgotten.
    """

    stage: Stage
    number: int
    of: int
    started: float
    duration: float
    outcome: Outcome
    words: str | None = None

    def without_error(self) -> "AttemptRecord":
        """The same without its error, which keeps alive all that its handler had in hand."""
        return self._replace(outcome=FORGOTTEN) if isinstance(self.outcome, Failure) else self
