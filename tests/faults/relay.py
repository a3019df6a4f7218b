"""A stretch of network between a process and a server, which a test may cut or silence."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

CHUNK = 1 << 16


class Relay:
    """Listens on a port of its own and passes everything on to a server, until it is told otherwise."""

    def __init__(self, address: str) -> None:
        self._server = urlsplit(address)
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._passes, self._answers = threading.Event(), threading.Event()
        self._passes.set()
        self._answers.set()
        self._last_words = self._unanswered = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        credentials, _, _ = self._server.netloc.rpartition("@")
        port = self._listener.getsockname()[1]
        self.address = urlunsplit(self._server._replace(netloc=f"{credentials}@127.0.0.1:{port}"))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        return len(self._open) // 2

    def cut(self) -> None:
        """Both ends hear that the connection is lost."""
        with self._lock:
            ends, self._open = self._open, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """Nothing gets through any more, and neither end hears of it."""
        self._passes.clear()

    def silence_at(self, words: bytes) -> None:
        """The same from the moment on at which something with these words would pass."""
        self._last_words = words

    def silence_answers_to(self, words: bytes) -> None:
        """What is asked with these words gets through; its answer does not, nor does any after it."""
        self._unanswered = words

    def resume(self) -> None:
        self._last_words = self._unanswered = b""
        self._answers.set()
        self._passes.set()

    def close(self) -> None:
        self._listener.close()
        self.cut()
        self.resume()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=[near], daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection((self._server.hostname or "", self._server.port or 0))
        except OSError:
            near.close()
            return
        with near, far:
            with self._lock:
                self._open += [near, far]
            back = threading.Thread(target=self._pass_on, args=[far, near, self._answers], daemon=True)
            back.start()
            self._pass_on(near, far, self._passes)
            back.join()

    def _pass_on(self, source: socket.socket, target: socket.socket, passes: threading.Event) -> None:
        with suppress(OSError):
            while chunk := source.recv(CHUNK):
                if self._last_words and self._last_words in chunk:
                    self.silence()
                if self._unanswered and self._unanswered in chunk:
                    self._answers.clear()
                self._passes.wait()
                passes.wait()
                target.sendall(chunk)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay_to(address: str) -> Iterator[Relay]:
    relay = Relay(address)
    try:
        yield relay
    finally:
        relay.close()
