"""The Python executor: reads a request a line, calls the handler it names, writes an outcome a line."""

import inspect
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from types import FrameType
from typing import TYPE_CHECKING, Any

from engines.executors import telemetry
from engines.executors.handlers import Handler, HandlerRegistry, RetryJob
from engines.executors.lines import LINE_LIMIT, Lines, TooLong
from engines.executors.protocol import (
    HANDLER_NOT_FOUND,
    ExecutionOutcome,
    ExecutionRequest,
    ProtocolError,
    Status,
    decode_request,
    encode_outcome,
    job_in,
    margin,
)

if TYPE_CHECKING:
    import asyncio

# After SIGTERM a job may take so long to end, and the process so long to be gone.
LAST_SECONDS, VERY_LAST = 1.5, 0.4
# An alarm rings again after this: the system may give it to another thread, which wakes nobody.
AGAIN = 0.2
# A coroutine is asked to stop; one that does not listen, because it blocks, is stopped so much later.
DEAF = 0.01
# What is farther away than a year limits nobody, and the system's timers do not reach everywhere.
YEAR = 366 * 86400.0


class OutOfTime(BaseException):
    """Ends a handler from outside. No `except Exception` of a handler's takes it for its own."""


class OutOfTimeInLoop(OutOfTime, KeyboardInterrupt):
    """The same in an event loop, which keeps whatever else is raised in one of its callbacks."""


class Expired(Exception):  # noqa: N818 (it reads as what happened)
    """A coroutine was stopped in the usual way."""


class Stopped(BaseException):
    """Ends the wait for a request."""


