"""A deadline for everything that an HTTP client reads and writes on the network.

The time limits of httpx are those of a single read or write: a peer that sends a byte now and then would hold its
caller for ever. Inside `within`, connecting, reading and writing share what is left until the deadline. httpx takes no
network backend, but any transport: ours is a connection pool of httpcore, which takes one.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any
from urllib.request import getproxies

import httpcore
import httpx

_deadline: ContextVar[float | None] = ContextVar("ergon_deadline", default=None)

# What httpx.Client takes for its transports.
OF_TRANSPORTS = ("verify", "cert", "trust_env", "http1", "http2", "limits")
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20)
# httpx has each of them under the same name.
FAULTS = (
    *(httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError),
    *(httpcore.ProxyError, httpcore.UnsupportedProtocol),
)


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """All requests of this thread in the block have this many seconds together; None lifts an outer deadline."""
    token = _deadline.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def client(**options: Any) -> httpx.Client:
    """A client that obeys `within`. It takes what `httpx.Client` takes; transports of the caller's own stay as is.

    httpx asks no proxy of the environment where it is given a transport, so they are named here.
    """
    if options.get("transport") is not None:
        return httpx.Client(**options)
    given = {name: options.pop(name) for name in OF_TRANSPORTS if name in options}
    trust_env = given.get("trust_env", True)
    proxy = options.pop("proxy", None)
    proxies = {"all://": proxy} if proxy else _environment_proxies() if trust_env else {}
    mounts = {at: None if proxy is None else Transport(proxy=proxy, **given) for at, proxy in proxies.items()}
    mounts |= options.pop("mounts", None) or {}
    return httpx.Client(transport=Transport(**given), mounts=mounts, trust_env=trust_env, **options)


class Transport(httpx.BaseTransport):
    """Does what `httpx.HTTPTransport` does, and obeys `within`. Options that are not listed are those of httpcore."""

    def __init__(
        self,
        *,
        verify: Any = True,
        cert: Any = None,
        trust_env: bool = True,
        limits: httpx.Limits = LIMITS,
        proxy: Any = None,
        **options: Any,
    ) -> None:
        options |= {
            "ssl_context": httpx.create_ssl_context(verify=verify, cert=cert, trust_env=trust_env),
            "max_connections": limits.max_connections,
            "max_keepalive_connections": limits.max_keepalive_connections,
            "keepalive_expiry": limits.keepalive_expiry,
            "network_backend": _Backend(httpcore.SyncBackend()),
        }
        self._pool = httpcore.ConnectionPool(**options) if proxy is None else _proxy_pool(proxy, options)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        limits = request.extensions.get("timeout", {})
        stream: Any = request.stream
        with _faults_of_httpx():
            # To wait for a connection of the pool is no work of the network: that wait is bounded here.
            bounded = limits | {"pool": _left(limits.get("pool"), httpcore.ConnectTimeout)}
            extensions = {**request.extensions, "timeout": bounded}
            target, headers = _url(request.url), request.headers.raw
            asked = httpcore.Request(request.method, target, headers=headers, content=stream, extensions=extensions)
            answer = self._pool.handle_request(asked)
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Body(answer.stream), extensions=dict(answer.extensions)
        )

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        with _faults_of_httpx():
            yield from self._stream

    def close(self) -> None:
        self._stream.close()


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *more: Any, **named: Any
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._backend.connect_tcp(host, port, left, *more, **named))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, *more: Any, **named: Any
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._backend.connect_unix_socket(path, left, *more, **named))


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, timeout=_left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout=_left(timeout, httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()


def _left(timeout: float | None, error: type[Exception]) -> float | None:
    """The limit of one wait, read or write: its own, or what is left until the deadline."""
    deadline = _deadline.get()
    if deadline is None:
        return timeout
    left = deadline - time.monotonic()
    if left <= 0:
        msg = "the time limit of the whole request has passed"
        raise error(msg)
    return left if timeout is None else min(timeout, left)


@contextmanager
def _faults_of_httpx() -> Iterator[None]:
    try:
        yield
    except FAULTS as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error


def _proxy_pool(proxy: Any, options: dict[str, Any]) -> httpcore.ConnectionPool:
    """A pool of connections through a proxy."""
    through = proxy if isinstance(proxy, httpx.Proxy) else httpx.Proxy(proxy)
    options |= {"proxy_url": _url(through.url), "proxy_auth": through.raw_auth}
    if through.url.scheme.startswith("socks5"):
        return httpcore.SOCKSProxy(**options)
    return httpcore.HTTPProxy(proxy_headers=through.headers.raw, proxy_ssl_context=through.ssl_context, **options)


def _url(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _environment_proxies() -> dict[str, str | None]:
    """The proxies that the environment names, by patterns as httpx writes them; None is no proxy."""
    named = getproxies()
    proxies: dict[str, str | None] = {
        f"{scheme}://": address if "://" in address else f"http://{address}"
        for scheme in ("http", "https", "all")
        if (address := named.get(scheme))
    }
    exempt = [host for name in named.get("no", "").split(",") if (host := name.strip())]
    if "*" in exempt:
        return {}
    return proxies | {_pattern_of(host): None for host in exempt}


def _pattern_of(host: str) -> str:
    """A host of NO_PROXY as a pattern: a name means all below it, too."""
    if "://" in host:
        return host
    try:
        version = ip_address(host.partition("/")[0]).version
    except ValueError:
        return f"all://{host}" if host.lower() == "localhost" else f"all://*{host}"
    return f"all://{host}" if version == 4 else f"all://[{host}]"  # noqa: PLR2004 (IPv4)
