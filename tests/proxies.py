"""A TCP proxy before a real server, whose link can fall silent: packets are swallowed, and nobody is told."""

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

LOOK = 0.05


class Proxy:
    """Forwards bytes; connections that were open when the link fell silent stay silent for good."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 0)
        self._server = socket.create_server(("127.0.0.1", 0))
        user = parts.netloc.rpartition("@")[0]
        self.address = urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{self._server.getsockname()[1]}"))
        self._is_silent = self._is_over = False
        self._opened: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def fall_silent(self) -> None:
        self._is_silent = True

    def recover(self) -> None:
        self._is_silent = False

    def close(self) -> None:
        self._is_over = True
        for one in [self._server, *self._opened]:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._is_over:
                client, _ = self._server.accept()
                self._opened.append(client)
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self._is_silent:  # it connects, and hears nothing
            return
        with suppress(OSError, ValueError), selectors.DefaultSelector() as selector:
            server = socket.create_connection(self._target)
            self._opened.append(server)
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while not self._is_silent and not self._is_over:
                for key, _ in selector.select(LOOK):
                    source: socket.socket = key.fileobj  # type: ignore[assignment]
                    chunk = source.recv(65536)
                    if not chunk:
                        client.close()
                        server.close()
                        return
                    if not self._is_silent:
                        key.data.sendall(chunk)


@contextmanager
def proxy(address: str) -> Iterator[Proxy]:
    between = Proxy(address)
    try:
        yield between
    finally:
        between.close()
