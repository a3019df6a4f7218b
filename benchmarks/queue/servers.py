"""The servers of a run: one PostgreSQL with its durable defaults, one Valkey, and RabbitMQ where it is installed."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from psycopg.sql import SQL, Identifier

from ergon_site import embedded

ROOT = Path(__file__).resolve().parents[2]
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_LIMIT = 60.0


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
        if RABBITMQ.exists() and shutil.which("epmd"):
            brokers["rabbitmq"] = stack.enter_context(_rabbitmq(folder))
        yield Servers(folder, stack.enter_context(embedded.postgres(folder)), brokers)


@contextmanager
def _rabbitmq(folder: Path) -> Iterator[str]:
    """A RabbitMQ server with its data in `folder`, as a broker address; its port mapper is its own."""
    home = folder / "rabbitmq"
    home.mkdir()
    port, names_port = _free_port(), _free_port()
    password = secrets.token_urlsafe(24)
    environment = _rabbitmq_environment(home, port, names_port, password)
    with (home / "log").open("wb") as log, ExitStack() as stack:
        names = ["epmd", "-port", str(names_port), "-address", "127.0.0.1"]
        for command in (names, [str(RABBITMQ)]):
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # noqa: S603
            stack.callback(_stop, process)
        _await_rabbitmq(port, process)
        yield f"amqp://ergon:{password}@127.0.0.1:{port}//"


def _rabbitmq_environment(home: Path, port: int, names_port: int, password: str) -> dict[str, str]:
    settings = home / "rabbitmq.conf"
    settings.touch(mode=0o600)
    settings.write_text(
        f"listeners.tcp.default = 127.0.0.1:{port}\ndefault_user = ergon\ndefault_pass = {password}\n"
        "log.console = true\nlog.file = false\n"
    )
    (home / "plugins").write_text("[].\n")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "RABBITMQ_NODENAME": f"benchmark{port}@localhost",
        "RABBITMQ_DIST_PORT": str(_free_port()),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home),
        "RABBITMQ_CONFIG_FILE": str(settings),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_ALLOW_INPUT": "1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput -start_epmd false",
        "ERL_EPMD_PORT": str(names_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }


def _await_rabbitmq(port: int, process: subprocess.Popen[bytes]) -> None:
    # It listens once it is ready.
    until = time.monotonic() + START_LIMIT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(START_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
