"""The Python executor: reads a request a line, calls the handler it names, writes an outcome a line."""

import asyncio
import math
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from engines.executors import telemetry
from engines.executors.handlers import Handler, HandlerRegistry, RetryJob
from engines.executors.protocol import (
    HANDLER_NOT_FOUND,
    LINE_LIMIT,
    ExecutionOutcome,
    ExecutionRequest,
    Lines,
    ProtocolError,
    Status,
    decode_request,
    encode_outcome,
)

# After SIGTERM a job may take so long to end.
LAST_SECONDS = 2.0
# An executor that stops by itself does so a little before it is killed for being late.
EARLY, MOST_EARLY = 0.05, 0.05


class OutOfTime(BaseException):
    """Ends a handler from outside. No `except Exception` of a handler's takes it for its own."""


class Stopped(BaseException):
    """Ends the wait for a request."""


class Runtime:
    """Runs one job after the other, until its input ends or somebody stops it."""

    def __init__(self, registry: HandlerRegistry, source: int, answer: Callable[[bytes], None]) -> None:
        self._registry, self._source, self._answer = registry, source, answer
        self._loop = asyncio.Runner()
        self._is_stopping = self._is_waiting = self._is_running = False

    def run(self) -> None:
        """Until the end of the input, or SIGTERM."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGALRM, self._expire)
        with self._loop, suppress(Stopped):
            lines = Lines()
            while chunk := self._read():
                self._serve(lines, chunk)
            if lines.is_mid_line:
                self._serve(lines, b"\n")

    def _serve(self, lines: Lines, chunk: bytes) -> None:
        try:
            for line in lines.feed(chunk):
                self._answer(encode(self._outcome_of(line)))
        except ProtocolError as error:
            self._answer(encode(failed(error.job_id, f"the request is too long: {error}", error.error_type)))

    def _read(self) -> bytes:
        self._is_waiting = True
        try:
            if self._is_stopping:
                raise Stopped
            return os.read(self._source, 65536)
        finally:
            self._is_waiting = False

    def _outcome_of(self, line: bytes) -> ExecutionOutcome:
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
        job_id, left = request.job_id, _time_for(request)
        try:
            value = self._call(handler, request, left)
        except RetryJob as error:
            return ExecutionOutcome(
                job_id=job_id, status=Status.RETRY, error_message=_told(error), retry_after_seconds=_after(error)
            )
        except OutOfTime:
            why = "the executor was told to stop" if self._is_stopping else "the deadline has passed"
            return ExecutionOutcome(job_id=job_id, status=Status.TIMEOUT, error_message=why, error_type="TimeoutError")
        except TimeoutError as error:
            return ExecutionOutcome(
                job_id=job_id, status=Status.TIMEOUT, error_message=_told(error), error_type=type(error).__name__
            )
        except BaseException as error:  # noqa: BLE001 (SystemExit of a handler included: the process lives on)
            return failed(job_id, _told(error), type(error).__name__)
        return ExecutionOutcome(job_id=job_id, status=Status.SUCCESS, result=value)

    def _call(self, handler: Handler, request: ExecutionRequest, left: float) -> Any:
        """Call it, and cut it off when its time is up. Nothing is begun that is late already."""
        if left <= 0:
            raise OutOfTime
        self._is_running = True
        try:
            if handler.is_async:
                return self._loop.run(_in_time(handler(request.context, request.args, request.kwargs), left))
            if math.isfinite(left):
                signal.setitimer(signal.ITIMER_REAL, left)
            return handler(request.context, request.args, request.kwargs)
        finally:
            self._is_running = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._is_stopping = True
        if self._is_waiting:
            raise Stopped
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        signal.setitimer(signal.ITIMER_REAL, min(left or math.inf, LAST_SECONDS))

    def _expire(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_running:
            self._is_running = False
            raise OutOfTime


def encode(outcome: ExecutionOutcome) -> bytes:
    """The answer's line; a result that cannot be written is the handler's failure."""
    try:
        line = encode_outcome(outcome)
    except ProtocolError as error:
        return encode_outcome(failed(outcome.job_id, f"the result is {error}", "ResultNotSerialisable"))
    if len(line) > LINE_LIMIT:
        msg = f"the result takes {len(line):,} bytes as JSON; {LINE_LIMIT:,} are allowed"
        return encode_outcome(failed(outcome.job_id, msg, "ResultTooLarge"))
    return line


def failed(job_id: str, message: str, error_type: str) -> ExecutionOutcome:
    return ExecutionOutcome(job_id=job_id, status=Status.ERROR, error_message=message, error_type=error_type)


async def _in_time(running: Awaitable[Any], left: float) -> Any:
    async with asyncio.timeout(left if math.isfinite(left) else None):
        return await running


def _time_for(request: ExecutionRequest) -> float:
    if request.context.deadline is None:
        return math.inf
    left = request.context.deadline.timestamp() - time.time()
    return left - min(left * EARLY, MOST_EARLY)


def _told(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 (its own __str__ is broken)
        return type(error).__name__


def _after(error: RetryJob) -> float | None:
    seconds = error.after
    is_usable = isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds)
    return seconds if is_usable else None
