"""The same over HTTP, beside two bare views on the same server."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import orjson

from benchmarks.facts.at_once import BATCH, FROM, NEXT, TO, draft
from benchmarks.facts.rounds import Contender, percentiles

CONNECTIONS = 16
CALLS, ALONE, BATCHES = 6000, 500, 20
Body = Callable[[], bytes]


def contenders(folder: Path, stack: ExitStack, share: float) -> dict[str, Contender]:
    from django.db import connection

    from ergon_site.access import clients
    from ergon_site.access.clients import Grant

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE bare_row (id bigserial PRIMARY KEY, message_id text UNIQUE, content text)")
    grant = Grant(scopes=["facts:append"], zones=[FROM], target_zones=[TO])
    token = clients.create("benchmark", grant, by="benchmark").token.text
    port = server(folder, stack, {**os.environ, "DJANGO_SETTINGS_MODULE": "benchmarks.facts.settings"})

    def asked(path: str, body: Body, count: int, connections: int) -> Mapping[str, float]:
        return calls(port, token, path, body, int(count * share), connections)

    def one() -> bytes:
        return orjson.dumps(draft(next(NEXT)))

    def batch() -> bytes:
        return orjson.dumps({"facts": [draft(next(NEXT)) for _ in range(BATCH)]})

    def batches() -> Mapping[str, float]:
        told = asked("/api/v1/facts/batch", batch, BATCHES, 2)
        return {"http, in batches": told["http"] * BATCH}

    def alone() -> Mapping[str, float]:
        told = asked("/api/v1/facts", one, ALONE, 1)
        return {"p50, alone": told["p50"], "p99, alone": told["p99"]}

    return {
        "Ergon over HTTP": lambda: asked("/api/v1/facts", one, CALLS, CONNECTIONS),
        "bare APIView": lambda: asked("/bare", one, CALLS, CONNECTIONS),
        "plain Django view": lambda: asked("/plain", one, CALLS, CONNECTIONS),
        "Ergon over HTTP, in batches": batches,
        "Ergon over HTTP, alone": alone,
    }


def calls(port: int, token: str, path: str, body: Body, count: int, connections: int) -> Mapping[str, float]:
    """Requests a second, and percentiles of what one takes."""
    return asyncio.run(_drive(port, token, path, body, max(connections, count), connections))


def server(folder: Path, stack: ExitStack, environment: Mapping[str, str]) -> int:
    """The port of a web server that runs until the stack ends."""
    port = free_port()
    program = str(Path(sys.executable).parent / "granian")
    listen = ["--interface", "wsgi", "--host", "127.0.0.1", "--port", str(port), "--no-ws"]
    threads = ["--workers", "1", "--blocking-threads", str(CONNECTIONS)]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(  # noqa: S603 (our own server)
            [program, *listen, *threads, "ergon_site.wsgi:application"], env=environment, stdout=log, stderr=log
        )
    stack.callback(server.wait)
    stack.callback(server.terminate)
    _wait_for(port)
    return port


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


async def _drive(port: int, token: str, path: str, body: Body, count: int, connections: int) -> Mapping[str, float]:
    """Over so many connections, each of which waits for its answer."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    head += "Content-Type: application/json\r\nContent-Length: "
    took: list[float] = []
    bodies = [body() for _ in range(count)]

    async def run() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for sent in (bodies.pop() for _ in range(count // connections)):
            started = time.perf_counter()
            writer.write(f"{head}{len(sent)}\r\n\r\n".encode() + sent)
            await _answer(reader)
            took.append(time.perf_counter() - started)
        writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(connections)))
    return {"http": len(took) / (time.perf_counter() - started), **percentiles(took)}


async def _answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    body = await reader.readexactly(length)
    if status not in {200, 201}:
        sys.exit(f"the server answered {status}: {body[:300]!r}")
