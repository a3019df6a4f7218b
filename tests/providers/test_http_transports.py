"""Deadlines hold on every way to a server: directly, over TLS, through proxies, for a place in the pool."""

import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from ergon_site.access import deadlines
from tests.processes import eventually, free_port
from tests.providers.http_servers import Behaviour, serving

pytestmark = pytest.mark.once

# A certificate of 127.0.0.1, with its key, for a hundred years.
CERTIFICATE = Path(__file__).with_name("localhost.pem")
PASSED = "the time limit of the whole request has passed"


class Forward(Behaviour):
    """A proxy that answers in the place of every server."""

    asked: list[str]

    def do_GET(self) -> None:  # noqa: N802 (the name is the server's)
        self.asked.append(self.path)
        self.path = urlsplit(self.path).path
        super().do_GET()

    def do_CONNECT(self) -> None:  # noqa: N802
        self.asked.append(self.path)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        self.dribble(b"x", 60)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def proxy() -> Iterator[type[Forward]]:
    kind = type("Counted", (Forward,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    kind.address = f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]
    with running(server):
        yield kind


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[None]:
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def get(url: str, limit: float | None = None, **options: Any) -> httpx.Response:
    with deadlines.client(timeout=60, **options) as client, deadlines.within(limit):
        return client.get(url)


def test_a_dripping_server_is_given_up_over_tls_too() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Behaviour)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url, trusted = f"https://127.0.0.1:{server.server_address[1]}/v1", ssl.create_default_context(cafile=CERTIFICATE)
    with running(server):
        assert get(f"{url}/text", verify=trusted).text == "<html>It works!</html>"
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            get(f"{url}/text")
        with pytest.raises(httpx.TimeoutException):
            get(f"{url}/dripping/60", 1.0, verify=trusted)


@pytest.mark.parametrize("way", ["option", "environment"])
def test_a_proxy_is_used_and_bound_by_the_deadline(proxy: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"proxy": proxy.address} if way == "option" else {}
    if way == "environment":
        monkeypatch.setenv("http_proxy", proxy.address.removeprefix("http://"))
        monkeypatch.setenv("https_proxy", proxy.address)
    for host, limit in (("rank.test", 1.0), ("again.test", 10.0)):  # the second for a machine that stood still
        assert get(f"http://{host}/v1/text", **options).status_code == 200
        with pytest.raises(httpx.TimeoutException):
            get(f"http://{host}/v1/dripping/60", limit, **options)
        with pytest.raises(httpx.TimeoutException):
            get(f"https://{host}/v1/text", limit, **options)
        asked = [one for one in proxy.asked if host in one]
        if len(asked) == 3:
            break
    assert asked == [f"http://{host}/v1/text", f"http://{host}/v1/dripping/60", f"{host}:443"]


@pytest.mark.parametrize(
    ("exempt", "is_asked"),
    [
        ("", True),
        ("127.0.0.1", False),
        ("rank.test, 127.0.0.1", False),
        ("http://127.0.0.1", False),
        ("*", False),
        ("127.0.0.2,::1,localhost,127.0.0.0/8", True),
        (".0.0.1", False),
    ],
)
def test_hosts_that_the_environment_exempts_are_asked_directly(
    proxy: Any, exempt: str, *, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", proxy.address)
    monkeypatch.setenv("no_proxy", exempt)
    with serving() as (url, _):
        assert get(f"{url}/text").status_code == 200
        assert bool(proxy.asked) is is_asked
        # httpx alone goes the same way.
        proxy.asked.clear()
        httpx.get(f"{url}/text")
        assert bool(proxy.asked) is is_asked
        proxy.asked.clear()
        get(f"{url}/text", trust_env=False)
        assert not proxy.asked


def test_a_proxy_that_is_not_there_is_a_connection_that_failed() -> None:
    with pytest.raises(httpx.ConnectError):
        get("http://rank.test/", proxy=f"http://127.0.0.1:{free_port()}")


def test_whoever_waits_for_a_connection_waits_no_longer_than_the_deadline() -> None:
    is_over, one = Event(), httpx.Limits(max_connections=1)
    with serving() as (url, kind), deadlines.client(timeout=None, limits=one) as client, ThreadPoolExecutor(1) as pool:
        kind.held = lambda self: self.answer(200 if is_over.wait(60) else 500)  # type: ignore[attr-defined]
        busy = pool.submit(client.get, f"{url}/held")
        eventually(lambda: kind.connections == 1, "the one connection is in use")
        with deadlines.within(0.3), pytest.raises(httpx.PoolTimeout):
            client.get(f"{url}/text")
        is_over.set()
        assert busy.result().status_code == 200


def test_redirects_share_one_deadline() -> None:
    with serving() as (url, _), deadlines.client(timeout=60, follow_redirects=True) as client:
        assert client.get(f"{url}/elsewhere").status_code == 200
        with deadlines.within(0.0), pytest.raises(httpx.ConnectTimeout, match=PASSED):
            client.get(f"{url}/elsewhere")


def test_a_transport_of_the_callers_own_stays_as_it_is() -> None:
    mine = httpx.MockTransport(lambda _: httpx.Response(204))
    assert get("http://rank.test/", transport=mine).status_code == 204
    assert get("http://rank.test/", mounts={"all://rank.test": mine}).status_code == 204


def test_a_body_that_is_sent_piece_by_piece_arrives_whole() -> None:
    with serving() as (url, _), deadlines.client() as client:
        answer = client.post(f"{url}/echo", content=b"tea" * 10_000)
        assert answer.json()["body"] == "tea" * 10_000
        began = time.monotonic()
        with deadlines.within(1.0), pytest.raises(httpx.TimeoutException):
            client.get(f"{url}/dripping_body/60")
        assert time.monotonic() - began < 20
