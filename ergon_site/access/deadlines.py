"""A deadline for everything that an HTTP client reads and writes on the network.

The time limits of httpx are those of a single read or write: a peer that sends a byte now and then would hold its
caller for ever. Inside `within`, connecting, reading and writing share what is left until the deadline.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpcore
import httpx

_deadline: ContextVar[float | None] = ContextVar("ergon_deadline", default=None)


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """All requests of this thread in the block have this many seconds together; None lifts an outer deadline."""
    token = _deadline.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def keep_to_deadlines(client: httpx.Client) -> httpx.Client:
    """Let a client obey `within`."""
    # httpx has no argument for a network backend, and with a transport of our own it would ignore proxies.
    transports: list[Any] = [client._transport, *client._mounts.values()]  # noqa: SLF001
    for transport in transports:
        pool = getattr(transport, "_pool", None)
        if pool is not None:
            pool._network_backend = _Backend(pool._network_backend)  # noqa: SLF001
    return client


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
    """The limit of one read or write: its own, or what is left until the deadline."""
    deadline = _deadline.get()
    if deadline is None:
        return timeout
    left = deadline - time.monotonic()
    if left <= 0:
        msg = "the time limit of the whole request has passed"
        raise error(msg)
    return left if timeout is None else min(timeout, left)
