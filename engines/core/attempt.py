"""The record of one attempt."""

from typing import NamedTuple

from engines.core.outcome import Outcome
from engines.core.steps import Stage


class AttemptRecord(NamedTuple):
    """A try of a step, numbered from 1 for people; it began at `started` on the monotonic clock."""

    stage: Stage
    number: int
    of: int
    started: float
    duration: float
    outcome: Outcome
