"""psycopg by hand: a table, a claim and a finish of fifty rows each, and nothing that a queue needs besides."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from benchmarks.queue import database
from benchmarks.queue.children import own_worker
from benchmarks.queue.contenders import in_thousands
from benchmarks.queue.jobs import enter, payload

if TYPE_CHECKING:
    from benchmarks.queue.servers import Servers

BATCH = 50
TABLE = """
CREATE TABLE IF NOT EXISTS job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state smallint NOT NULL DEFAULT 0,
  payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now(), finished_at timestamptz);
CREATE INDEX IF NOT EXISTS job_waiting ON job (id) WHERE state = 0
"""
INSERT = "INSERT INTO job (payload) VALUES (%s)"
CLAIM = """
WITH c AS MATERIALIZED (SELECT id FROM job WHERE state = 0 ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE job SET state = 1 FROM c WHERE job.id = c.id RETURNING job.id, job.payload
"""
FINISH = "UPDATE job SET state = 2, finished_at = now() WHERE id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class Raw:
    name: str = "raw psycopg, batches of 50"
    jobs: int = 20_000
    wakes: bool = False

    def environment(self, servers: "Servers") -> dict[str, str]:
        return {"BENCHMARK_DATABASE": servers.database("raw")}

    def commands(self, processes: int, *, drain: bool) -> list[list[str]]:
        return [own_worker("raw")] * processes

    def install(self) -> None:
        database.execute(TABLE)

    def prepare(self) -> None:
        database.execute("TRUNCATE job")

    def submit(self, number: int) -> None:
        database.execute(INSERT, [Jsonb(payload(number))])

    def submit_many(self, numbers: range) -> None:
        with database.connection().cursor() as cursor:
            for thousand in in_thousands(numbers):
                cursor.executemany(INSERT, [[Jsonb(payload(number))] for number in thousand])

    def settle_down(self) -> None:
        database.execute("VACUUM (ANALYZE)")

    def unsettled(self) -> int:
        return database.number("SELECT count(*) FROM job WHERE state < 2")

    def work(self) -> None:
        while claimed := database.execute(CLAIM, [BATCH]).fetchall():
            for _, carried in claimed:
                enter(carried["number"])
            database.execute(FINISH, [[identity for identity, _ in claimed]])
