"""Errors of an executor itself, as the worker sees them."""

from engines.core.errors import EngineError


class ExecutorError(EngineError):
    """The executor failed, not the handler; `details` are its last words."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class ExecutorStartError(ExecutorError):
    """The executor could not be started."""


class ExecutorDied(ExecutorError):  # noqa: N818 (it reads as what happened)
    """The executor ended, or broke the protocol, before it had answered."""

    # It had answered other jobs, and ended without having read anything of this one.
    is_unread = False


class LimitPassed(EngineError):  # noqa: N818
    """The executor did not answer in time."""
