"""The errors of the engines. One root; a category says who must act."""

from enum import StrEnum
from typing import Any, TypeVar

from engines.core.report import Report


class ExceptionType(StrEnum):
    """The category of a failure: a decision of the task, the system, or a timeout."""

    BUSINESS = "BUSINESS"
    SYSTEM = "SYSTEM"
    TIMEOUT = "TIMEOUT"


class EngineError(Exception):
    """The root of everything the engines raise; one that ended a loop carries its `report`."""

    report: Report | None = None
    # The engine made it of an error that a task or connector raised, which is its cause.
    is_wrapper = False


class TransactionException(EngineError):  # noqa: N818 (the documents' name)
    """A transaction failed. Tasks raise it themselves; any other error that they raise is wrapped in it.

    A subclass may set `category` for all its instances; a constructor of its own need not call this one.
    """

    category: ExceptionType = ExceptionType.SYSTEM
    message: str = ""
    transaction_id: str | None = None
    # No further attempt can help.
    is_fatal = False
    # What failed in another process: the name of the error there, and what is known beyond its message.
    error_type: str | None = None
    details: str | None = None

    def __init__(
        self,
        message: str = "",
        category: ExceptionType | None = None,
        *,
        transaction_id: str | None = None,
    ) -> None:
        if isinstance(message, ExceptionType) and category is None:
            category, message = ExceptionType(message), ""
        super().__init__(message)
        self.message = message
        if category is not None:
            self.category = ExceptionType(category)
        self.transaction_id = transaction_id


# What came back so often from workers that died over it is taken to be what ends them.
POISON = 3


class PoisonError(TransactionException):
    """The workers of a transaction never came back."""

    error_type = "PoisonTransaction"

    def __init__(self, returns: int) -> None:
        super().__init__(
            f"delivered again {returns} times without finishing: its workers died or hung while running it"
        )


class RetryLater(TransactionException):
    """The handler asks to be tried again, `after` so many seconds if it says when, and leaves its place to others."""

    after: float | None = None


class NoPlaceError(TransactionException):
    """The transaction has to wait for a place elsewhere. No attempt was made."""

    error_type = "NoPlace"


class FetchException(EngineError):  # noqa: N818 (the documents' name)
    """The connector could not give the next batch."""


class FetchTimeoutException(FetchException):
    """The connector did not give the next batch in time."""

    category = ExceptionType.TIMEOUT


class ConnectorError(EngineError):
    """A connector is missing, ambiguous, or failed to take an outcome."""


class UnreachableError(ConnectorError):
    """The server behind a connector does not answer."""


class UnrunnableError(EngineError):
    """A pipeline that cannot run here; the message says what is missing."""


class DependencyError(EngineError):
    """A server that is needed does not answer, or not enough; the message says which."""


class AbandonedAttemptsError(EngineError):
    """Every slot's worth of handlers has outlived its limit and still runs: the process must be replaced."""


class PolicyError(EngineError, ValueError):
    """A policy's field is out of bounds; the message names both, and `path` leads to the field."""

    code = "invalid_policy"

    def __init__(self, message: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class LoopTimeout(EngineError, TimeoutError):  # noqa: N818 (the documents' names below)
    """The loop's own time is up; `report` says what it had done."""

    category = ExceptionType.TIMEOUT

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.report)


class ConsumerLoopTimeout(LoopTimeout):
    """The consume loop's time is up."""


class ProducerLoopTimeout(LoopTimeout):
    """The produce loop's time is up."""


def category_in(error: BaseException) -> ExceptionType:
    """The category that an error names, SYSTEM if it names none that exists."""
    try:
        return ExceptionType(error.category)  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 (it has none, or its own property is broken)
        return ExceptionType.SYSTEM


def error_text(error: BaseException) -> str:
    """The text of an error, or its class name if it has none or raises."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 (its own __str__ is broken)
        return type(error).__name__


def headline(error: BaseException) -> str:
    """The first line of what an error says: databases add the rows that they refuse."""
    return next(iter(error_text(error).strip().splitlines()), type(error).__name__)


def wrapped(
    error: BaseException, category: ExceptionType = ExceptionType.SYSTEM, *, transaction_id: str | None = None
) -> TransactionException:
    """The error as a transaction's failure, with a message even where the original has none."""
    failure = TransactionException(error_text(error), category, transaction_id=transaction_id)
    return wrap(failure, error)


E = TypeVar("E", bound=EngineError)


def wrap(wrapper: E, error: BaseException) -> E:
    """Makes the wrapper stand for the error that was raised."""
    wrapper.__cause__ = error
    wrapper.is_wrapper = True
    return wrapper


def raised(error: BaseException) -> BaseException:
    """The error that a task or connector raised, whether or not the engine has wrapped it."""
    is_wrapper = isinstance(error, EngineError) and error.is_wrapper
    return error.__cause__ if is_wrapper and error.__cause__ is not None else error
