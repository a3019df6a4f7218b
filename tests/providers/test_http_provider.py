"""Providers over HTTP, against a real server: every answer, no answer, and what is never told."""

import asyncio
import gc
import json
import logging
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from providers import BreakerPolicy, HttpProvider, ProviderExecutionResult, RetryPolicy, calls
from providers.adapters import clients
from providers.models import Gate, OutboxLetter, ProviderExecutionMetric
from tests.processes import free_port
from tests.providers.http_servers import Behaviour, serving
from tests.providers.scripted_providers import TENANT, WHO, context

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

TOKEN = "sk-live-5f2a9c"
Ask = Callable[..., ProviderExecutionResult]


class Rank(HttpProvider):
    provider_name, capability = "rank", "rank_snapshot"
    retry_policy = RetryPolicy(max_attempts=1)
    breaker_policy = BreakerPolicy(failure_threshold=1000)
    timeout = 10.0
    idempotency_header = "Idempotency-Key"

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def request(self, operation: str, payload: dict[str, Any]) -> httpx.Request:
        return httpx.Request(payload.pop("method", "GET"), f"/{operation}", **payload)

    def headers_for(self, tenant_id: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {TOKEN}", "X-Tenant": tenant_id}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, type[Behaviour]]]:
    with serving() as served:
        yield served
        clients.close()


@pytest.fixture
def url(server: tuple[str, type[Behaviour]]) -> str:
    return server[0]


@pytest.fixture(params=["threads", "asyncio"])
def ask(request: pytest.FixtureRequest, url: str) -> Ask:
    """Execute an operation once, in a thread or on an event loop."""

    def execute(operation: str, /, base_url: str = url, about: Any = None, **changes: Any) -> ProviderExecutionResult:
        payload = changes.pop("payload", {})
        provider = type("Made", (Rank,), changes)(base_url)
        asked = {"tenant_id": TENANT, "operation": operation, "payload": payload, "context": context(**(about or {}))}
        run = provider.execute if request.param == "threads" else async_to_sync(provider.aexecute)
        result: ProviderExecutionResult = run(**asked)
        return result

    return execute


def test_an_answer_is_read_and_what_was_asked_arrived(ask: Ask) -> None:
    result = ask("echo", payload={"method": "POST", "json": {"keyword": "tea"}, "params": {"country": "at"}})
    assert result.ok, result.error
    assert result.payload is not None
    assert json.loads(result.payload["body"]) == {"keyword": "tea"}
    assert result.payload["path"] == "/v1/echo?country=at"
    headers = {name.lower(): value for name, value in result.payload["headers"].items()}
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["content-type"] == "application/json"
    assert headers["host"].startswith("127.0.0.1:")


def test_an_answer_without_content_is_empty(ask: Ask) -> None:
    result = ask("nothing")
    assert (result.payload, result.attempts[0].http_status) == ({}, 204)
    assert ProviderExecutionMetric.objects.get().http_status == 204


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (302, "internal_error"),
        (304, "internal_error"),
        (400, "bad_request"),
        (401, "auth_failed"),
        (403, "auth_failed"),
        (404, "bad_request"),
        (408, "timeout"),
        (409, "bad_request"),
        (422, "bad_request"),
        (429, "rate_limited"),
        (500, "dependency_unavailable"),
        (502, "dependency_unavailable"),
        (503, "dependency_unavailable"),
        (504, "timeout"),
        (599, "dependency_unavailable"),
    ],
)
def test_a_status_means_what_the_table_says(ask: Ask, status: int, reason: str) -> None:
    result = ask(f"status/{status}")
    assert (result.reason_code, result.attempts[0].http_status) == (reason, status)
    row = ProviderExecutionMetric.objects.get()
    assert (row.reason_code, row.http_status) == (reason, status)


