"""A peer that answers over HTTP as a test has it answer."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from django.conf import settings

from tests.facts.drafts import OFFICE, PLANT

# Of the form that a token has; no peer of the tests looks at it.
TOKEN = f"ergon_aaaaaaaa_{'a' * 43}"


def keep_token(text: str = TOKEN, name: str = "plant") -> str:
    """Keep a peer's token where this deployment looks for it; its name."""
    settings.ERGON_PEER_TOKENS.mkdir(exist_ok=True)
    (settings.ERGON_PEER_TOKENS / name).write_text(f"{text}\n")
    return name


class Garbled(bytes):
    """A body that is not in the encoding that its header names."""


class Script:
    """What the peer answers, by path; and what it was told."""

    def __init__(self) -> None:
        self.consumers = {"office": (PLANT, OFFICE)}
        self.pages: list[Any] = []
        self.confirmed: list[int] = []
        self.keeps_its_cursor = False
        self.newest = 9

    def answer(self, path: str) -> Any:
        if path == "/api/v1/client":
            return {"consumers": list(self.consumers)}
        name, _, rest = path.removeprefix("/api/v1/consumers/").partition("/")
        if rest.startswith("facts"):
            return self.pages.pop(0) if self.pages else {"facts": [], "cursor": max([-1, *self.confirmed])}
        from_zone, to_zone = self.consumers[name]
        return {"name": name, "from_zone": from_zone, "to_zone": to_zone, "cursor": -1, "newest": self.newest}


@contextmanager
def peer(script: Script) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(script.answer(self.path))

        def do_POST(self) -> None:
            offset = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["offset"]
            script.confirmed.append(offset)
            self._say({"cursor_advanced_to": -1 if script.keeps_its_cursor else offset})

        def _say(self, body: Any) -> None:
            if not isinstance(body, dict | bytes):
                self._trickle(body)
                return
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(200)
            if isinstance(body, Garbled):
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            with suppress(OSError):  # whoever asked has given up
                self.wfile.write(text)

        def _trickle(self, chunks: Any) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                for chunk in chunks:
                    self.wfile.write(chunk)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def page(*facts: tuple[int, dict[str, Any]], cursor: int = -1) -> dict[str, Any]:
    return {"facts": [{"offset": offset, **fact} for offset, fact in facts], "cursor": cursor}
