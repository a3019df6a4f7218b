"""The attempt that a handler runs in, and the check of what the handler returns."""

import inspect
import time
from collections.abc import Callable
from contextvars import ContextVar
from types import AsyncGeneratorType, GeneratorType
from typing import Any, NamedTuple

from engines.core.steps import Call, Stage
from engines.drivers.deadlines import Limit

PLAIN = (type(None), bool, int, float, str, dict, list, tuple)
UNRUN = (GeneratorType, AsyncGeneratorType)


class CurrentAttempt(NamedTuple):
    """The attempt that a handler runs in."""

    step: str
    number: int  # from 1, for people
    of: int
    ends_at: float | None = None
    asks_whether_lost: Callable[[], bool] = lambda: False

    @property
    def remaining(self) -> float | None:
        """Seconds until this attempt is given up, None if nothing limits it."""
        return None if self.ends_at is None else max(0.0, self.ends_at - time.monotonic())

    @property
    def is_lease_lost(self) -> bool:
        """Whether another worker has the transaction by now: whatever this attempt still does counts for nothing."""
        return self.asks_whether_lost()


# Outside an engine, as in a test of a handler, it is the first and only attempt.
_current = ContextVar("attempt", default=CurrentAttempt("process", 1, 1))  # noqa: B039 (immutable)


def current_attempt() -> CurrentAttempt:
    """The attempt that this code runs in; `remaining` and `is_lease_lost` let a handler stop by itself."""
    return _current.get()


def announce(call: Call, limit: Limit | None, is_lost: Callable[[], bool] | None = None) -> None:
    """Set the current attempt, for the handler that is called next."""
    ends_at = None if limit is None else time.monotonic() + limit.seconds
    attempt = CurrentAttempt(call.stage.value, call.attempt + 1, call.retry.max_attempts, ends_at)
    _current.set(attempt if is_lost is None else attempt._replace(asks_whether_lost=is_lost))


def checked_result(value: Any, stage: Stage, *, is_async: bool = False) -> Any:
    """The result of a handler; refused if it is a generator or coroutine, which is never run."""
    if type(value) in PLAIN or not (inspect.isawaitable(value) or isinstance(value, UNRUN)):
        return value
    if isinstance(value, UNRUN):
        msg = f"the {stage.value} handler returned a generator, which is never run; return its values instead"
        raise TypeError(msg)
    kind = type(value).__name__
    if inspect.iscoroutine(value):
        value.close()
        kind = "coroutine"
    if is_async:
        msg = f"the {stage.value} handler returned a {kind} that was not awaited"
    else:
        msg = f"the {stage.value} handler of a threaded task returned a {kind}; derive the task from an Async class"
    raise TypeError(msg)
