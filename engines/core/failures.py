"""Turns a failure into the texts of an attempt, a dead letter or a span, without secrets, and into its fingerprint."""

import re
import traceback
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from engines.core.attempt import AttemptRecord
from engines.core.errors import ExceptionType, TransactionException, category_in, error_text, raised
from engines.core.outcome import Failure
from engines.core.steps import Stage
from engines.core.text_redaction import redact_text

LONGEST_MESSAGE = 10_000
LONGEST_TRACEBACK = 50_000
LONGEST_TYPE = 200
LONGEST_PATTERN = 300
# A text is cut to so many times its length before secrets are looked for, which may make it shorter.
SPARE = 2

_QUOTED = re.compile(r"'[^']{0,200}'|\"[^\"]{0,200}\"|`[^`]{0,200}`")
_IDENTIFIER = re.compile(
    r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b|\b0x[0-9a-f]+\b|\b[0-9a-f]{16,}\b", re.IGNORECASE
)
_NUMBER = re.compile(r"(?<!\w)[-+]?\d+(?:[.,:]\d+)*|\d+(?:[.,:]\d+)*")


def summary(failure: Failure, attempts: Iterable[AttemptRecord]) -> dict[str, Any]:
    """The columns of a failure: the first error, and that of the exception handler, if it failed as well."""
    error = (failure.origin or failure).error
    error_text = {
        **_columns(error),
        "category": category_of(failure).value,
        "step": failed_step(attempts).value,
    }
    return error_text if failure.origin is None else error_text | {"exception_handler": _columns(failure.error)}


def restored(told: Mapping[str, Any]) -> tuple[Stage, Failure]:
    """The step and the failure that a summary tells of, as far as it does."""
    error = TransactionException(told["message"], ExceptionType(told["category"]))
    error.error_type = told["type"]
    return Stage(told["step"]), Failure(error)


def error_type(error: BaseException) -> str:
    """The name of the error that a task raised, not of what it was wrapped in."""
    origin = raised(error)
    elsewhere = origin.error_type if isinstance(origin, TransactionException) else None
    return storable(str(elsewhere or type(origin).__qualname__))[:LONGEST_TYPE]


def _columns(error: BaseException) -> dict[str, str]:
    return {"type": error_type(error), "message": message_of(error)}


def message_of(error: BaseException) -> str:
    return without_secrets(error_text(error)[: SPARE * LONGEST_MESSAGE])[:LONGEST_MESSAGE]


def category_of(failure: Failure) -> ExceptionType:
    """Whose failure it was: of the step that failed first, not of the handler that failed over it."""
    origin = failure.origin or failure
    return category_in(origin.error)


def failed_step(attempts: Iterable[AttemptRecord]) -> Stage:
    """The step whose failure ended the transaction: the last that failed and was not the exception handler."""
    failed = [one.stage for one in attempts if isinstance(one.outcome, Failure)]
    before = [stage for stage in failed if stage is not Stage.EXCEPTION]
    return (before or failed or [Stage.PROCESS])[-1]


def traceback_of(error: BaseException) -> str:
    """The traceback of the error that a task raised, with the chain of its causes; or what an executor said at last."""
    origin = raised(error)
    details = origin.details if isinstance(origin, TransactionException) else None
    text = details if isinstance(details, str) else _formatted(origin)
    return without_secrets(text[-SPARE * LONGEST_TRACEBACK :])[-LONGEST_TRACEBACK:]


def _formatted(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 (an error may be broken in ways of its own)
        return f"{type(error).__qualname__}: {error_text(error)}"


def without_secrets(text: str) -> str:
    """A text that every column takes, with a stand-in for everything that looks like a secret."""
    return redact_text(storable(text))


def storable(text: str) -> str:
    """A text that every column takes: no U+0000, no half of a surrogate pair."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def normalise(message: str) -> str:
    """A message without what differs from case to case: quoted values, identifiers, numbers."""
    line = message.strip().partition("\n")[0]
    for pattern, stand_in in ((_QUOTED, "'…'"), (_IDENTIFIER, "…"), (_NUMBER, "#")):
        line = pattern.sub(stand_in, line)
    return line[:LONGEST_PATTERN]


def fingerprint(source: str, step: str, error_type: str, message: str) -> str:
    """The key of a kind of failure: who failed, in which step, with what, saying what in general."""
    parts = "\x1f".join((source, step, error_type, normalise(message)))
    return sha256(parts.encode("utf-8", "replace")).hexdigest()[:32]