class Runtime:
    """Runs one job after the other, until its input ends or somebody stops it."""

    def __init__(self, registry: HandlerRegistry, source: int, answer: Callable[[bytes], None]) -> None:
        self._registry, self._source, self._answer = registry, source, answer
        self._loop: asyncio.Runner | None = None
        self._stops_at = math.inf
        self._is_waiting = self._is_running = self._is_in_loop = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGALRM, self._expire)
        with suppress(Stopped):
            lines = Lines()
            while chunk := self._read():
                self._serve(lines, chunk)
            if lines.is_mid_line:
                self._serve(lines, b"\n")
        self._forget_loop()

    @property
    def _is_stopping(self) -> bool:
        return self._stops_at < math.inf

    def _serve(self, lines: Lines, chunk: bytes) -> None:
        for line in lines.feed(chunk):
            if self._is_stopping:
                raise Stopped
            self._answer(encode(self._outcome_of(line)))

    def _read(self) -> bytes:
        self._is_waiting = True
        try:
            if self._is_stopping:
                raise Stopped
            return os.read(self._source, 65536)
        finally:
            self._is_waiting = False

    def _outcome_of(self, line: bytes | TooLong) -> ExecutionOutcome:
        if isinstance(line, TooLong):
            msg = f"the request is too long: {LINE_LIMIT:,} bytes are allowed"
            return failed(job_in(line.beginning), msg, "bad_request")
        try:
            request = decode_request(line)
        except ProtocolError as error:
            return failed(error.job_id, str(error), error.error_type)
        handler = self._registry.find(request.function_name)
        if handler is None:
            known = ", ".join(self._registry.names()) or "none"
            msg = f"there is no handler named {request.function_name!r}; there are: {known}"
            return failed(request.job_id, msg, HANDLER_NOT_FOUND)
        with telemetry.span(request) as told:
            outcome = self._run(handler, request)
            told(outcome)
        return outcome

    def _run(self, handler: Handler, request: ExecutionRequest) -> ExecutionOutcome:
        job_id, left = request.job_id, math.inf
        if request.context.deadline is not None:
            until = request.context.deadline.timestamp() - time.time()
            left = until - margin(until) if until < YEAR else math.inf
        try:
            value = self._call(handler, request, left)
        except RetryJob as error:
            return ExecutionOutcome(
                job_id=job_id, status=Status.RETRY, error_message=_error_text(error), retry_after_seconds=_after(error)
            )
        except OutOfTime:
            why = "the executor was told to stop" if self._is_stopping else "the deadline has passed"
            return failed(job_id, why, "TimeoutError", Status.TIMEOUT)
        except TimeoutError as error:
            return failed(job_id, _error_text(error), type(error).__name__, Status.TIMEOUT)
        except BaseException as error:  # noqa: BLE001 (SystemExit of a handler included: the process lives on)
            with suppress(Exception):
                traceback.print_exception(error)  # the answer has room for the message alone
            return failed(job_id, _error_text(error), type(error).__name__)
        finally:
            with suppress(Exception):
                sys.stdout.flush()  # what a handler printed without an end of line is its own, not the next one's
        return ExecutionOutcome(job_id=job_id, status=Status.SUCCESS, result=value)

    def _call(self, handler: Handler, request: ExecutionRequest, left: float) -> Any:
        """Call it, and cut it off when its time is up. Nothing is begun that is late already."""
        if left <= 0:
            raise OutOfTime
        ends_at = time.monotonic() + left
        self._is_running = True
        try:
            self._wake_at(ends_at)
            variables = copy_context()  # of each job, so that it sees neither those nor the span of another
            value = variables.run(handler, request.context, request.args, request.kwargs)
            return self._awaited(value, ends_at, variables) if inspect.iscoroutine(value) else value
        finally:
            self._is_running = False
            self._wake_at(math.inf)

    def _awaited(self, running: Coroutine[Any, Any, Any], ends_at: float, variables: Context) -> Any:
        import asyncio

        self._loop = self._loop or asyncio.Runner()
        self._is_in_loop = True
        self._wake_at(ends_at + DEAF)
        try:
            return self._loop.run(_in_time(running, ends_at - time.monotonic()), context=variables)
        except Expired:
            raise OutOfTime from None
        except OutOfTime:
            self._abandon_loop()
            raise
        finally:
            self._is_in_loop = False

    def _abandon_loop(self) -> None:
        """It may have been struck in the middle of its own work, and might wait for ever for what is left of that."""
        self._is_running = True
        self._wake_at(time.monotonic() + DEAF)
        with suppress(OutOfTime):
            self._forget_loop()

    def _forget_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()

    def _wake_at(self, moment: float) -> None:
        """Set the one alarm that there is: for the job, or for an end that was asked for."""
        moment = min(moment, self._stops_at)
        # A timer of zero seconds would never ring.
        seconds = max(1e-6, moment - time.monotonic()) if math.isfinite(moment) else 0
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_stopping:
            self._stops_at = time.monotonic() + LAST_SECONDS
            left = signal.getitimer(signal.ITIMER_REAL)[0]
            self._wake_at(time.monotonic() + left if left else math.inf)
        if self._is_waiting:
            raise Stopped

    def _expire(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_stopping and time.monotonic() >= self._stops_at + VERY_LAST:
            os._exit(128 + signal.SIGTERM)  # it does not end by itself
        if time.monotonic() >= self._stops_at:
            signal.setitimer(signal.ITIMER_REAL, VERY_LAST, AGAIN)
        if self._is_running:
            self._is_running = False
            raise OutOfTimeInLoop if self._is_in_loop else OutOfTime


def encode(outcome: ExecutionOutcome) -> bytes:
    """The answer's line; a result that cannot be written is the handler's failure."""
    try:
        line = encode_outcome(outcome)
    except ProtocolError as error:
        return encode_outcome(failed(outcome.job_id, f"the result is {error}", "ResultNotSerialisable"))
    if len(line) > LINE_LIMIT:
        msg = f"the answer takes {len(line):,} bytes as JSON; {LINE_LIMIT:,} are allowed"
        return encode_outcome(failed(outcome.job_id, msg, "ResultTooLarge"))
    return line


def failed(job_id: str, message: str, error_type: str, status: Status = Status.ERROR) -> ExecutionOutcome:
    return ExecutionOutcome(job_id=job_id, status=status, error_message=message, error_type=error_type)


async def _in_time(running: Coroutine[Any, Any, Any], left: float) -> Any:
    import asyncio

    limit = asyncio.timeout(left if math.isfinite(left) else None)
    try:
        async with limit:
            return await running
    except TimeoutError:
        if limit.expired():
            raise Expired from None
        raise


def _error_text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 (its own __str__ is broken)
        return type(error).__name__


def _after(error: RetryJob) -> float | None:
    try:
        seconds = float(error.after)  # type: ignore[arg-type]
    except (AttributeError, TypeError, ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None
