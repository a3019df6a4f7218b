"""The author's side: injection, names, connectors, and use without Django."""

import asyncio
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

import pytest

import engines
from engines import (
    AsyncConnector,
    AsyncConsumerTask,
    Connector,
    ConsumerPolicy,
    ConsumerTask,
    FetchException,
    HybridTask,
    ProducerTask,
    Transaction,
)
from engines.connectors.jsonlines import LONGEST_LINE, JsonLinesConnector
from engines.connectors.memory import MemoryConnector
from engines.tasks.registry import RegistryError, services, tasks
from tests.processes import ROOT

pytestmark = pytest.mark.once

PUBLIC = [
    "Transaction",
    "TransactionException",
    "ExceptionType",
    "FetchException",
    "FetchTimeoutException",
    "ConsumerLoopTimeout",
    "ProducerLoopTimeout",
    "ConsumerMixin",
    "AsyncConsumerMixin",
    "ProducerMixin",
    "AsyncProducerMixin",
    "ConsumerTask",
    "ProducerTask",
    "HybridTask",
    "AsyncConsumerTask",
    "AsyncProducerTask",
    "AsyncHybridTask",
    "Connector",
    "AsyncConnector",
    "RetryPolicy",
    "ConcurrencyPolicy",
    "BatchPolicy",
    "EmptyQueuePolicy",
    "FetchPolicy",
    "ProcessPolicy",
    "ProducePolicy",
    "SuccessPolicy",
    "ExceptionPolicy",
    "ConsumerSteps",
    "ConsumerLoopPolicy",
    "ConsumerPolicy",
    "ProducerSteps",
    "ProducerLoopPolicy",
    "ProducerPolicy",
    "run_with_timeout",
    "run_with_timeout_async",
    "with_context",
    "with_context_async",
    "connector",
    "task",
    "service",
    "current_attempt",
]


class Copy(HybridTask):
    """Consumes from one connector and produces into another."""

    def process_transaction(self, transaction: Transaction) -> Any:
        return self.out_connector.dispatch_transactions([transaction])  # type: ignore[attr-defined]

    def produce_transaction(self, transaction: Transaction) -> Any:
        return self.clock_service()  # type: ignore[attr-defined]


def test_type_checkers_see_the_names_that_are_loaded_late() -> None:
    source = (ROOT / "engines" / "__init__.py").read_text()
    assert set(re.findall(r"(\w+) as \1", source)) == set(engines.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_importable_from_engines(name: str) -> None:
    assert getattr(engines, name) is not None


def test_a_plain_script_needs_no_django() -> None:
    script = """
import sys
from engines import ConsumerTask, Transaction
from engines.connectors.memory import MemoryConnector
class Double(ConsumerTask):
    def process_transaction(self, transaction):
        return transaction.payload * 2
source = MemoryConnector([Transaction("a", 21)])
print(Double(connectors={"memory": source}).consume_transactions().succeeded, source.outcomes[0][1].value)
print([name for name in sys.modules if name.split(".")[0] in ("django", "celery", "rest_framework")])
"""
    clean = {"PATH": "/usr/bin:/bin"}
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=clean, capture_output=True, text=True, check=False
    )
    assert ran.stdout == "1 42\n[]\n", ran.stderr


def test_connectors_and_services_are_given_and_found_by_name() -> None:
    source, out = MemoryConnector([Transaction("a", 1)]), MemoryConnector()
    task = Copy(connectors={"source": source, "out": out}, services={"clock": lambda: "noon"})
    assert (task.source_connector, task.clock_service()) == (source, "noon")  # type: ignore[attr-defined]
    assert task.services["clock"]() == "noon"
    policy = ConsumerPolicy.from_dict({"steps": {"fetch": {"connector_name": "source"}}})
    assert task.consume_transactions(policy).succeeded == 1
    assert out.count() == 1
    assert task.produce_transactions([Transaction("b", 1)]).succeeded == 1


def test_a_task_may_bring_its_own_policy() -> None:
    class Limited(ConsumerTask):
        consumer_policy = ConsumerPolicy.from_dict({"loop": {"limit": 2}})

        def process_transaction(self, transaction: Transaction) -> str:
            return "done"

    source = MemoryConnector(Transaction(str(number), None) for number in range(5))
    assert Limited({"m": source}).consume_transactions().stopped_by == "limit"


def test_a_task_without_its_hook_fails_its_transactions_not_the_process() -> None:
    report = ConsumerTask({"m": MemoryConnector([Transaction("a", 1)])}).consume_transactions()
    assert "NotImplementedError" in str(report.failures[0].exception)
    assert ProducerTask().produce_transactions([Transaction("a", 1)]).failed == 1


def test_a_handler_that_a_task_gives_itself_when_it_is_made_is_called() -> None:
    class Given(ConsumerTask):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.handled: list[Any] = []
            self.handle_transaction_success = lambda transaction, result: self.handled.append((transaction.id, result))  # type: ignore[method-assign]

        def process_transaction(self, transaction: Transaction) -> Any:
            return transaction.payload + 1

    task = Given({"m": MemoryConnector([Transaction("a", 1)])})
    assert task.consume_transactions().succeeded == 1
    assert task.handled == [("a", 2)]