@pytest.mark.parametrize(
    ("after", "least", "most"),
    [
        ("7", 7, 7),
        ("Fri,_31_Dec_9999_23:59:59_GMT", 300, 300),
        ("soon", None, None),
        ("Mon,_01_Jan_2001_00:00:00_GMT", 0, 0),
    ],
)
def test_a_pause_that_is_asked_for_is_told(ask: Ask, after: str, least: float | None, most: float | None) -> None:
    result = ask(f"again/429/{after}")
    assert result.reason_code == "rate_limited"
    assert result.retry_after is None if least is None else least <= (result.retry_after or 0) <= (most or 0)


def test_a_pause_holds_for_everybody(ask: Ask) -> None:
    ask("again/503/60")
    assert ask("echo").reason_code == "rate_limited"


@pytest.mark.parametrize("operation", ["text", "listed", "badly_packed", "declared/99999999"])
def test_an_answer_that_cannot_be_read_is_invalid(ask: Ask, operation: str) -> None:
    assert ask(operation).reason_code == "response_invalid"


def test_whatever_reading_raises_makes_the_answer_invalid(ask: Ask) -> None:
    result = ask("echo", read=lambda _, response: response.json()["no such field"])
    assert result.reason_code == "response_invalid"
    assert result.error is not None
    assert (result.error.http_status, type(result.error.__cause__)) == (200, KeyError)


@pytest.mark.parametrize("operation", ["endless/200", "packed/3000000", "declared/3000000"])
def test_a_huge_answer_is_not_read_to_its_end(ask: Ask, operation: str) -> None:
    result = ask(operation, max_answer_bytes=1_000_000)
    assert result.reason_code == "response_invalid"
    assert "larger than 1000000 bytes" in str(result.error)


def test_an_answer_is_unpacked_no_further_than_it_may_be_large(ask: Ask) -> None:
    ask("bomb", max_answer_bytes=100_000)  # the server is in this process, and has packed it now
    tracemalloc.start()
    try:
        result = ask("bomb", max_answer_bytes=100_000)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (result.reason_code, "larger than 100000" in str(result.error)) == ("response_invalid", True)
    assert most < 5_000_000  # of 50


@pytest.mark.parametrize("operation", ["half_packed", "strangely_packed"])
def test_an_answer_that_is_not_whole_or_cannot_be_unpacked_is_invalid(ask: Ask, operation: str) -> None:
    assert ask(operation).reason_code == "response_invalid"


@pytest.mark.parametrize("frame", ["framed", "bare"])
def test_both_ways_to_write_deflate_are_read(ask: Ask, frame: str) -> None:
    assert ask(f"deflated/{frame}").payload == {"rank": 1}


def test_a_failure_whose_explanation_is_slow_is_that_failure(ask: Ask) -> None:
    result = ask("slowly_failing/30", timeout=8.0)
    assert (result.reason_code, result.retry_after) == ("dependency_unavailable", 7.0)


def test_a_redirect_that_leads_nowhere_has_left(ask: Ask) -> None:
    result = ask("nowhere", follow_redirects=True)
    assert result.error is not None
    assert (result.reason_code, result.error.never_left) == ("connection_error", False)


def test_of_a_failure_the_beginning_is_enough(ask: Ask) -> None:
    assert ask("endless/503").reason_code == "dependency_unavailable"


def test_a_failure_whose_explanation_is_cut_off_is_that_failure(ask: Ask) -> None:
    assert ask("cut/503").reason_code == "dependency_unavailable"


@pytest.mark.parametrize("operation", ["slow/30", "dripping/30", "dripping_body/30"])
def test_an_attempt_ends_in_time_however_slowly_it_is_answered(ask: Ask, operation: str) -> None:
    began = time.monotonic()
    assert ask(operation, timeout=0.5).reason_code == "timeout"
    assert time.monotonic() - began < 15


