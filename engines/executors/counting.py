"""Counts the jobs of executors, by how they came out."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from engines import telemetry
from engines.core.errors import ExceptionType, RetryLater
from engines.drivers.limits import Killed
from engines.executors.protocol import ProtocolError, target_of
from engines.executors.task import JobFailed, JobRefused

# What the task calls the failure of an executor itself.
GONE = {"ExecutorDied", "ExecutorStartError"}


def counted(hook: Callable[[Any], Any], *, executor: str, known: Any) -> Callable[[Any], Any]:
    """The hook of an executor pipeline, each of whose calls is one job for the metrics."""

    @wraps(hook)
    def handle(transaction: Any) -> Any:
        outcome = "success"
        try:
            return hook(transaction)
        except BaseException as error:
            outcome = outcome_of(error)
            raise
        finally:
            name = _executor(transaction.payload, executor)
            # A name that nobody has configured comes from a payload, and would be a new series each time.
            attributes = {telemetry.EXECUTOR: name if name in known else executor, telemetry.OUTCOME: outcome}
            telemetry.executor_jobs.add(1, attributes)

    return handle


def outcome_of(error: BaseException) -> str:
    match error:
        case RetryLater():
            return "retry"
        case Killed():
            return "killed"
        case JobRefused():
            return "refused"
        case JobFailed(error_type=word) if word in GONE:
            return "died"
        case JobFailed(category=ExceptionType.TIMEOUT):
            return "timeout"
    return "error"


def _executor(payload: Any, default: str) -> str:
    try:
        return target_of(payload.get("function") if isinstance(payload, dict) else None, default).executor
    except ProtocolError:
        return default
