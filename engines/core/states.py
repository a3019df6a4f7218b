"""The states of durable things, and which may follow which."""

from enum import IntEnum, StrEnum

from engines.core.errors import ExceptionType
from engines.core.steps import Stage


class State(IntEnum):
    """Of a transaction: small numbers in rows, words for people."""

    PENDING = 0
    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3
    CANCELLED = 4

    @property
    def word(self) -> str:
        return self.name.lower()

    @property
    def predicate(self) -> str:
        """The state as a sentence says it."""
        return f"{'has' if self in (State.SUCCEEDED, State.FAILED) else 'is'} {self.word}"

    @property
    def is_final(self) -> bool:
        return not TRANSITIONS[self]


TRANSITIONS: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.RUNNING, State.CANCELLED}),
    # A lease that is given back or rescued makes a running one pending again; cancelled, if that was requested.
    State.RUNNING: frozenset({State.PENDING, State.SUCCEEDED, State.FAILED, State.CANCELLED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}


class AttemptOutcome(IntEnum):
    """The outcome of an attempt."""

    SUCCESS = 0
    FAILURE = 1
    CUT = 2


class LetterState(StrEnum):
    """Of a dead letter: it waits for a person, or a person has decided."""

    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


class GroupState(StrEnum):
    """Of dead letters of one kind."""

    OPEN = "open"
    MUTED = "muted"
    RESOLVED = "resolved"
    REGRESSED = "regressed"


class WorkerState(StrEnum):
    """Of a process that runs transactions."""

    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DEAD = "dead"


# Small numbers for what is written once per attempt.
STAGES = {Stage.FETCH: 0, Stage.PROCESS: 1, Stage.PRODUCE: 2, Stage.SUCCESS: 3, Stage.EXCEPTION: 4}
STAGE_OF = {number: stage for stage, number in STAGES.items()}
CATEGORIES = {ExceptionType.BUSINESS: 1, ExceptionType.SYSTEM: 2, ExceptionType.TIMEOUT: 3}
CATEGORY_OF = {number: category for category, number in CATEGORIES.items()}