def test_what_is_left_of_the_deadline_is_all_that_an_attempt_has(ask: Ask) -> None:
    began = time.monotonic()
    assert ask("slow/30", about={"deadline": began + 0.5}).reason_code == "timeout"
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("operation", ["hanging_up", "cut/200", "garbage"])
def test_a_connection_that_breaks_is_a_connection_error_and_is_paid_for(ask: Ask, operation: str) -> None:
    calls.set_quota(WHO, limit=10, window=86400.0, by="tests")
    assert ask(operation).reason_code == "connection_error"
    assert Gate.objects.get().used == 1


def test_a_server_that_is_not_there_costs_nothing(ask: Ask) -> None:
    calls.set_quota(WHO, limit=10, window=86400.0, by="tests")
    result = ask("echo", base_url=f"http://127.0.0.1:{free_port()}")
    assert result.reason_code == "connection_error"
    assert result.error is not None
    assert result.error.never_left
    assert Gate.objects.get().used == 0


@pytest.mark.parametrize(
    "mistake", [{"base_url": ""}, {"payload": {"headers": {"X-Odd": "a\nb"}}}, {"payload": {"no": 1}}]
)
def test_a_mistake_of_ours_is_not_tried_again_and_costs_nothing(ask: Ask, mistake: dict[str, Any]) -> None:
    calls.set_quota(WHO, limit=10, window=86400.0, by="tests")
    result = ask("echo", retry_policy=RetryPolicy(max_attempts=3, base_delay_seconds=0), **mistake)
    assert (result.reason_code, len(result.attempts)) == ("internal_error", 1)
    assert Gate.objects.get().used == 0


def test_redirects_are_not_followed_unless_that_is_wanted(ask: Ask) -> None:
    assert ask("elsewhere").attempts[0].http_status == 302
    assert ask("elsewhere", follow_redirects=True).ok


def test_a_key_goes_out_in_its_header(ask: Ask) -> None:
    def sent(**changes: Any) -> str | None:
        payload = ask("echo", **changes).payload
        assert payload is not None
        return {name.lower(): value for name, value in payload["headers"].items()}.get("idempotency-key")

    assert sent(about={"idempotency_key": "order-1"}) == "order-1"
    assert sent(about={"idempotency_key": "Größe\n"}) == "Gr%C3%B6%C3%9Fe%0A"
    assert sent() is None
    assert sent(idempotency_header=None, about={"idempotency_key": "order-2"}) is None
    derived = sent(deduplicate=True)
    assert derived == ProviderExecutionMetric.objects.latest("id").idempotency_key


def test_the_trace_goes_out_with_the_request(ask: Ask) -> None:
    caller = SpanContext(trace_id=0xABC0 << 100, span_id=0xDEF, is_remote=True, trace_flags=TraceFlags(1))
    with trace.use_span(NonRecordingSpan(caller)):
        headers = (ask("echo").payload or {})["headers"]
    assert headers["traceparent"].split("-")[1] == format(caller.trace_id, "032x")


def test_no_cookie_of_one_call_is_in_another(ask: Ask) -> None:
    assert ask("cookie").ok
    assert "cookie" not in json.dumps(ask("echo").payload).lower()


def test_threads_keep_their_connection(server: tuple[str, type[Behaviour]]) -> None:
    url, kind = server
    before = kind.connections
    for provider in (Rank(url), Rank(url)):
        for _ in range(3):
            assert provider.execute(tenant_id=TENANT, operation="echo", payload={}, context=context()).ok
    assert kind.connections - before <= 1


def test_an_event_loop_keeps_its_connection(server: tuple[str, type[Behaviour]]) -> None:
    url, kind = server
    before = kind.connections

    async def several() -> list[ProviderExecutionResult]:
        asked = {"tenant_id": TENANT, "operation": "echo", "payload": {}}
        return [await Rank(url).aexecute(**asked, context=context()) for _ in range(3)]  # type: ignore[arg-type]

    assert all(result.ok for result in async_to_sync(several)())
    assert kind.connections - before == 1


