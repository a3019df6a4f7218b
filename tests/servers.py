"""Starts the servers that the suite needs, once per run and before Django reads its settings (`-p tests.servers`)."""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import certifi
import psycopg
import pytest
from psycopg.sql import SQL, Literal

from ergon_site import embedded
from tests.handout import Handout
from tests.ports import free_port

OURS = ("ERGON_", "DJANGO_", "DATABASE_", "CELERY_", "OTEL_")

# Peers on this host, and those that are never reached.
PEERS = "http://127.0.0.1:*,http://peer.example,https://peer.example,https://plant.example"

# Folders of tests that have nothing to do with the suite's database. Some of them, and some of the modules that are
# marked `once`, the passes on PostgreSQL take, which have less to do.
RUN_ONCE = {"core", "architecture", "conformance", "executors"}
TAKEN_BY_POSTGRESQL = {
    *("browser", "conformance", "executors"),
    *("test_demo.py", "test_embedded.py", "test_package.py", "test_settings.py"),
}

SELDOM = (20_000, 20, 50)
MEMORY, PLENTY = Path("/dev/shm"), 4 << 30  # noqa: S108 (folders in it have names of their own)

stack = ExitStack()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ergon")
    group.addoption("--database", choices=["sqlite", "postgresql"], default="sqlite", help="which database to test on")
    group.addoption("--handout", type=Path, help="a folder in which the modules are handed out among several runs")
    group.addoption("--template", type=Path, help="a folder with a database to copy, made by tests.template")
    group.addoption("--soak", action="store_true", help="run the long forms of the proofs instead of the short ones")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long proofs run alone; what does not touch the suite's database runs on one of the two only."""
    soak, database = config.getoption("--soak"), config.getoption("--database")
    left_out = [
        item
        for item in items
        if bool(item.get_closest_marker("soak")) != soak
        or (_is_run_once(item) and database != _database_of(item.path, config))
        or (database == "sqlite" and item.get_closest_marker("postgresql"))
    ]
    config.hook.pytest_deselected(items=left_out)
    excluded = set(left_out)
    items[:] = [item for item in items if item not in excluded]


def _is_run_once(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("once")) or bool(RUN_ONCE & _parts(item.path, item.config))


def _database_of(path: Path, config: pytest.Config) -> str:
    """On which of the two something runs that runs once."""
    is_taken = config.getoption("--handout") is not None and bool(TAKEN_BY_POSTGRESQL & _parts(path, config))
    return "postgresql" if is_taken else "sqlite"


def _parts(path: Path, config: pytest.Config) -> set[str]:
    """The module and its folders, but those inside the clone only, which may itself be in a folder of any name."""
    return set(path.relative_to(config.rootpath).parts)


def pytest_collection_finish() -> None:
    """What is loaded stays: to look through it for garbage again and again takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)


def pytest_configure(config: pytest.Config) -> None:
    if folder := config.getoption("--handout"):
        config.pluginmanager.register(Handout(folder))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """To load what runs once, only to leave it out, takes time."""
    is_elsewhere = config.getoption("--database") != _database_of(collection_path, config)
    return True if is_elsewhere and collection_path.name in RUN_ONCE else None


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    folder = stack.enter_context(data_folder())
    forget_environment()
    keep_bytecode()
    os.environ["ERGON_DATA_DIR"] = str(folder)
    given = early_config.known_args_namespace
    if given.template:
        subprocess.run(["cp", "-a", f"{given.template}/.", folder], check=True)
    os.environ["DATABASE_URL"] = database_of(given.database, folder, stack)
    os.environ["CELERY_BROKER_URL"] = _broker(folder)
    os.environ["ERGON_PEERS"] = PEERS
    os.environ["SSL_CERT_FILE"] = _certificate(folder)
    return (yield)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A database for which there is no long proof is no failure."""
    if session.config.getoption("--soak") and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def pytest_unconfigure() -> None:
    stack.close()


def pytest_report_header(config: pytest.Config) -> str:
    return f"database: {config.getoption('--database')}{', soak' if config.getoption('--soak') else ''}"


def forget_environment() -> None:
    """What a developer has set for their own runs must not reach the tests."""
    for name in [name for name in os.environ if name.startswith(OURS)]:
        del os.environ[name]


def keep_bytecode() -> None:
    """A hundred processes start in a run: without it, each would compile all of Django anew."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


class Restartable:
    """A server that a test may stop, and start again where it was."""

    def __init__(self, start: Callable[..., AbstractContextManager[str]], folder: Path) -> None:
        self._start, self._folder = start, folder
        self._running = ExitStack()
        self._port = free_port()  # while it is stopped, nobody else must be given its port
        self.address = self._running.enter_context(start(folder, port=self._port))

    def start(self) -> None:
        self._running.enter_context(self._start(self._folder, port=self._port))

    def stop(self) -> None:
        self._running.close()


@pytest.fixture(scope="session")
def rabbitmq(request: pytest.FixtureRequest) -> str:
    """The address of a RabbitMQ, started when the first test asks for it."""
    given = os.environ.get("TEST_RABBITMQ_URL")
    return given or str(request.getfixturevalue("our_rabbitmq").address)


@pytest.fixture(scope="session")
def our_rabbitmq() -> Iterator[Restartable]:
    require_rabbitmq()
    server = Restartable(embedded.rabbitmq, Path(os.environ["ERGON_DATA_DIR"]))
    yield server
    server.stop()


def require_rabbitmq() -> None:
    """Skip a test where there is no RabbitMQ to start; in the build, which must run everything, it then fails."""
    if not embedded.has_rabbitmq() and os.environ.get("CI") != "true":
        pytest.skip("needs RabbitMQ: install the package rabbitmq-server")


@contextmanager
def data_folder() -> Iterator[Path]:
    """A folder for databases, in memory where there is plenty: they make and remove files all the time."""
    has_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= PLENTY
    folder = Path(tempfile.mkdtemp(prefix="ergon-test-", dir=MEMORY if has_memory else None))
    # The database server may run as another user, who has to pass through.
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def database_of(kind: str, folder: Path, stack: ExitStack) -> str:
    """The address of a database in a folder, until the stack is closed."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/ergon.sqlite3"
    given = os.environ.get("TEST_DATABASE_URL")
    return given or _welcoming(stack.enter_context(embedded.postgres(folder, durable=False)))


def _welcoming(address: str) -> str:
    """A server that asks for the same password, but hashed once instead of 4096 times by each who connects."""
    with closing(psycopg.connect(address, autocommit=True)) as connection:
        connection.execute("SET scram_iterations = 1")
        password = Literal(urlsplit(address).password)
        connection.execute(SQL("ALTER ROLE CURRENT_USER PASSWORD {}").format(password))
    return address


def _certificate(folder: Path) -> str:
    """One of the world's certificates: each client reads them all, and in the tests nobody calls the world."""
    first, end, _ = certifi.contents().partition("-----END CERTIFICATE-----")
    (folder / "certificate.pem").write_text(first + end)
    return str(folder / "certificate.pem")


def _broker(folder: Path) -> str:
    return os.environ.get("TEST_REDIS_URL") or stack.enter_context(embedded.valkey(folder))
