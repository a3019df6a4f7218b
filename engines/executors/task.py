"""The task of an executor pipeline: every transaction is a job for an executor, and its answer is the outcome."""

import threading
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from engines import telemetry
from engines.core.errors import ExceptionType, RetryLater, TransactionException
from engines.core.failures import storable
from engines.drivers.attempts import current_attempt
from engines.drivers.timeouts import Killed
from engines.drivers.work import Postponed, RunsElsewhere, Waiting
from engines.executors.errors import ExecutorDied, ExecutorError, LimitPassed
from engines.executors.pool import BRIEF, Pool, Pools
from engines.executors.protocol import (
    HANDLER_NOT_FOUND,
    ExecutionContext,
    ExecutionOutcome,
    ExecutionRequest,
    ProtocolError,
    Status,
    encode_request,
    margin,
    target_of,
)
from engines.executors.stdio import ExecutorProcess
from engines.tasks.hybrid import HybridTask
from engines.tasks.transaction import Transaction

LOOK = 0.05
# No deadline is told that is farther away than ten years: calendars end.
FAR = 10 * 366 * 86400.0
# Deadlines are told in milliseconds.
ROUNDING = 0.002
# The failures of an executor itself.
GONE = {"ExecutorDied", "ExecutorStartError"}


class JobFailed(TransactionException):
    """A job ended badly; `error_type` is the executor's word for it, `details` its last lines on stderr."""

    def __init__(
        self, message: str, category: ExceptionType = ExceptionType.SYSTEM, *, error_type: str, details: str = ""
    ) -> None:
        super().__init__(message, category)
        self.error_type, self.details = error_type, details


class JobRefused(JobFailed):
    """No attempt could do this job: nobody knows its handler or its executor."""

    is_fatal = True


class Place(NamedTuple):
    pool: Pool
    process: ExecutorProcess
    handler: str


