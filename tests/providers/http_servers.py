"""A server that behaves as its addresses say: every status, slow, cut off, huge, unreadable."""

import gzip
import json
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

CHUNK = b"x" * 65536


@cache
def packed_spaces(count: int) -> bytes:
    return gzip.compress(b" " * count)


class Behaviour(BaseHTTPRequestHandler):
    """`/v1/NAME` or `/v1/NAME/ARGUMENT` is answered by the method of that name."""

    protocol_version = "HTTP/1.1"
    connections = 0

    def setup(self) -> None:
        super().setup()
        type(self).connections += 1

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True  # whoever asked has gone

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("content-length", 0)))
        _, version, name, *argument = self.path.partition("?")[0].split("/")
        assert version == "v1", self.path
        getattr(self, name)(*argument)

    do_POST = do_GET  # noqa: N815 (the name is the server's)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def echo(self) -> None:
        asked = {"path": self.path, "headers": dict(self.headers.items()), "body": self.body.decode()}
        self.answer(200, json.dumps(asked).encode())

    def status(self, status: str) -> None:
        self.answer(int(status), json.dumps({"error": f"it is {status}"}).encode())

    def again(self, status: str, after: str) -> None:
        self.answer(int(status), b"later", **{"Retry-After": after.replace("_", " ")})

    def nothing(self) -> None:
        self.answer(204)

    def text(self) -> None:
        self.answer(200, b"<html>It works!</html>")

    def listed(self) -> None:
        self.answer(200, b"[1, 2]")

    def badly_packed(self) -> None:
        self.answer(200, b"no gzip at all", **{"Content-Encoding": "gzip"})

    def packed(self, size: str) -> None:
        self.answer(200, gzip.compress(b" " * int(size) + b"{}"), **{"Content-Encoding": "gzip"})

    def bomb(self) -> None:
        self.answer(200, packed_spaces(50_000_000), **{"Content-Encoding": "gzip"})

    def half_packed(self) -> None:
        whole = gzip.compress(b'{"rank": 1, "about": "' + bytes(range(65, 91)) * 100 + b'"}')
        self.answer(200, whole[:-8], **{"Content-Encoding": "gzip"})

    def deflated(self, frame: str) -> None:
        packer = zlib.compressobj(wbits=15 if frame == "framed" else -15)
        self.answer(200, packer.compress(b'{"rank": 1}') + packer.flush(), **{"Content-Encoding": "deflate"})

    def strangely_packed(self) -> None:
        self.answer(200, b"{}", **{"Content-Encoding": "br"})

    def slowly_failing(self, seconds: str) -> None:
        self.wfile.write(b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 100000\r\n\r\n")
        self.dribble(b" ", float(seconds))

    def slow(self, seconds: str) -> None:
        time.sleep(float(seconds))
        self.answer(200, b"{}")

    def dripping(self, seconds: str) -> None:
        """A byte of the head now and then, each in good time."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        self.dribble(b"x", float(seconds))

    def dripping_body(self, seconds: str) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        self.dribble(b" ", float(seconds))

    def dribble(self, drop: bytes, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.wfile.write(drop)
            time.sleep(0.05)
        self.close_connection = True

    def hanging_up(self) -> None:
        self.close_connection = True

    def cut(self, status: str) -> None:
        self.wfile.write(f"HTTP/1.1 {status} Cut\r\nContent-Length: 1000\r\n\r\n{{".encode())
        self.close_connection = True

    def garbage(self) -> None:
        self.wfile.write(b"this is not HTTP\r\n\r\n")
        self.close_connection = True

    def declared(self, size: str) -> None:
        self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
        self.close_connection = True

    def endless(self, status: str) -> None:
        self.wfile.write(f"HTTP/1.1 {status} Endless\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        while True:
            self.wfile.write(b"10000\r\n" + CHUNK + b"\r\n")

    def elsewhere(self) -> None:
        self.answer(302, b"", Location="/v1/echo")

    def nowhere(self) -> None:
        self.answer(302, b"", Location="http://127.0.0.1:1/")

    def cookie(self) -> None:
        self.answer(200, b"{}", **{"Set-Cookie": "session=of-another-tenant; Path=/"})

    def telling(self) -> None:
        """Say everything that was asked, credentials too, as some providers do."""
        self.answer(
            400, f"you said {self.headers['Authorization']} and {self.headers['X-Odd']} to {self.path}".encode()
        )

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status >= 200 and status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[tuple[str, type[Behaviour]]]:
    """A server's address, and what it counts."""
    kind = type("Counted", (Behaviour,), {"connections": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", kind
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
