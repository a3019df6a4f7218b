"""Every span, attribute and instrument of the engines, in one place.

Spans of a consumer: `consume_transactions` › `fetch_transactions` › `fetch_transactions.attempt`, and for each
transaction `start_processing` › `process`, `handle_success`, `handle_exception`, each with its `….attempt` spans. Spans
of a producer: `produce_transactions` › `start_producing` › `produce`, `handle_produce_success`,
`handle_produce_exception`, likewise.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Link
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from engines.core.failures import storable

CONSUMER_SPANS = {
    "loop": "consume_transactions",
    "transaction": "start_processing",
    "fetch": "fetch_transactions",
    "process": "process",
    "success": "handle_success",
    "exception": "handle_exception",
}
PRODUCER_SPANS = {
    "loop": "produce_transactions",
    "transaction": "start_producing",
    "produce": "produce",
    "success": "handle_produce_success",
    "exception": "handle_produce_exception",
}

TASK = "ergon.task"
PIPELINE = "ergon.pipeline"
STEP = "ergon.step"
ATTEMPT = "ergon.attempt"  # from 0, as the documents count
MAX_ATTEMPTS = "ergon.max_attempts"
RESULT = "ergon.result"
TRANSACTION_ID = "ergon.transaction.id"
PAYLOAD = "ergon.transaction.payload"
POLICY_VERSION = "ergon.policy.version"
CATEGORY = "ergon.category"
BATCH_SIZE = "ergon.batch.size"
CONCURRENCY = "ergon.concurrency"
OUTCOME = "ergon.outcome"
EXECUTOR = "ergon.executor"
STATE = "ergon.state"
ERROR_TYPE = "error.type"
ERROR_MESSAGE = "exception.message"

SCOPE = "ergon.engines"

tracer = trace.get_tracer(SCOPE)
_meter = metrics.get_meter(SCOPE)
_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]
_duration = partial(_meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=_SECONDS)
LONGEST_TEXT = 4096

transactions = _meter.create_counter("ergon.transactions", description="Transactions that ended, by outcome")
transaction_duration = _duration(
    "ergon.transaction.duration", description="A transaction from its first step to its last"
)
in_flight = _meter.create_up_down_counter("ergon.transactions.in_flight", description="Transactions that are running")
attempts = _meter.create_counter("ergon.attempts", description="Attempts, by step and outcome")
attempt_duration = _duration("ergon.attempt.duration", description="One attempt of one step")
abandoned = _meter.create_counter(
    "ergon.attempts.abandoned", description="Attempts that are still running after their time limit"
)
queue_depth = _meter.create_gauge("ergon.queue.depth", description="Pending transactions, as reported by the connector")
oldest_age = _meter.create_gauge(
    "ergon.queue.oldest_age", unit="s", description="Age of the oldest transaction in the last fetch"
)
rescued = _meter.create_counter("ergon.transactions.rescued", description="Expired leases that were taken back")
stale = _meter.create_counter("ergon.settles.stale", description="Outcomes refused because their lease was lost")
dead_letters = _meter.create_counter("ergon.dead_letters", description="Open dead letters")
empty_waits = _meter.create_counter("ergon.fetch.empty_waits", description="Delays after an empty fetch")

# How a job came out: success, retry, error, timeout (its own word), refused, killed (late), died (with its executor).
executor_jobs = _meter.create_counter("ergon.executor.jobs", description="Jobs of executors, by outcome")
Snapshots = Callable[[], Iterable[Mapping[str, Any]]]
_snapshots: list[Snapshots] = []


@contextmanager
def watching_executors(snapshots: Snapshots) -> Iterator[None]:
    """Observe the counters of executor pools for metrics while the block lasts."""
    _snapshots.append(snapshots)
    try:
        yield
    finally:
        _snapshots.remove(snapshots)


def _counts(field: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        totals: Counter[str] = Counter()
        for pool in _pools():
            totals[pool["name"]] += pool[field]
        return [Observation(total, {EXECUTOR: name}) for name, total in totals.items()]

    return observe


def _processes(_options: CallbackOptions) -> Iterable[Observation]:
    totals: Counter[tuple[str, str]] = Counter()
    for pool in _pools():
        busy = sum(1 for process in pool["processes"] if process["job"])
        totals[pool["name"], "busy"] += busy
        totals[pool["name"], "idle"] += len(pool["processes"]) - busy
    return [Observation(total, {EXECUTOR: name, STATE: state}) for (name, state), total in totals.items()]


def _pools() -> list[Mapping[str, Any]]:
    return [pool for snapshots in list(_snapshots) for pool in snapshots()]


for _name, _field, _description in (
    ("ergon.executor.starts", "started", "Processes of executors that were started"),
    ("ergon.executor.deaths", "died", "Processes that died or broke the protocol"),
    ("ergon.executor.kills", "killed", "Processes that were killed because their job exceeded its time limit"),
    ("ergon.executor.lines_skipped", "skipped", "Lines on stdout that answered no job"),
):
    _meter.create_observable_counter(_name, callbacks=[_counts(_field)], description=_description)
_meter.create_observable_gauge(
    "ergon.executor.processes", callbacks=[_processes], description="Processes of executors, busy and idle"
)


def is_tracing() -> bool:
    """Whether a tracing SDK is installed."""
    return not type(trace.get_tracer_provider()).__module__.startswith("opentelemetry.trace")


def is_metering() -> bool:
    """Whether a metrics SDK is installed."""
    return not type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.metrics")


def links_to(trace_context: Any) -> list[Link]:
    """A link to the trace that a transaction was made in, if it carries one."""
    if not trace_context or not isinstance(trace_context, Mapping):
        return []
    if not all(isinstance(value, str) for value in trace_context.values()):
        return []
    context = TraceContextTextMapPropagator().extract(dict(trace_context))
    origin = trace.get_current_span(context).get_span_context()
    return [Link(origin)] if origin.is_valid else []


def current_trace() -> dict[str, str] | None:
    """The trace that this code runs in, to be carried along; None if there is none."""
    if not trace.get_current_span().get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


def current_trace_id() -> str | None:
    context = trace.get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None


def text_of(value: Any) -> str:
    """A value as an attribute, where a policy allows values at all."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:  # noqa: BLE001 (a value that cannot be shown is no reason to fail)
        text = f"<{type(value).__name__}>"
    return storable(text[:LONGEST_TEXT])
