"""Telemetry: nothing unless asked for; then spans and metrics over OTLP, and logs that name the trace."""

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from django.db import connection
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.processes import LIMIT, Site, eventually, run, serve

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


class Collector(ThreadingHTTPServer):
    """Takes what an exporter sends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Intake)
        self.bodies: dict[str, list[bytes]] = {"/v1/traces": [], "/v1/metrics": []}

    @property
    def spans(self) -> list[Span]:
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies["/v1/traces"]]
        scopes = [scope for request in requests for part in request.resource_spans for scope in part.scope_spans]
        return [span for scope in scopes for span in scope.spans]

    @property
    def metric_names(self) -> set[str]:
        requests = [ExportMetricsServiceRequest.FromString(body) for body in self.bodies["/v1/metrics"]]
        scopes = [scope for request in requests for part in request.resource_metrics for scope in part.scope_metrics]
        return {metric.name for scope in scopes for metric in scope.metrics}


class Intake(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        import gzip

        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.bodies[self.path].append(body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Tests stay silent."""


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, args=[0.01], daemon=True).start()
        yield collector
        collector.shutdown()


def exporting_to(collector: Collector) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_METRIC_EXPORT_INTERVAL": "100",
    }


@pytest.mark.django_db(transaction=True)
def test_spans_and_metrics_of_a_call_leave_in_its_trace_and_without_its_secrets(token: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    headers = {"Authorization": f"Bearer {token}", "traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}
    with collecting() as collector, serve(log=log, **exporting_to(collector)) as site:
        assert httpx.get(f"{site.url}/api/v1/client", headers=headers, timeout=LIMIT).status_code == 200
        assert httpx.get(f"{site.url}/api/v1/nothing", headers=headers, timeout=LIMIT).status_code == 404
        eventually(lambda: any("api/v1/client" in span.name for span in collector.spans), "the call's span arrives")
        eventually(lambda: "ergon.api.request.duration" in collector.metric_names, "the metrics arrive")
        eventually(lambda: "bsfg_orphan_objects" in collector.metric_names, "the gauges of the database arrive")
        spans = [span for span in collector.spans if span.trace_id.hex() == TRACE_ID]
    assert any(span.kind == Span.SPAN_KIND_SERVER for span in spans)
    if connection.vendor == "postgresql":
        assert any("SELECT" in span.name for span in spans)
    assert token not in str(collector.bodies)
    assert "Not Found" in log.read_text()
    assert token not in log.read_text()


@pytest.mark.once
def test_a_log_line_names_the_trace_it_was_written_in() -> None:
    write = (
        "import django; django.setup(); from ergon_site import telemetry; telemetry.start();"
        "import logging, structlog; from opentelemetry import trace\n"
        "with trace.get_tracer('test').start_as_current_span('work') as span:\n"
        "    print(trace.format_trace_id(span.get_span_context().trace_id))\n"
        "    structlog.get_logger('a').warning('told', colour='red'); logging.getLogger('b').warning('told %s', 'too')"
    )
    with collecting() as collector:
        changes = {**exporting_to(collector), "DJANGO_SETTINGS_MODULE": "ergon_site.settings"}
        written = run(sys.executable, "-c", write, **changes)
    told = [json.loads(line) for line in written.stderr.splitlines()]
    first, second = [line for line in told if line["logger"] in {"a", "b"}]  # the exporter may tell of its start
    assert first["trace_id"] == second["trace_id"] == written.stdout.strip()
    assert (first["event"], first["colour"], first["level"]) == ("told", "red", "warning")
    assert (second["event"], second["logger"]) == ("told too", "b")


SAYS_TOO_MUCH = """
import logging.config, sys, django; django.setup()
import structlog
from opentelemetry import trace
from ergon_site import telemetry
telemetry.start()
logging.config.dictConfig(telemetry.logging_to(terminal=sys.argv[1] == "terminal"))
log = structlog.get_logger("a")
try:
    with trace.get_tracer("a library").start_as_current_span("work"):
        password = "hunter2"
        raise ConnectionError(f"cannot reach amqp://ada:{password}@broker, token=abcdefgh")
except ConnectionError as error:
    log.exception("no_broker", error=str(error))
    logging.getLogger("b").error("no broker: %s", error, exc_info=error)
    logging.getLogger("b").warning("CSRF token missing, see /somewhere")
"""


@pytest.mark.once
@pytest.mark.parametrize("where", ["terminal", "file"])
def test_secrets_in_exceptions_get_neither_into_spans_nor_into_logs(where: str) -> None:
    with collecting() as collector:
        changes = {**exporting_to(collector), "DJANGO_SETTINGS_MODULE": "ergon_site.settings"}
        written = run(sys.executable, "-c", SAYS_TOO_MUCH, where, **changes)
        [span] = collector.spans
    assert written.returncode == 0, written.stderr
    [event] = span.events
    told = {attribute.key: attribute.value.string_value for attribute in event.attributes}
    message = "cannot reach amqp://•••@broker, token=•••"
    assert (told["exception.type"], told["exception.message"]) == ("ConnectionError", message)
    assert told["exception.stacktrace"].rstrip().endswith(f"ConnectionError: {message}")
    assert span.status.message == f"ConnectionError: {message}"
    said = written.stderr.replace("\\u2022", "•")
    assert said.count(f"ConnectionError: {message}") == 2
    assert "CSRF token missing, see /somewhere" in said
    for secret in ("hunter2", "abcdefgh"):
        assert secret not in said
        assert secret not in str(collector.bodies)


@pytest.mark.once
def test_nothing_of_the_sdk_is_loaded_unless_asked_for() -> None:
    ask = (
        "import sys, django; django.setup(); from ergon_site import telemetry; telemetry.start();"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    asked = run(sys.executable, "-c", ask, DJANGO_SETTINGS_MODULE="ergon_site.settings")
    assert asked.stdout.strip() == "[]", asked.stderr


def test_the_web_process_shows_its_own_instruments(site: Site) -> None:
    assert httpx.get(f"{site.url}/api/v1/client", timeout=LIMIT).status_code == 401
    exposed = httpx.get(f"{site.url}/metrics", timeout=LIMIT).text
    assert re.search(r'ergon_api_request_duration_seconds_count\{.*route="api/v1/client",status="401"\} \d', exposed)


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_hosts_and_paths_that_a_caller_makes_up_are_no_labels_where_spans_are_exported(tmp_path: Path) -> None:
    with collecting() as collector, serve(log=tmp_path / "log", **exporting_to(collector)) as site:
        for number in range(1, 6):
            asked = f"{site.url}/api/v1/nothing-{number}"
            assert httpx.get(asked, headers={"Host": f"localhost:{number}"}, timeout=LIMIT).status_code == 404
        exposed = httpx.get(f"{site.url}/metrics", timeout=LIMIT).text
    durations = re.findall(r"^http_server_duration_milliseconds_count\{.*404.*", exposed, re.MULTILINE)
    running = re.findall(r"^http_server_active_requests\{.*", exposed, re.MULTILINE)
    assert (len(durations), len(running)) == (1, 1), exposed
