"""What is told of a failure, in rows and on pages."""

import traceback
from collections.abc import Iterable
from typing import Any

from engines.core.errors import ExceptionType, told
from engines.core.journal import Attempted
from engines.core.outcome import Failure
from engines.core.steps import Stage

LONGEST_MESSAGE = 10_000
LONGEST_TRACEBACK = 50_000
LONGEST_TYPE = 200


def summary(failure: Failure, attempts: Iterable[Attempted]) -> dict[str, Any]:
    """What a record keeps of its end: the failure that came first, and that of the handler over it, if there is one."""
    error = (failure.origin or failure).error
    told = {
        **_told(error),
        "category": category_of(failure).value,
        "step": failed_step(attempts).value,
    }
    return told if failure.origin is None else told | {"exception_handler": _told(failure.error)}


def error_type(error: BaseException) -> str:
    """The name of the error that a task raised, not of what it was wrapped in."""
    return (getattr(error, "error_type", None) or type(error.__cause__ or error).__qualname__)[:LONGEST_TYPE]


def _told(error: BaseException) -> dict[str, str]:
    return {"type": error_type(error), "message": message_of(error)}


def message_of(error: BaseException) -> str:
    return storable(told(error))[:LONGEST_MESSAGE]


def category_of(failure: Failure) -> ExceptionType:
    """Whose failure it was: of the step that failed first, not of the handler that failed over it."""
    origin = failure.origin or failure
    return category_of_error(origin.error)


def category_of_error(error: BaseException) -> ExceptionType:
    return ExceptionType(getattr(error, "category", None) or ExceptionType.SYSTEM)


def failed_step(attempts: Iterable[Attempted]) -> Stage:
    """The step whose failure ended the transaction: the last that failed and was not the exception handler."""
    failed = [one.stage for one in attempts if isinstance(one.outcome, Failure)]
    before = [stage for stage in failed if stage is not Stage.EXCEPTION]
    return (before or failed or [Stage.PROCESS])[-1]


def traceback_of(error: BaseException) -> str:
    """Where a task failed: the traceback of its own error, not of what it was wrapped in."""
    if (details := getattr(error, "details", None)) is not None:
        return storable(details)[-LONGEST_TRACEBACK:]
    origin = error.__cause__ or error
    return storable("".join(traceback.format_exception(origin)))[-LONGEST_TRACEBACK:]


def storable(text: str) -> str:
    """A text that every column takes: no U+0000, no half of a surrogate pair."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
