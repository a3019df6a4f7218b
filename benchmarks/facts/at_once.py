"""32 callers at once, each of whom waits for the confirmation of one fact before the next."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.facts.rounds import Contender, percentiles

CALLERS = 32
FACTS = 16_000
BATCHES, BATCH = 30, 1000
FROM, TO = "Plant A", "Enterprise"
NEXT = count()


def contenders(folder: Path, stack: ExitStack, share: float) -> dict[str, Contender]:
    facts = int(FACTS * share)
    writer = BareWriter(stack)
    found: dict[str, Contender] = {
        "Ergon": lambda: together(append_one, facts),
        "bare batching writer": lambda: together(writer.append, facts),
        "Ergon, in batches": lambda: in_batches(max(1, int(BATCHES * share))),
    }
    for name, sync in {"JetStream, sync for every write": "always", "JetStream, as it comes": "2m"}.items():
        url = jetstream(folder / f"nats-{sync}", sync, stack)
        found[name] = lambda url=url: asyncio.run(publish(url, facts))  # type: ignore[misc]
    return found


def draft(number: int) -> dict[str, Any]:
    """About 300 bytes of JSON."""
    return {
        "envelope": {
            "message_id": f"order-{number}-released",
            "from_zone": FROM,
            "to_zone": TO,
            "produced_at_unix_ms": 1741248600000,
            "correlation_id": f"order:{number}",
            "labels": {"priority": "high"},
        },
        "fact": {
            "subject": f"work_order:WO-{number}",
            "predicate": "was_released",
            "object_json": {"quantity": 12, "unit": "pallets", "line": "filling-3", "by": "shift lead"},
        },
    }


def together(call: Callable[[int], None], facts: int) -> Mapping[str, float]:
    """The callers begin at once; each has its share."""
    barrier, took = threading.Barrier(CALLERS + 1), []
    each = facts // CALLERS

    def run() -> None:
        from django.db import connection

        mine = []
        barrier.wait()
        for _ in range(each):
            started = time.perf_counter()
            call(next(NEXT))
            mine.append(time.perf_counter() - started)
        took.extend(mine)
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    barrier.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return {"at once": each * CALLERS / (time.perf_counter() - started), **percentiles(took)}


def append_one(number: int) -> None:
    from facts import ledger

    ledger.append(draft(number))


def in_batches(batches: int) -> Mapping[str, float]:
    from facts import ledger

    took = 0.0
    for _ in range(batches):
        drafts = [draft(next(NEXT)) for _ in range(BATCH)]
        started = time.perf_counter()
        ledger.append_many(drafts)
        took += time.perf_counter() - started
    return {"in batches": batches * BATCH / took}


class BareWriter:
    """One thread writes what the others bring: as little as keeps an order, knows repeats and waits for the disk.

    The rows are those of Ergon, ready made, with the same indexes.
    """

    TABLES = """
    CREATE TABLE bare_counter (next bigint); INSERT INTO bare_counter VALUES (0);
    CREATE TABLE bare_fact ("offset" bigint PRIMARY KEY, message_id text UNIQUE, subject text, predicate text,
      correlation_id text, content text, digest text, written_at timestamptz DEFAULT now());
    CREATE INDEX ON bare_fact (subject, "offset"); CREATE INDEX ON bare_fact (correlation_id, "offset")
    """
    APPEND = """
    WITH c AS (UPDATE bare_counter SET next = next + %s RETURNING next - %s AS first),
    i AS (INSERT INTO bare_fact SELECT c.first + d.o, d.m, d.s, d.p, d.c, d.t, d.d
      FROM c, json_to_recordset(%s) AS d (o int, m text, s text, p text, c text, t text, d text) ON CONFLICT DO NOTHING)
    SELECT first FROM c
    """

    def __init__(self, stack: ExitStack) -> None:
        import psycopg

        self._connection = stack.enter_context(psycopg.connect(os.environ["DATABASE_URL"], autocommit=True))
        self._connection.execute(self.TABLES)
        self._some = threading.Semaphore(0)
        self._waiting: list[tuple[int, threading.Lock]] = []
        threading.Thread(target=self._write, daemon=True).start()

    def append(self, number: int) -> None:
        done = threading.Lock()
        done.acquire()
        self._waiting.append((number, done))
        self._some.release()
        done.acquire()

    def _write(self) -> None:
        import orjson

        while True:
            self._some.acquire()
            batch, self._waiting = self._waiting, []
            if not batch:
                continue
            rows = [self._row(place, number) for place, (number, _) in enumerate(batch)]
            given = [len(batch), len(batch), orjson.dumps(rows).decode()]
            self._connection.execute(self.APPEND, given, prepare=True).fetchall()
            for _, done in batch:
                done.release()

    def _row(self, place: int, number: int) -> dict[str, Any]:
        import orjson

        content = orjson.dumps(draft(number)).decode()
        about = {"s": f"work_order:WO-{number}", "p": "was_released", "c": f"order:{number}", "d": "0" * 64}
        return {"o": place, "m": f"bare-{number}", "t": content, **about}


def jetstream(folder: Path, sync: str, stack: ExitStack) -> str:
    """A server of its own on a free port."""
    folder.mkdir()
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = folder / "server.conf"
    settings.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}", sync_interval: {sync} }}\n')
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if program is None:
        sys.exit("nats-server is not installed: run `make bench`")
    server = subprocess.Popen([program, "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    stack.callback(server.wait)
    stack.callback(server.terminate)
    return f"nats://127.0.0.1:{port}"


async def publish(url: str, facts: int) -> Mapping[str, float]:
    import nats
    import orjson
    from nats.errors import NoServersError

    for _ in range(50):
        try:
            client = await nats.connect(url)
            break
        except (NoServersError, OSError):
            await asyncio.sleep(0.1)
    stream = client.jetstream()
    await stream.add_stream(name="facts", subjects=["facts"], duplicate_window=120)
    took: list[float] = []

    async def run() -> None:
        for _ in range(facts // CALLERS):
            number = next(NEXT)
            started = time.perf_counter()
            body = orjson.dumps(draft(number))
            await stream.publish("facts", body, headers={"Nats-Msg-Id": f"order-{number}"})
            took.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(CALLERS)))
    rate = len(took) / (time.perf_counter() - started)
    await client.close()
    return {"at once": rate, **percentiles(took)}