class RunInExecutor(RunsElsewhere, HybridTask):
    """Its own handlers only record: what is to be done is written in any language, elsewhere."""

    def __init__(
        self, pools: Pools, *, executor: str, pipeline: str, worker_id: str, is_draining: bool = False, **given: Any
    ) -> None:
        """`is_draining`: what waits for an executor is to end before the loop does, and is not put back."""
        super().__init__(**given)
        self._is_draining = is_draining
        self._pools, self._executor = pools, executor
        self._pipeline, self._worker_id = pipeline, worker_id
        # Of the thread that holds it: a connector may deliver a transaction twice at a time.
        self._held = threading.local()
        self._dying: dict[str, ExecutorProcess] = {}

    @contextmanager
    def hold(self, transaction: Transaction, waiting: Waiting) -> Iterator[bool | Postponed]:
        """A process for the next attempt; False if nobody wants it any more, or how long to stay away.

        A transaction never has two: the process of its last attempt is gone before the next one begins.
        """
        waiting = waiting._replace(may_postpone=waiting.may_postpone and not self._is_draining)
        dying = self._dying.pop(transaction.id, None)
        if dying is not None and not dying.gone.wait(BRIEF):
            with waiting.aside():
                while waiting.is_wanted() and not dying.gone.wait(LOOK):
                    pass
        place = self._place(transaction, waiting)
        if place is None or isinstance(place, Postponed):
            yield place or False
            return
        # A wait during the attempt keeps its slot and lasts no longer than the attempt.
        self._held.place = place
        self._held.waiting = Waiting(
            lambda: waiting.is_wanted() and current_attempt().remaining != 0,
            lambda: nullcontext(enter_result=False),
            may_postpone=False,
        )
        try:
            yield True
        finally:
            unused, self._held.place = self._held.place, None
            if isinstance(unused, Place):
                unused.pool.free(unused.process, has_answered=False)

    def process_transaction(self, transaction: Transaction) -> Any:
        outcome = "success"
        try:
            return self._process(transaction)
        except BaseException as error:
            outcome = outcome_of(error)
            raise
        finally:
            count_job(transaction.payload, outcome, executor=self._executor, known=self._pools)

    produce_transaction = process_transaction

    def _process(self, transaction: Transaction) -> Any:
        place = self._held.place
        if isinstance(place, TransactionException):
            raise place
        try:
            line = self._request(transaction, place.handler)
        except ProtocolError as error:
            msg = f"the arguments are {error}"
            raise JobRefused(msg, error_type="BadArguments") from None
        while True:
            self._held.place = None
            try:
                return _value(self._ask(transaction.id, line, place))
            except ExecutorDied as error:
                if not error.is_unread:
                    raise _failed(error) from None
                # Between two jobs, and nobody had seen it yet: that is no attempt of this one.
                place = self._place(transaction, self._held.waiting)
                if not isinstance(place, Place):
                    raise (place if isinstance(place, JobFailed) else _failed(error)) from None

    def halt(self) -> None:
        """End all that runs: nobody waits for it."""
        self._pools.halt()

    def halt_one(self, transaction: Transaction) -> None:
        self._pools.halt_job(transaction.id)

    def _place(self, transaction: Transaction, waiting: Waiting) -> Place | Postponed | TransactionException | None:
        payload = transaction.payload
        if not isinstance(payload, dict):
            msg = "the payload must be an object with 'function', 'args' and 'kwargs'"
            return JobRefused(msg, error_type=HANDLER_NOT_FOUND)
        for name, kind, words in (("args", list, "an array"), ("kwargs", dict, "an object")):
            if payload.get(name) is not None and not isinstance(payload[name], kind):
                return JobRefused(f"the payload's {name!r} must be {words}", error_type=HANDLER_NOT_FOUND)
        try:
            target = target_of(payload.get("function"), self._executor)
        except ProtocolError as error:
            return JobRefused(str(error), error_type=HANDLER_NOT_FOUND)
        if target.executor not in self._pools:
            known = ", ".join(sorted(self._pools)) or "none"
            msg = f"there is no executor named {target.executor!r} in ERGON_EXECUTORS; there are: {known}"
            return JobRefused(msg, error_type="executor_not_found")
        pool = self._pools.find(target.executor)
        try:
            found = pool.hold(transaction.id, waiting)
        except ExecutorError as error:
            return _failed(error)
        return Place(pool, found, target.handler) if isinstance(found, ExecutorProcess) else found

    def _request(self, transaction: Transaction, handler: str) -> bytes:
        attempt, payload = current_attempt(), transaction.payload
        left = attempt.remaining
        context = ExecutionContext(
            job_id=transaction.id,
            attempt=attempt.number,
            enqueue_time=transaction.created_at,
            queue_name=self._pipeline,
            deadline=None if left is None else datetime.now(UTC) + timedelta(seconds=min(left, FAR)),
            trace_context=telemetry.current_trace() or dict(transaction.trace_context),
            worker_id=self._worker_id,
        )
        return encode_request(
            ExecutionRequest(
                job_id=transaction.id,
                function_name=handler,
                args=payload.get("args") or [],
                kwargs=payload.get("kwargs") or {},
                context=context,
            )
        )

    def _ask(self, job_id: str, line: bytes, place: Place) -> ExecutionOutcome:
        pool, process, _ = place
        left = current_attempt().remaining
        until = None if left is None else time.monotonic() + left
        try:
            outcome = process.ask(job_id, line, until)
        except LimitPassed as error:
            self._watch_dying(job_id, process)
            pool.kill(process)
            raise Killed(str(error)) from None
        except ExecutorDied as error:
            self._watch_dying(job_id, process)
            pool.lose(process, str(error))
            raise
        except BaseException:
            pool.kill(process)
            raise
        pool.free(process)
        if outcome.status is Status.TIMEOUT and until is not None and left is not None:
            # One that stopped by itself at its limit is treated like one that was killed. Whose time that was, of the
            # attempt, the transaction or the loop, is not the executor's to say: each ends at its moment, not before.
            early = until - time.monotonic()
            if early <= margin(left) + ROUNDING:
                time.sleep(max(0.0, early))
                raise Killed
        return outcome

    def _watch_dying(self, job_id: str, process: ExecutorProcess) -> None:
        for other, dying in list(self._dying.items()):
            if dying.gone.is_set():
                self._dying.pop(other, None)
        self._dying[job_id] = process


def count_job(payload: Any, outcome: str, *, executor: str, known: Container[str]) -> None:
    """Count a job in the metrics, for the executor that its payload names."""
    try:
        function = payload.get("function") if isinstance(payload, dict) else None
        name = target_of(function, executor).executor
    except ProtocolError:
        name = executor
    # A name that nobody has configured comes from a payload, and would be a new series each time.
    attributes = {telemetry.EXECUTOR: name if name in known else executor, telemetry.OUTCOME: outcome}
    telemetry.executor_jobs.add(1, attributes)


def outcome_of(error: BaseException) -> str:
    """The word for a job that raised this, for the metrics."""
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


def _failed(error: ExecutorError) -> JobFailed:
    failure = JobFailed(str(error), error_type=type(error).__name__, details=error.details)
    failure.__cause__ = error
    return failure


def _value(outcome: ExecutionOutcome) -> Any:
    """The result, or what the executor's word means."""
    message = outcome.error_message or ""
    match outcome.status:
        case Status.SUCCESS:
            return outcome.result
        case Status.RETRY:
            later = RetryLater(message or "the handler asked for a retry")
            later.error_type, later.after = storable(outcome.error_type or "RetryJob"), outcome.retry_after_seconds
            raise later
        case Status.TIMEOUT:
            word = storable(outcome.error_type or "timeout")
            raise JobFailed(message or "the executor reported a timeout", ExceptionType.TIMEOUT, error_type=word)
        case _ if outcome.error_type == HANDLER_NOT_FOUND:
            raise JobRefused(message or "the executor has no such handler", error_type=HANDLER_NOT_FOUND)
    raise JobFailed(message or "the executor gave no reason", error_type=storable(outcome.error_type or "error"))
