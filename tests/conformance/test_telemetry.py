"""Spans and metrics: names, hierarchy, attributes, links; and what is never in them."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any, cast

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from engines import (
    EmptyQueuePolicy,
    ExceptionType,
    FetchException,
    FetchPolicy,
    FetchTimeoutException,
    RetryPolicy,
    Transaction,
    TransactionException,
    telemetry,
)
from engines.connectors.memory import MemoryConnector
from engines.executors.task import JobFailed
from tests.conformance.harness import SLACK, Engine, Pause, Script, some
from tests.processes import ROOT, eventually

BUSINESS = TransactionException("account 7 is closed", ExceptionType.BUSINESS)
SYSTEM = TransactionException("unreachable", ExceptionType.SYSTEM)
ORIGIN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

exporter = InMemorySpanExporter()


@pytest.fixture(autouse=True)
def _tracing() -> Iterator[None]:
    """A real SDK behind the tracing API for each of these tests, and nothing behind it for the others."""
    exporter.clear()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with pytest.MonkeyPatch.context() as patch:
        # The API takes a provider once per process and for good; these tests want one for a while.
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        patch.setattr(telemetry, "tracer", provider.get_tracer(telemetry.SCOPE))
        yield


def spans() -> list[ReadableSpan]:
    """The ended spans of this test, and none of a thread that an earlier test has left behind."""
    ours = cast("TracerProvider", trace.get_tracer_provider()).resource
    found = [span for span in exporter.get_finished_spans() if span.resource is ours]
    return sorted(found, key=lambda span: span.start_time or 0)


def named(name: str) -> list[ReadableSpan]:
    return [span for span in spans() if span.name == name]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def tree() -> list[str]:
    """Every span as the path of names that leads to it."""
    by_id = {span.context.span_id: span for span in spans() if span.context}

    def path(span: ReadableSpan) -> str:
        parent = by_id.get(span.parent.span_id) if span.parent else None
        return f"{path(parent)} › {span.name}" if parent else span.name

    return [path(span) for span in spans()]


def names_of(engine: Engine) -> dict[str, str]:
    if engine.is_consumer:
        return {
            "loop": "consume_transactions",
            "one": "start_processing",
            "work": "process",
            "success": "handle_success",
            "exception": "handle_exception",
        }
    return {
        "loop": "produce_transactions",
        "one": "start_producing",
        "work": "produce",
        "success": "handle_produce_success",
        "exception": "handle_produce_exception",
    }


def test_a_success_is_a_subtree_of_the_loops_span(engine: Engine) -> None:
    engine.run(Script(), some(1))
    name = names_of(engine)
    one = f"{name['loop']} › {name['one']}"
    expected = [
        name["loop"],
        one,
        f"{one} › {name['work']}",
        f"{one} › {name['work']} › {name['work']}.attempt",
        f"{one} › {name['success']}",
        f"{one} › {name['success']} › {name['success']}.attempt",
    ]
    assert [path for path in tree() if "fetch" not in path] == expected


def test_a_failure_ends_in_the_exception_handlers_span(engine: Engine) -> None:
    engine.run(Script(work=BUSINESS), some(1))
    name = names_of(engine)
    assert f"{name['loop']} › {name['one']} › {name['exception']} › {name['exception']}.attempt" in tree()
    assert named(name["success"]) == []


def test_fetches_have_spans_below_the_loops(consumer: Engine) -> None:
    consumer.run(Script(), some(1))
    assert "consume_transactions › fetch_transactions › fetch_transactions.attempt" in tree()


def test_every_attempt_says_what_it_is(engine: Engine) -> None:
    retry = RetryPolicy(max_attempts=3, timeout=5, backoff=0.01, backoff_multiplier=1.5, backoff_cap=2)
    engine.run(Script(work=SYSTEM), some(1), work=retry)
    attempts = named(f"{engine.work}.attempt")
    assert [attributes(span)["ergon.attempt"] for span in attempts] == [0, 1, 2]
    expected = {
        "ergon.task": "Awaited" if engine.is_async else "Threaded",
        "ergon.step": engine.work,
        "ergon.max_attempts": 3,
        "ergon.retry.timeout": 5,
        "ergon.retry.backoff": 0.01,
        "ergon.retry.backoff_multiplier": 1.5,
        "ergon.retry.backoff_cap": 2,
        "ergon.transaction.id": "t0",
        "exception.message": "unreachable",
        "error.type": "TransactionException",
        "messaging.system": "ergon",
        "messaging.message.id": "t0",
    }
    for span in attempts:
        assert expected.items() <= attributes(span).items()
        assert span.status.status_code is StatusCode.ERROR


def test_every_span_names_the_pipeline_where_there_is_one(engine: Engine) -> None:
    task = engine.task(Script())
    for name, told in ((None, type(task).__name__), ("orders", "orders")):
        exporter.clear()
        task.pipeline_name = name
        engine.drive(lambda: engine.start(task, some(1), engine.policy()))
        about = [attributes(span) for span in spans()]
        assert {(one.get("ergon.pipeline"), one["messaging.destination.name"]) for one in about} == {(name, told)}
        assert {one["ergon.task"] for one in about} == {type(task).__name__}
        task.connectors = None


def test_every_span_of_a_producer_names_the_policys_version_where_its_connector_brings_one(producer: Engine) -> None:
    class Versioned(MemoryConnector):
        def policy_in_force(self) -> Any:
            return producer.policy(batch=2), "7"

    task = producer.task(Script())
    producer.drive(lambda: producer.start(task, Versioned(some(2)), producer.policy(batch=2)))
    assert {attributes(span).get("ergon.policy.version") for span in spans()} == {"7"}


class Rejected(TransactionException):
    """An error of a task."""


def test_an_error_is_told_by_its_own_name_whatever_it_was_raised_from(engine: Engine) -> None:
    rejected = Rejected("order 7 has no account", ExceptionType.BUSINESS)
    rejected.__cause__ = KeyError("account")
    engine.run(Script(work=rejected), some(1))
    for name in (f"{engine.work}.attempt", engine.work, names_of(engine)["one"]):
        told = attributes(named(name)[0])
        assert (told["error.type"], told["exception.message"]) == ("Rejected", "order 7 has no account")


def test_an_error_that_a_connector_raised_is_told_by_its_own_name(consumer: Engine) -> None:
    class Gone(MemoryConnector):
        def fetch_transactions(self, batch_size: int, **extra: Any) -> Any:
            msg = "cannot reach amqp://ada:hunter2@broker"
            raise ConnectionError(msg) from KeyError("line")

    with pytest.raises(FetchException):
        consumer.run(Script(), [], connectors={"gone": Gone([])})
    told = attributes(named("fetch_transactions.attempt")[0])
    assert (told["error.type"], told["exception.message"]) == ("ConnectionError", "cannot reach amqp://•••@broker")


def test_messages_of_exceptions_hold_no_secret(engine: Engine) -> None:
    words = "GET https://ada:hunter2@bank/ said 401 to token=abcdefgh and Authorization: Bearer qwertyuiop"
    engine.run(Script(work=ConnectionError(words)), some(1))
    written = str([span.to_json() for span in spans()])
    assert "https://\\u2022\\u2022\\u2022@bank/ said 401" in written.replace("\\\\u", "\\u")
    for secret in ("hunter2", "abcdefgh", "qwertyuiop"):
        assert secret not in written


@pytest.mark.parametrize("answer", ["half \ud800", ValueError("half \ud800")])
def test_texts_with_half_a_character_can_be_exported(engine: Engine, answer: Any, caplog: Any) -> None:
    engine.run(Script(work=answer), some(1), record_payload=True)
    assert b"half ?" in encode_spans(spans()).SerializeToString()
    assert caplog.records == []


def test_an_error_from_elsewhere_is_told_by_its_name_there(engine: Engine) -> None:
    engine.run(Script(work=JobFailed("no such order", error_type="ValueError")), some(1))
    assert attributes(named(f"{engine.work}.attempt")[0])["error.type"] == "ValueError"


def test_every_stage_says_which_it_is(engine: Engine) -> None:
    engine.run(Script(work=BUSINESS), some(1))
    steps = [attributes(span).get("ergon.step") for span in spans() if span.name.endswith(".attempt")]
    assert [step for step in steps if step != "fetch"] == [engine.work, "exception"]


def test_a_result_is_told_by_its_type_and_by_its_value_only_where_the_policy_allows_it(engine: Engine) -> None:
    engine.run(Script(work={"total": 3}), some(1))
    assert attributes(named(engine.work)[0])["ergon.result"] == "dict"
    exporter.clear()
    engine.run(Script(work={"total": 3}), some(1), record_payload=True)
    assert attributes(named(engine.work)[0])["ergon.result"] == "{'total': 3}"


def test_payloads_are_nowhere_unless_the_policy_allows_it(engine: Engine) -> None:
    engine.run(Script(work=lambda transaction: transaction.payload), some(3), batch=3)
    assert "payload 0" not in str([span.to_json() for span in spans()])
    exporter.clear()
    engine.run(Script(), some(1), record_payload=True)
    one = named(names_of(engine)["one"])[0]
    assert "payload 0" in attributes(one)["ergon.transaction.payload"]


def test_connector_settings_and_extra_are_nowhere(consumer: Engine) -> None:
    from engines import FetchPolicy

    consumer.run(Script(), some(1), fetch=FetchPolicy(extra={"password": "hunter2"}))
    assert "hunter2" not in str([span.to_json() for span in spans()])


def test_the_loops_span_tells_batch_and_concurrency(engine: Engine) -> None:
    engine.run(Script(), some(4), batch=4, concurrency=2)
    loop = attributes(named(names_of(engine)["loop"])[0])
    assert (loop["ergon.batch.size"], loop["ergon.concurrency"]) == (4, 2)


def test_a_transaction_links_to_the_trace_it_was_made_in(engine: Engine) -> None:
    engine.run(Script(), [Transaction("a", 1, trace_context={"traceparent": ORIGIN}), Transaction("b", 2)], batch=2)
    first, second = named(names_of(engine)["one"])
    assert [format(link.context.trace_id, "032x") for link in first.links] == ["0af7651916cd43dd8448eb211c80319c"]
    assert second.links == ()
    assert first.kind is (SpanKind.CONSUMER if engine.is_consumer else SpanKind.PRODUCER)


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_was_parked_links_to_the_trace_in_which_it_began(engine: Engine) -> None:
    from tests.durable_transactions import submit
    from tests.engines.test_database_connector import drain
    from tests.engines.test_parked_retries import parking

    import_module("tests.tasks")
    task, direction = ("act", "inbound") if engine.is_consumer else ("send", "outbound")
    pipeline = parking(f"tests.{task}{'_async' if engine.is_async else ''}", direction)
    submit(pipeline, at=3)
    drain(pipeline)
    parts = named(names_of(engine)["one"])
    links = [[link.context.span_id for link in span.links] for span in parts]
    assert links == [[], *([span.context.span_id] for span in parts[:-1] if span.context)]
    assert [attributes(span).get("ergon.outcome") for span in parts] == ["later", "later", None]


class Cancelling(MemoryConnector):
    def is_cancelled(self, transaction: Transaction) -> bool:
        return True


def test_a_transaction_that_is_cancelled_says_so_and_is_no_error(consumer: Engine) -> None:
    consumer.run(Script(), [], connectors={"inbox": Cancelling([Transaction("a", {})])})
    (span,) = named("start_processing")
    assert (attributes(span)["ergon.outcome"], span.status.status_code) == ("cancelled", StatusCode.UNSET)


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_spans_of_the_handler_are_children_of_its_attempt(engine: Engine, timeout: float | None) -> None:
    def work(_: Transaction) -> str:
        telemetry.tracer.start_span("inside").end()
        return "done"

    engine.run(Script(work=work), some(1), work=RetryPolicy(timeout=timeout))
    assert any(path.endswith(f"{engine.work}.attempt › inside") for path in tree())


def test_no_transactions_span_is_an_ancestor_of_anothers(engine: Engine) -> None:
    engine.run(Script(work=Pause(0.002, "done")), some(30), concurrency=8, batch=10)
    one = names_of(engine)["one"]
    assert max(path.count(one) for path in tree()) == 1
    by_id = {span.context.span_id: span for span in spans() if span.context}
    for span in spans():
        mine, parent = (
            attributes(span).get("ergon.transaction.id"),
            by_id.get(span.parent.span_id if span.parent else 0),
        )
        if mine and parent and "ergon.transaction.id" in attributes(parent):
            assert attributes(parent)["ergon.transaction.id"] == mine


def test_all_attempts_of_a_transaction_are_in_one_trace(engine: Engine) -> None:
    engine.run(Script(work=SYSTEM), some(1), work=RetryPolicy(max_attempts=3))
    assert len({span.context.trace_id for span in spans() if span.context}) == 1


def test_the_callers_context_is_as_it_was(engine: Engine) -> None:
    before = trace.get_current_span()
    engine.run(Script(work=BUSINESS), some(5), concurrency=2, batch=5)
    assert trace.get_current_span() is before


def test_a_streaming_loop_has_a_span_for_every_fetch_and_drain(consumer: Engine) -> None:
    waits = EmptyQueuePolicy(backoff=0.01)
    consumer.run(Script(), some(4), batch=2, streaming=True, limit=4, empty_queue=waits)
    assert len(named("consume_transactions")) == 2
    assert len({span.context.trace_id for span in named("consume_transactions") if span.context}) == 2
    assert len(named("start_processing")) == 4


def unended() -> set[int]:
    """Parents that were never exported."""
    ended = {span.context.span_id for span in spans() if span.context}
    return {span.parent.span_id for span in spans() if span.parent} - ended


def test_all_spans_end(engine: Engine) -> None:
    engine.run(Script(work=Pause(0.01, SYSTEM)), some(6), concurrency=3, batch=3, work=RetryPolicy(max_attempts=2))
    assert unended() == set()


def test_all_spans_end_when_a_loop_is_stopped_with_work_left(engine: Engine) -> None:
    task = engine.task(Script(), {"m": MemoryConnector(some(6))})
    task.script = Script(work=lambda _: task.stop() or "done")
    engine.drive(lambda: engine.start(task, some(6), engine.policy(batch=6)))
    assert unended() == set()
    assert len(named(names_of(engine)["loop"])) == 1


def test_all_spans_end_when_a_loops_time_is_up(engine: Engine) -> None:
    with pytest.raises(TimeoutError):
        engine.run(Script(work=Pause(0.5)), some(6), batch=6, concurrency=2, timeout=0.05)
    eventually(lambda: unended() == set(), "the spans of slots that were cut ended")
    assert len(named(names_of(engine)["loop"])) == 1


def test_a_producer_whose_source_outlasts_its_time_has_a_span_with_the_error(producer: Engine) -> None:
    def silent() -> Iterator[Transaction]:
        time.sleep(0.5)
        yield Transaction("late", 1)

    with pytest.raises(TimeoutError):
        producer.run(Script(), silent(), batch=6, timeout=0.05)
    loop = named("produce_transactions")
    assert [span.status.status_code for span in loop] == [StatusCode.ERROR]


@pytest.mark.parametrize("context", [{"traceparent": 5}, {"traceparent": "nonsense"}])
def test_a_trace_context_that_is_none_is_passed_over(engine: Engine, context: dict[str, Any]) -> None:
    assert engine.run(Script(), [Transaction("a", 1, trace_context=context)]).succeeded == 1


def test_a_payload_that_cannot_be_shown_is_no_reason_to_fail(engine: Engine) -> None:
    class Shy:
        def __repr__(self) -> str:
            raise ValueError

    script = Script(work=lambda transaction: transaction.payload)
    assert engine.run(script, [Transaction("a", Shy())], record_payload=True).succeeded == 1


MEASURE = """
import asyncio, json, time
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
from engines import EmptyQueuePolicy, RetryPolicy
from engines.connectors.memory import MemoryConnector
from tests.conformance.harness import SLACK, Engine, Pause, Script, some
from tests.conformance.test_telemetry import BUSINESS
class Empty(MemoryConnector):
    asked = 0
    def fetch_transactions(self, batch_size):
        self.asked += 1
        if self.asked == 3:
            self.at_last()
        return super().fetch_transactions(batch_size)
