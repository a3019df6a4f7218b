"""The one wrapper of spans and metrics around what the drivers perform; nothing at all where nobody listens."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from opentelemetry import context as contexts
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_tracer, set_span_in_context

from engines import telemetry
from engines.core import failures
from engines.core.errors import category_in
from engines.core.outcome import CUT, Cancelled, Cut, Failure, Later, Outcome, Success
from engines.core.policy import RetryPolicy
from engines.core.steps import Call, Enter, Leave, Sleep, Stage, Step
from engines.drivers.requests import Lifecycle, Requests
from engines.drivers.work import Work

Attributes = dict[str, Any]


def observer_of(work: Work) -> "Observer":
    """A recorder where telemetry is installed, an observer that does nothing otherwise."""
    return Observer() if not (telemetry.is_tracing() or telemetry.is_metering()) else Recorder(work)


class Trace:
    """Records a lifecycle: a span for each stage, one for each attempt, and their metrics."""

    __slots__ = ("_attempted_at", "_attributes", "_common", "_open", "_recorder", "_shows_values")

    def __init__(self, recorder: "Recorder", common: Attributes, *, shows_values: bool = False) -> None:
        self._recorder = recorder
        self._shows_values = shows_values
        self._common = common
        self._attributes = common  # of the stage that was entered last
        self._open: list[tuple[Span, contexts.Context, Any]] = []
        self._attempted_at = 0.0

    def before(self, step: Step) -> None:
        if isinstance(step, Call):
            name = self._recorder.attempt_spans[step.stage]
            self.push(name, {**self._attributes, telemetry.ATTEMPT: step.attempt}, is_current=True)
            self._attempted_at = time.perf_counter()
        elif isinstance(step, Enter):
            self._attributes = self._recorder.stage(step.stage, step.retry) | self._common
            self.push(self._recorder.spans[step.stage], self._attributes)
        elif isinstance(step, Leave):
            self.pop(step.outcome)

    def after(self, call: Call, reply: Any) -> None:
        if not isinstance(reply, Later | Cancelled):  # there was no place for an attempt
            self._recorder.attempted(call.stage, reply, time.perf_counter() - self._attempted_at)
        self.pop(reply)

    def push(self, name: str, attributes: Attributes, *, is_current: bool = False, **options: Any) -> None:
        """Open a span below the last one. It is the current one where somebody else's code runs in it."""
        above = self._open[-1][1] if self._open else contexts.get_current()
        span = self._recorder.start_span(name, above, attributes=attributes, **options)
        context = set_span_in_context(span, above)
        self._open.append((span, context, contexts.attach(context) if is_current else None))

    def pop(self, outcome: Outcome) -> None:
        span, _, token = self._open.pop()
        if span.is_recording():
            self._recorder.describe(span, outcome, shows_value=self._shows_values)
        span.end()
        if token is not None:
            contexts.detach(token)

    def close(self, outcome: Outcome = CUT) -> None:
        """End what is open; after an interruption that is more than the outermost."""
        while self._open:
            self.pop(outcome)