def test_tasks_and_services_are_registered_and_found_by_name() -> None:
    @engines.task("tests.registered")
    class Registered(ConsumerTask):
        pass

    @engines.service("tests.mail")
    def mail() -> str:
        return "sent"

    assert tasks.find("tests.registered") is Registered
    assert services.find("tests.mail")() == "sent"
    assert "tests.registered" in tasks.names()


def test_a_name_that_is_taken_or_unknown_is_refused_in_words() -> None:
    engines.task("tests.taken")(Copy)
    engines.task("tests.taken")(Copy)
    with pytest.raises(RegistryError, match=r"'tests.taken' is taken by .*Copy"):
        engines.task("tests.taken")(ConsumerTask)
    with pytest.raises(RegistryError, match=r"no task named 'tests.nothing'; there are: .*tests.taken"):
        tasks.find("tests.nothing")


def test_the_shipped_connectors_are_connectors() -> None:
    for connector in (MemoryConnector(), JsonLinesConnector()):
        assert isinstance(connector, Connector)
        assert isinstance(connector, AsyncConnector)


class Echo(ConsumerTask):
    def process_transaction(self, transaction: Transaction) -> Any:
        self.out_connector.dispatch_transactions([transaction])  # type: ignore[attr-defined]


LINES = '{"id": "a", "payload": {"n": 1}}\n\n{"id": "b", "payload": null, "correlation_id": "c"}\n'


def echo(lines: str | TextIO, **policy: Any) -> tuple[Any, str]:
    sink, source = io.StringIO(), io.StringIO(lines) if isinstance(lines, str) else lines
    task = Echo({"in": JsonLinesConnector(source=source), "out": JsonLinesConnector(sink=sink)})
    rules = {"steps": {"fetch": {"connector_name": "in", **policy}}, "loop": {"batch": {"size": 10}}}
    try:
        return task.consume_transactions(ConsumerPolicy.from_dict(rules)), sink.getvalue()
    except FetchException as error:
        return error, sink.getvalue()


def test_json_lines_are_read_and_written_a_transaction_a_line() -> None:
    report, written = echo(LINES)
    assert report.succeeded == 2
    assert [Transaction.from_json(line).id for line in written.splitlines()] == ["a", "b"]
    assert Transaction.from_json(written.splitlines()[1]).correlation_id == "c"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "line 3 is not a transaction"),
        ('{"id": "x"}', "line 3 is not a transaction: a transaction needs the field 'payload'"),
        ("[" * 100_000, "line 3 is not a transaction"),
        ('"' + "x" * LONGEST_LINE + '"', "line 3 is longer than 16,777,216 characters"),
    ],
)
def test_a_bad_line_is_refused_by_its_number_and_those_before_it_are_not_lost(line: str, words: str) -> None:
    good = '{"id": "a", "payload": 1}\n'
    error, _ = echo(good * 2 + line + "\n" + good)
    assert words in str(error)
    report, written = echo(good * 2 + line + "\n" + good, retry={"max_attempts": 2})
    assert (report.succeeded, len(written.splitlines())) == (3, 3)


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_byte_that_cannot_be_decoded_spoils_its_line_and_no_other(errors: str, tmp_path: Path) -> None:
    lines = [f'{{"id": "{number}", "payload": "caf\u00e9"}}\n'.encode() for number in range(1, 11)]
    lines[5] = '{"id": "6", "payload": "caf\u00e9"}\n'.encode("latin-1")
    file = tmp_path / "lines"
    file.write_bytes(b"".join(lines))
    with file.open(encoding="utf-8", errors=errors) as source:
        error, _ = echo(source)
    assert "line 6 cannot be decoded at character 28" in str(error)
    with file.open(encoding="utf-8", errors=errors) as source:
        report, written = echo(source, retry={"max_attempts": 2})
    assert (report.processed, len(written.splitlines())) == (9, 9)


def test_a_stream_that_was_read_from_and_cannot_be_decoded_has_no_end_that_looks_clean(tmp_path: Path) -> None:
    good = b'{"id": "a", "payload": 1}\n'
    file = tmp_path / "lines"
    file.write_bytes(b"heading\n" + good * 1000 + b"\xe9\n" + good)
    with file.open(encoding="utf-8") as source:
        source.readline()
        error, written = echo(source, retry={"max_attempts": 2})
    read = len(written.splitlines())
    assert f"nothing can be read behind line {read}: " in str(error)
    assert 0 < read <= 1000


def test_json_lines_serve_async_tasks_too() -> None:
    class AsyncEcho(AsyncConsumerTask):
        async def process_transaction(self, transaction: Transaction) -> Any:
            return await self.lines_connector.dispatch_transactions_async([transaction])  # type: ignore[attr-defined]

    sink = io.StringIO()
    connector = JsonLinesConnector(io.StringIO(LINES), sink)
    assert asyncio.run(AsyncEcho({"lines": connector}).consume_transactions()).succeeded == 2
    assert len(sink.getvalue().splitlines()) == 2
    asyncio.run(connector.release_async([Transaction("z", 1)]))
    assert connector.fetch_transactions(5)[0].id == "z"


def test_writing_without_a_sink_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="no sink"):
        JsonLinesConnector().dispatch_transactions([])


def test_memory_serves_async_tasks_too() -> None:
    async def all_of_it() -> None:
        connector = MemoryConnector()
        await connector.dispatch_transactions_async([Transaction("a", 1)])
        assert await connector.count_async() == 1

    asyncio.run(all_of_it())
