"""pgqueuer: its worker with uvloop in batches of 100, with psycopg, and with asyncpg, which its manual recommends."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from benchmarks.queue import database
from benchmarks.queue.children import own_worker
from benchmarks.queue.contenders import in_thousands
from benchmarks.queue.jobs import enter, payload

if TYPE_CHECKING:
    from benchmarks.queue.servers import Servers

BATCH = 100
ENTRYPOINT = "noop"


@dataclass(frozen=True, slots=True)
class PgQueuer:
    name: str = "pgqueuer, batches of 100"
    jobs: int = 20_000
    wakes: bool = True
    key: str = "pgqueuer"
    has_asyncpg: bool = False

    def environment(self, servers: "Servers") -> dict[str, str]:
        return {"BENCHMARK_DATABASE": servers.database(self.key)}

    def commands(self, processes: int, *, drain: bool) -> list[list[str]]:
        return [own_worker(self.key)] * processes

    def install(self) -> None:
        import asyncio

        asyncio.run(_install())

    def prepare(self) -> None:
        database.execute("TRUNCATE pgqueuer, pgqueuer_log, pgqueuer_statistics")

    def submit(self, number: int) -> None:
        _queries().enqueue(ENTRYPOINT, orjson.dumps(payload(number)))

    def submit_many(self, numbers: range) -> None:
        queries = _queries()
        for thousand in in_thousands(numbers):
            carried = [orjson.dumps(payload(number)) for number in thousand]
            queries.enqueue([ENTRYPOINT] * len(carried), carried, [0] * len(carried))

    def settle_down(self) -> None:
        database.execute("VACUUM (ANALYZE)")

    def unsettled(self) -> int:
        return database.number("SELECT count(*) FROM pgqueuer")

    def work(self) -> None:
        import uvloop

        uvloop.run(_work_with_asyncpg() if self.has_asyncpg else _work())


def _queries() -> Any:
    from pgqueuer.db import SyncPsycopgDriver
    from pgqueuer.queries import SyncQueries

    return SyncQueries(SyncPsycopgDriver(database.connection()))


async def _install() -> None:
    from pgqueuer.queries import Queries

    async with await _connect() as connection:
        await Queries.from_psycopg_connection(connection).install()


async def _work() -> None:
    from pgqueuer import PgQueuer as Manager

    async with await _connect() as connection:
        await _manage(Manager.from_psycopg_connection(connection))


async def _work_with_asyncpg() -> None:
    import os

    import asyncpg
    from pgqueuer import PgQueuer as Manager

    await _manage(Manager.from_asyncpg_connection(await asyncpg.connect(os.environ["BENCHMARK_DATABASE"])))


async def _manage(manager: Any) -> None:
    @manager.entrypoint(ENTRYPOINT)
    async def noop(job: Any) -> None:
        enter(orjson.loads(job.payload)["number"])

    await manager.run(batch_size=BATCH)


async def _connect() -> Any:
    import os

    from psycopg import AsyncConnection

    return await AsyncConnection.connect(os.environ["BENCHMARK_DATABASE"], autocommit=True)