class Cycle:
    """The span of one fetch and of everything fetched by it; it ends with the last of these."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self._lock = Lock()
        self._pending = 1  # the fetch itself

    def begin(self, count: int) -> None:
        with self._lock:
            self._pending += count

    def end(self) -> bool:
        """A part of the cycle has ended; True if it was the last."""
        with self._lock:
            self._pending -= 1
            is_over = self._pending == 0
        if is_over:
            self.close()
        return is_over

    def close(self) -> None:
        """The loop is over: what was fetched but given back never started, and ends nowhere else."""
        if self.span.is_recording():
            self.span.end()


class Observer:
    """Watches nothing."""

    is_recording = False

    @contextmanager
    def loop(self, timeout_error: Callable[[], Exception | None]) -> Iterator[None]:
        yield

    def before(self, step: Step) -> None: ...

    def after(self, step: Step, reply: Any) -> None: ...

    def batch(self, lifecycle: Callable[..., Requests[Outcome]], count: int) -> Lifecycle:
        return lifecycle

    def abandoned(self) -> None: ...

    def adopt(self, work: Work) -> None: ...

    def fetched(self, batch: list[Any], depth: int | None) -> None: ...


class Recorder(Observer):
    """Watches one loop, its batches and their transactions."""

    is_recording = True

    def __init__(self, work: Work) -> None:
        self.spans = telemetry.CONSUMER_SPANS if work.is_consumer else telemetry.PRODUCER_SPANS
        self.attempt_spans = {stage: f"{name}.attempt" for stage, name in self.spans.items()}
        self.start_span = get_tracer(telemetry.SCOPE).start_span  # of the SDK itself, for as long as the loop runs
        self._kind = SpanKind.CONSUMER if work.is_consumer else SpanKind.PRODUCER
        self._is_metering = telemetry.is_metering()
        self._labels = labels_of(work.name, work.pipeline)
        self._fetching: Trace | None = None
        self._cycle: Cycle | None = None
        self._cycles: set[Cycle] = set()
        self._token: Any = None
        self.adopt(work)

    def adopt(self, work: Work) -> None:
        """Describe what follows by this policy."""
        self.work = work
        self._about = _known(
            {
                **self._labels,
                telemetry.POLICY_VERSION: work.policy_version,
                "messaging.system": "ergon",
                "messaging.destination.name": work.pipeline or work.name,
            }
        )
        self._one = {**self._about, "messaging.operation.name": "process" if work.is_consumer else "send"}
        self._stages: dict[Stage, Attributes] = {}

    @contextmanager
    def loop(self, timeout_error: Callable[[], Exception | None]) -> Iterator[None]:
        try:
            yield
        finally:
            if self._fetching is not None:
                self._fetching.close()
            error = timeout_error()
            if error is not None:
                self._fail_cycle(error)
            self._close_cycle()
            for cycle in self._cycles:
                cycle.close()

    def before(self, step: Step) -> None:
        if isinstance(step, Enter):
            self._begin_fetch()
        if self._fetching is not None:
            self._fetching.before(step)

    def _begin_fetch(self) -> None:
        """A producer has a cycle for each batch; its fetches have no span."""
        if not self.work.is_consumer:
            self._close_cycle()
        elif self.work.is_streaming or self._cycle is None:
            self._open_cycle()
            self._fetching = Trace(self, {})

    def after(self, step: Step, reply: Any) -> None:
        if self._fetching is not None and isinstance(step, Call):
            self._fetching.after(step, reply)
        if isinstance(step, Sleep) and step.is_for_work:
            telemetry.empty_waits.add(1, self._labels)

    def batch(self, lifecycle: Callable[..., Requests[Outcome]], count: int) -> Lifecycle:
        """The lifecycles of a batch, each with a trace of its own."""
        cycle = self._begin(count)

        def observed(transaction: Any) -> Requests[Outcome]:
            trace, started = self._start(transaction), time.perf_counter()
            outcome: Outcome = CUT
            try:
                outcome = yield from lifecycle(transaction, trace)
            finally:
                self._end(trace, outcome, cycle, time.perf_counter() - started)
            return outcome

        return observed

    def abandoned(self) -> None:
        telemetry.abandoned.add(1, self._labels)

    def fetched(self, batch: list[Any], depth: int | None) -> None:
        tell_of_the_queue(self._labels, batch, depth)

    def stage(self, stage: Stage, retry: RetryPolicy) -> Attributes:
        """The attributes that all spans of a stage share."""
        if stage not in self._stages:
            self._stages[stage] = _known(
                {
                    **self._about,
                    telemetry.STEP: stage.value,
                    telemetry.MAX_ATTEMPTS: retry.max_attempts,
                    "ergon.retry.timeout": retry.timeout,
                    "ergon.retry.backoff": retry.backoff,
                    "ergon.retry.backoff_multiplier": retry.backoff_multiplier,
                    "ergon.retry.backoff_cap": retry.backoff_cap,
                }
            )
        return self._stages[stage]

    def attempted(self, stage: Stage, outcome: Outcome, seconds: float) -> None:
        if not self._is_metering:
            return
        labels = {**self._labels, telemetry.STEP: stage.value, telemetry.OUTCOME: _word(outcome)}
        telemetry.attempts.add(1, labels)
        telemetry.attempt_duration.record(seconds, labels)

    def describe(self, span: Span, outcome: Outcome, *, shows_value: bool) -> None:
        """Set the outcome on a span: the type of a result, the message of an error; values if the policy allows it."""
        if isinstance(outcome, Success):
            text = telemetry.text_of(outcome.value) if shows_value else type(outcome.value).__name__
            span.set_attribute(telemetry.RESULT, text)
            return
        match outcome:
            case Failure(error):
                span.set_attributes(_known(_fault(error)))
                span.set_status(Status(StatusCode.ERROR, failures.message_of(error)))
            case Later(seconds):
                span.set_attributes({telemetry.OUTCOME: "later", "ergon.retry.after": seconds})
            case Cancelled() | Cut():
                span.set_attribute(telemetry.OUTCOME, _word(outcome))

    def _open_cycle(self) -> Cycle:
        self._close_cycle()
        attributes = {
            **self._about,
            telemetry.BATCH_SIZE: self.work.policy.loop.batch.size,
            telemetry.CONCURRENCY: self.work.concurrency,
            "messaging.operation.name": "receive" if self.work.is_consumer else "send",
        }
        cycle = self._cycle = Cycle(self.start_span(self.spans["loop"], attributes=attributes))
        self._cycles.add(cycle)
        self._token = contexts.attach(set_span_in_context(cycle.span))
        return cycle

    def _fail_cycle(self, error: Exception) -> None:
        """The loop's time is up: its span says so, also where a producer had no batch yet and so no span."""
        cycle = self._cycle or self._open_cycle()
        self.describe(cycle.span, Failure(error), shows_value=False)

    def _close_cycle(self) -> None:
        if self._cycle is not None:
            contexts.detach(self._token)
            self._end_one(self._cycle)
            self._cycle = None

    def _end_one(self, cycle: Cycle) -> None:
        if cycle.end():
            self._cycles.discard(cycle)

    def _begin(self, count: int) -> Cycle:
        cycle = self._cycle or self._open_cycle()
        cycle.begin(count)
        return cycle

    def _start(self, transaction: Any) -> Trace:
        if self._is_metering:
            telemetry.in_flight.add(1, self._labels)
        common = {telemetry.TRANSACTION_ID: transaction.id, "messaging.message.id": transaction.id}
        trace = Trace(self, common, shows_values=self.work.policy.record_payload)
        attributes = self._one | common
        if self.work.policy.record_payload:
            attributes[telemetry.PAYLOAD] = telemetry.text_of(transaction.payload)
        # Where it was submitted, and where it ran until it was put back.
        traces = (transaction.trace_context, self.work.connector.resumed(transaction).trace)
        links = [link for one in traces for link in telemetry.links_to(one)]
        trace.push(self.spans["transaction"], attributes, is_current=True, kind=self._kind, links=links)
        return trace

    def _end(self, trace: Trace, outcome: Outcome, cycle: Cycle, seconds: float) -> None:
        trace.close(outcome)
        self._end_one(cycle)
        if self._is_metering:
            labels = {**self._labels, telemetry.OUTCOME: _word(outcome)}
            telemetry.in_flight.add(-1, self._labels)
            telemetry.transactions.add(1, labels)
            telemetry.transaction_duration.record(seconds, labels)


def labels_of(task: str, pipeline: str | None) -> Attributes:
    return _known({telemetry.TASK: task, telemetry.PIPELINE: pipeline})


def tell_of_the_queue(labels: Attributes, batch: Sequence[Any], depth: int | None) -> None:
    """Set the gauges of the queue after a fetch: its depth, and the age of the oldest transaction."""
    if depth is not None:
        telemetry.queue_depth.set(depth, labels)
    oldest = min((transaction.created_at.timestamp() for transaction in batch), default=None)
    telemetry.oldest_age.set(0.0 if oldest is None else time.time() - oldest, labels)


def _known(attributes: Attributes) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}


def _word(outcome: Outcome) -> str:
    match outcome:
        case Success():
            return "success"
        case Failure(error):
            return (_category(error) or "failure").lower()
        case Later():
            return "later"
        case Cancelled():
            return "cancelled"
    return "cut"


def _fault(error: BaseException) -> Attributes:
    return {
        telemetry.ERROR_TYPE: failures.error_type(error),
        telemetry.ERROR_MESSAGE: failures.message_of(error),
        telemetry.CATEGORY: _category(error),
    }


def _category(error: BaseException) -> str | None:
    return category_in(error).value if hasattr(type(error), "category") else None