for is_async in (False, True):
    engine = Engine(is_consumer=True, is_async=is_async)
    script = Script(work=lambda one: BUSINESS if one.id == "t0" else Pause(3) if one.id == "t1" else "done")
    waits = EmptyQueuePolicy(backoff=0.01)
    source = MemoryConnector(some(5))
    engine.run(script, [], connectors={"m": source}, batch=4, work=RetryPolicy(timeout=1), limit=5)
    task = engine.task(Script(), {"m": (empty := Empty())})
    empty.at_last = task.stop
    engine.drive(lambda: engine.start(task, [], engine.policy(streaming=True, empty_queue=waits)))
found = {}
for resource in reader.get_metrics_data().resource_metrics:
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            for point in metric.data.data_points:
                labels = [str(value) for _, value in sorted(point.attributes.items())]
                value = point.value if hasattr(point, "value") else point.count
                found.setdefault(metric.name, {})[" ".join(labels)] = value
print(json.dumps(found))
"""


def test_metrics_count_transactions_attempts_waits_and_what_was_abandoned() -> None:
    measured = subprocess.run([sys.executable, "-c", MEASURE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert measured.returncode == 0, measured.stderr
    found = json.loads(measured.stdout)
    for task in ("Threaded", "Awaited"):
        assert found["ergon.transactions"][f"success {task}"] == 3
        assert found["ergon.transactions"][f"business {task}"] == 1
        assert found["ergon.transactions"][f"timeout {task}"] == 1
        assert found["ergon.attempts"][f"success process {task}"] == 3
        assert found["ergon.attempts"][f"success exception {task}"] == 2
        assert found["ergon.transaction.duration"][f"success {task}"] == 3
        assert found["ergon.attempt.duration"][f"timeout process {task}"] == 1
        assert found["ergon.transactions.in_flight"][task] == 0
        assert found["ergon.queue.depth"][task] == 0
        assert found["ergon.queue.oldest_age"][task] == 0, "nothing waits any more"
        assert found["ergon.fetch.empty_waits"][task] >= 1
    assert found["ergon.attempts.abandoned"] == {"Threaded": 1}


def test_the_span_of_a_loop_whose_time_is_up_says_so(engine: Engine) -> None:
    with pytest.raises(TimeoutError) as caught:
        engine.run(Script(work=Pause(SLACK)), some(1), timeout=0.1)
    assert caught.value.category is ExceptionType.TIMEOUT  # type: ignore[attr-defined]
    [loop] = named("consume_transactions" if engine.is_consumer else "produce_transactions")
    assert loop.status.status_code is StatusCode.ERROR
    assert attributes(loop)["ergon.category"] == "TIMEOUT"
    assert attributes(loop)["error.type"] == type(caught.value).__name__


def test_a_fetch_that_takes_too_long_is_a_timeout_on_its_span(consumer: Engine) -> None:
    class Slow(MemoryConnector):
        def fetch_transactions(self, batch_size: int, **_: Any) -> Any:
            time.sleep(SLACK)

        async def fetch_transactions_async(self, batch_size: int, **_: Any) -> Any:
            await asyncio.sleep(SLACK)

    with pytest.raises(FetchTimeoutException) as caught:
        consumer.run(Script(), [], connectors={"m": Slow()}, fetch=FetchPolicy(retry=RetryPolicy(timeout=0.05)))
    assert caught.value.category is ExceptionType.TIMEOUT
    [attempt] = named("fetch_transactions.attempt")
    assert attributes(attempt)["ergon.category"] == "TIMEOUT"


@pytest.mark.parametrize("raised", [asyncio.CancelledError(), GeneratorExit(), OSError()])
def test_a_queue_that_cannot_be_counted_is_worked_through_all_the_same(consumer: Engine, raised: BaseException) -> None:
    class Uncounted(MemoryConnector):
        def count(self) -> int:
            raise raised

        async def count_async(self) -> int:
            raise raised

    assert consumer.run(Script(), [], connectors={"m": Uncounted(some(2))}).succeeded == 2