class Marked(Rank):
    """Its clients send a header of its own, as those of others have a certificate or a proxy."""

    def __init__(self, base_url: str, mark: Any) -> None:
        super().__init__(base_url)
        self.mark = mark

    def client_options(self) -> dict[str, Any]:
        return super().client_options() | {"headers": {"X-Mark": str(self.mark)}}


def mark_of(result: ProviderExecutionResult) -> str:
    headers: dict[str, str] = (result.payload or {})["headers"]
    return headers["X-Mark"]


@pytest.mark.parametrize("marks", [("red", "blue"), (["red"], ["blue"])], ids=["plain", "other"])
def test_each_instance_has_clients_with_its_own_options(
    server: tuple[str, type[Behaviour]], marks: tuple[Any, Any]
) -> None:
    url, kind = server
    before = kind.connections
    asked: dict[str, Any] = {"tenant_id": TENANT, "operation": "echo", "payload": {}}
    first, second = (Marked(url, mark) for mark in marks)

    async def each() -> list[str]:
        return [mark_of(await one.aexecute(**asked, context=context())) for one in (first, second, first)]

    expected = [str(marks[0]), str(marks[1]), str(marks[0])]
    assert [mark_of(one.execute(**asked, context=context())) for one in (first, second, first)] == expected
    assert kind.connections - before == 2
    assert async_to_sync(each)() == expected
    assert mark_of(Marked(url, marks[0]).execute(**asked, context=context())) == str(marks[0])
    is_shared = isinstance(marks[0], str)
    assert kind.connections - before == (4 if is_shared else 5)


class Answering(httpx.MockTransport):
    """Answers without a server, and notes when it is closed."""

    def __init__(self) -> None:
        super().__init__(lambda _: httpx.Response(204, stream=httpx.ByteStream(b"")))
        self.closed: list[str] = []

    def close(self) -> None:
        self.closed.append("threads")

    async def aclose(self) -> None:
        self.closed.append("loop")


class Answered(Rank):
    def __init__(self, transport: Answering) -> None:
        super().__init__("http://127.0.0.1")
        self.transport = transport

    def client_options(self) -> dict[str, Any]:
        return super().client_options() | {"transport": self.transport}


def test_clients_that_an_instance_shares_with_no_other_are_closed_when_it_is_gone() -> None:
    asked: dict[str, Any] = {"tenant_id": TENANT, "operation": "echo", "payload": {}}
    transport = Answering()

    async def ask_both() -> None:
        provider = Answered(transport)
        assert (await sync_to_async(provider.execute)(**asked, context=context())).ok
        assert (await provider.aexecute(**asked, context=context())).ok
        assert transport.closed == []
        del provider
        gc.collect()
        while len(transport.closed) < 2:  # noqa: ASYNC110 (the loop closes one)
            await asyncio.sleep(0)

    async_to_sync(ask_both)()
    assert sorted(transport.closed) == ["loop", "threads"]


SECRETS = {"headers": {"X-Odd": "hush-hush"}, "params": {"api_key": "topsecret99", "q": "tea"}}


def test_what_a_provider_repeats_of_our_secrets_is_told_nobody(
    ask: Ask, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO):
        result = ask("telling", payload=dict(SECRETS), about={"task_name": "tests.fetch"})
    assert result.reason_code == "bad_request"
    letter = OutboxLetter.objects.get()
    everything = f"{result} {result.error} {letter.payload} {caplog.text} {capsys.readouterr()}"
    assert "you said" in everything
    for secret in (TOKEN, "hush-hush", "topsecret99"):
        assert secret not in everything


@pytest.mark.parametrize("value", ["hush-hush\nhush", "hush-hush\0"])
def test_an_error_that_says_a_secret_is_no_cause_of_ours(ask: Ask, value: str) -> None:
    result = ask("echo", payload={"headers": {"X-Odd": value}})
    assert result.error is not None
    assert result.error.__cause__ is None
    assert "hush-hush" not in f"{result} {result.error.message}"
