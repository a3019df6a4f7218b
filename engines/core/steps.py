"""The steps that the core yields to a driver; their outcomes are sent back."""

from collections.abc import Generator, Iterator
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias, TypeVar

from engines.core.outcome import Outcome
from engines.core.policy import RetryPolicy


class Stage(StrEnum):
    """A part of a lifecycle with its own retries."""

    FETCH = "fetch"
    PROCESS = "process"
    PRODUCE = "produce"
    SUCCESS = "success"
    EXCEPTION = "exception"


# The stages that are given a transaction and nothing else.
WORK = frozenset({Stage.PROCESS, Stage.PRODUCE})


class Enter(NamedTuple):
    """A stage begins; all its attempts follow. No answer is expected."""

    stage: Stage
    retry: RetryPolicy


class Call(NamedTuple):
    """Try a stage once. Answer: an outcome."""

    stage: Stage
    attempt: int
    retry: RetryPolicy
    argument: Any
    is_bounded: bool = True  # by the transaction's time, as well as by the attempt's
    is_system: bool = False  # whatever it raises is the system's failure, BUSINESS included


class Sleep(NamedTuple):
    """Wait. Answer: None, or the outcome that ended the wait."""

    seconds: float
    is_bounded: bool = True
    is_for_work: bool = False  # there was none: more work ends the wait
    is_exact: bool = False  # it ends after these seconds, also where the connector would tell of work


class Leave(NamedTuple):
    """The stage that was entered last is over. No answer is expected."""

    outcome: Outcome


class Take(NamedTuple):
    """Take the next ones from a source that may be slow. Answer: what `loops.take` says, or Cut if time is up."""

    source: Iterator[Any]
    size: int


class Start(NamedTuple):
    """Hand transactions to the slots. No answer is expected."""

    transactions: list[Any]


class Skip(NamedTuple):
    """Count transactions that will not run because their twins did. No answer is expected."""

    how_many: int


class Await(NamedTuple):
    """Wait until all that was handed out has ended, or (`for_room`) until a slot would soon fall idle.

    Answer: None, or Cut if somebody wants the loop to stop.
    """

    for_room: bool


class Flush(NamedTuple):
    """Wait until every outcome that was taken is safe, and what asked for a later attempt is back. No answer."""


class Withdraw(NamedTuple):
    """Give back what has not started. No answer is expected."""


class Drain(NamedTuple):
    """Wait until nothing runs, whoever wants to stop; not beyond the loop's time. No answer is expected."""


class Stop(StrEnum):
    """The reason why a loop ended, as its report names it."""

    EMPTY = "empty"
    LIMIT = "limit"
    EXHAUSTED = "exhausted"
    STOPPED = "stopped"


Step: TypeAlias = Enter | Call | Sleep | Leave | Take | Start | Skip | Await | Flush | Withdraw | Drain
T = TypeVar("T")
Steps: TypeAlias = Generator[Step, Any, T]
