"""A TCP proxy in front of a server, which can fall silent: what a cable that was pulled looks like to both ends."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress


class Proxy:
    """Passes bytes on, both ways, until it swallows them."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._silent: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        """Pass on nothing more of what is connected now; whoever connects later is served."""
        self._silent.update(one for pair in self._pairs for one in pair)

    def close(self) -> None:
        self._listening.close()
        for one in (one for pair in self._pairs for one in pair):
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._server)
                self._pairs.append((client, server))
                self.accepted += 1
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=[source, target], daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source not in self._silent:
                    target.sendall(data)
            if source not in self._silent:
                target.shutdown(socket.SHUT_WR)


@contextmanager
def proxy(host: str, port: int) -> Iterator[Proxy]:
    with closing(Proxy(host, port)) as running:
        yield running
