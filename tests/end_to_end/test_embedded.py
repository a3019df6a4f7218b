"""The servers that come with the demo and the tests."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import kombu
import psutil
import psycopg
import pytest
import redis
from amqp import AccessRefused

from ergon_site import embedded
from tests.processes import ROOT, eventually
from tests.servers import require_rabbitmq

pytestmark = pytest.mark.once

HOLD = """
import sys, time
from pathlib import Path
from ergon_site import embedded
with embedded.postgres(Path(sys.argv[1])) as database, embedded.valkey(Path(sys.argv[1])) as broker:
    print(database, broker, flush=True)
    time.sleep(600)
"""


HOLD_RABBITMQ = """
import sys, time
from pathlib import Path
from ergon_site import embedded
with embedded.rabbitmq(Path(sys.argv[1])) as broker:
    print(broker, flush=True)
    time.sleep(600)
"""


def listens(address: str) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(address).port or 0)) == 0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's user can enter. Those of pytest cannot be: each run closes them for all others."""
    with TemporaryDirectory(prefix="ergon-embedded-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_both_answer_ask_for_a_password_and_are_gone_afterwards(folder: Path) -> None:
    with embedded.postgres(folder) as database, embedded.valkey(folder) as broker:
        with closing(psycopg.connect(database)) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with closing(redis.Redis.from_url(broker)) as client:
            assert client.ping()
        password = urlsplit(database).password or ""
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(database.replace(password, "wrong"))
        with (
            pytest.raises(redis.AuthenticationError),
            closing(redis.Redis.from_url(broker.replace(urlsplit(broker).password or "", "wrong"))) as stranger,
        ):
            stranger.ping()
    assert not listens(database)
    assert not listens(broker)


def test_data_is_still_there_at_the_next_start(folder: Path) -> None:
    with embedded.postgres(folder) as database, closing(psycopg.connect(database, autocommit=True)) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    with embedded.postgres(folder) as database, closing(psycopg.connect(database)) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_servers_side_by_side_do_not_collide(folder: Path) -> None:
    with ExitStack() as stack:
        addresses = [stack.enter_context(embedded.valkey(folder / str(number))) for number in range(4)]
        assert len({urlsplit(address).port for address in addresses}) == 4
        assert all(listens(address) for address in addresses)


def test_a_folder_in_use_is_refused_in_words(folder: Path) -> None:
    with (
        embedded.valkey(folder),
        pytest.raises(embedded.ServerError, match="another process already runs the server"),
        embedded.valkey(folder),
    ):
        pass


def test_a_private_folder_works_too(folder: Path) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    with embedded.postgres(private) as database:
        with closing(psycopg.connect(database)) as connection:
            (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
        assert listens(database)
    # For root, a private folder has a stand-in outside the test's own; it goes with the test.
    shutil.rmtree(Path(data).parent)


@contextmanager
def held(script: str, folder: Path) -> Iterator[list[str]]:
    """The addresses of servers whose process is killed when the block ends."""
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ) as holder:
        try:
            assert holder.stdout is not None
            yield holder.stdout.readline().split()
        finally:
            holder.kill()


def hold_and_die(folder: Path) -> None:
    with held(HOLD, folder) as (database, broker):
        assert listens(database)
    eventually(lambda: not listens(database) and not listens(broker), "the servers died with their parent")


def test_servers_die_with_the_process_that_started_them(folder: Path) -> None:
    hold_and_die(folder)


@pytest.mark.soak
def test_servers_killed_over_and_over_leave_nothing_running_and_start_again(folder: Path) -> None:
    for _ in range(25):
        hold_and_die(folder)


def processes_of(folder: Path) -> list[psutil.Process]:
    """Whatever runs with a home in this folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HOME", "").startswith(str(folder)):
                found.append(process)
    return found


def listeners(folder: Path) -> set[str]:
    """The addresses on which the processes of a folder listen."""
    sockets = [one for process in processes_of(folder) for one in process.net_connections("inet")]
    return {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN}


def put_and_count(address: str) -> int:
    confirmed = {"confirm_publish": True}
    with (
        kombu.Connection(address, transport_options=confirmed) as connection,
        closing(connection.SimpleQueue("kept")) as queue,
    ):
        queue.put({"answer": 42})
        return int(queue.qsize())


def test_rabbitmq_listens_to_its_own_and_leaves_its_messages_but_no_process(folder: Path) -> None:
    require_rabbitmq()
    with held(HOLD_RABBITMQ, folder) as (broker,):
        assert put_and_count(broker) == 1
        with (
            pytest.raises(AccessRefused),
            kombu.Connection(broker.replace(urlsplit(broker).password or "", "wrong")) as stranger,
        ):
            stranger.connect()
        assert listeners(folder) == {"127.0.0.1", "::1"}
    eventually(lambda: not listens(broker) and not processes_of(folder), "RabbitMQ died with its parent")
    with embedded.rabbitmq(folder) as broker:
        assert put_and_count(broker) == 2
    assert processes_of(folder) == []
