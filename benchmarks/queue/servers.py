"""The servers of a run: one PostgreSQL with its durable defaults, one Valkey, and RabbitMQ where it is installed."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from psycopg.sql import SQL, Identifier

from ergon_site import embedded

ROOT = Path(__file__).resolve().parents[2]


class MissingServerError(Exception):
    """A server that a contender needs is not installed here."""


@dataclass(frozen=True, slots=True)
class Servers:
    folder: Path
    postgres: str
    brokers: Mapping[str, str]

    def database(self, name: str) -> str:
        """The address of a database of that name, made on first use: each contender has its own."""
        with closing(psycopg.connect(self.postgres, autocommit=True)) as connection:
            if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).rowcount:
                connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        return f"{self.postgres.rpartition('/')[0]}/{name}"

    def broker(self, name: str) -> str:
        if name not in self.brokers:
            msg = f"{name} is not installed here"
            raise MissingServerError(msg)
        return self.brokers[name]


@contextmanager
def running() -> Iterator[Servers]:
    # Below the project, because a temporary folder may be kept in memory, where nothing waits for a disk.
    (ROOT / "var").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=ROOT / "var", prefix="benchmark-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        brokers = {"valkey": stack.enter_context(embedded.valkey(folder))}
        if embedded.has_rabbitmq():
            brokers["rabbitmq"] = stack.enter_context(embedded.rabbitmq(folder))
        yield Servers(folder, stack.enter_context(embedded.postgres(folder)), brokers)
