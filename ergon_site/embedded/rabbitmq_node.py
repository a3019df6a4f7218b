"""RabbitMQ, from the system's packages."""

import os
import secrets
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kombu

from ergon_site.embedded.server import Server, ServerError, free_port, held, kept_password, running

# Beside the programs that systems put on the path, which insist on a user of their own.
RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"


@contextmanager
def rabbitmq(folder: Path, *, port: int | None = None) -> Iterator[str]:
    """A RabbitMQ node with its data in `folder`, as a broker address; it takes some seconds to start."""
    binary, mapper = _rabbitmq_binaries()
    home = folder / "rabbitmq"
    (home / "mapper").mkdir(parents=True, exist_ok=True)
    with held(home):
        password = kept_password(home)
        # The node's own configuration, user and cookie, in place of the system's.
        settings = {"default_user": "ergon", "default_pass": password, "disk_free_limit.absolute": "1MB"}
        configuration, cookie = home / "rabbitmq.conf", home / ".erlang.cookie"
        configuration.touch(mode=0o600)
        configuration.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
        if not cookie.exists():
            cookie.touch(mode=0o600)
            cookie.write_text(secrets.token_hex(20))
            cookie.chmod(0o400)
        # Nothing of the system's RabbitMQ or of its user's.
        environment = {"PATH": f"{Path(mapper).parent}:{os.defpath}", "LANG": "C.UTF-8", "HOME": str(home)}
        ports = Server(
            home=home / "mapper",
            command=lambda port: [mapper, "-port", str(port), "-address", "127.0.0.1"],
            address=str,
            ping=lambda port: socket.create_connection(("127.0.0.1", int(port)), timeout=1).close(),
            process={"env": environment},
            stop_signal=signal.SIGTERM,
        )
        # The node finds this port mapper and starts none of its own, which would outlive it.
        with running(ports) as mapped:
            server = Server(
                home=home,
                command=lambda port: ["env", *_node(home, port, mapped), binary],
                address=lambda port: f"amqp://ergon:{password}@127.0.0.1:{port}/%2F",
                ping=_ping_rabbitmq,
                process={"cwd": home, "env": environment},
                stop_signal=signal.SIGTERM,
                port=port,
            )
            with running(server) as address:
                yield address


def has_rabbitmq() -> bool:
    """Whether the system has one to start."""
    try:
        return bool(_rabbitmq_binaries())
    except ServerError:
        return False


def _ping_rabbitmq(address: str) -> None:
    with kombu.Connection(address) as connection:
        connection.transport.establish_connection().close()


def _rabbitmq_binaries() -> tuple[str, str]:
    binary = shutil.which(RABBITMQ) or shutil.which("rabbitmq-server")
    mapper = shutil.which("epmd")
    if binary is None or mapper is None:
        msg = "RabbitMQ is missing: install the package rabbitmq-server"
        raise ServerError(msg)
    return binary, mapper


def _node(home: Path, port: int, mapper: str) -> list[str]:
    """A node with its own name, ports and folders, on loopback only."""
    variables = {
        "ERL_EPMD_PORT": mapper,
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_AFLAGS": "-start_epmd false",
        "ERL_CRASH_DUMP_BYTES": "0",
        "RABBITMQ_NODENAME": "ergon@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": port,
        "RABBITMQ_DIST_PORT": free_port(),
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
