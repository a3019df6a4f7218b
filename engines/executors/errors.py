"""Errors of an executor itself, as the worker sees them."""

import errno

from engines.core.errors import EngineError

# No processes, no memory, and no open files left, of this process or of the whole machine.
SCARCITY = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class ExecutorError(EngineError):
    """The executor failed, not the handler; `details` are its last words."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class ExecutorStartError(ExecutorError):
    """The executor could not be started."""


class ExecutorNoRoomError(ExecutorStartError):
    """The executor could not be started now: the machine has no process, thread, file or memory left for it."""


class ExecutorDied(ExecutorError):  # noqa: N818 (it reads as what happened)
    """The executor ended, or broke the protocol, before it had answered."""

    # It had answered other jobs, and ended without having read anything of this one.
    is_unread = False


class LimitPassed(EngineError):  # noqa: N818
    """The executor did not answer in time."""
