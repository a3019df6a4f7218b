"""RabbitMQ for a run, from the system's packages."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

# Beside the program on the path, which insists on a user of its own.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_LIMIT = 60.0


def is_installed() -> bool:
    return SERVER.exists() and shutil.which("epmd") is not None


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """A RabbitMQ server with its data in `folder`, as a broker address; its port mapper is its own."""
    home = folder / "rabbitmq"
    home.mkdir()
    port, names_port = _free_port(), _free_port()
    password = secrets.token_urlsafe(24)
    environment = _environment(home, port, names_port, password)
    with (home / "log").open("wb") as log, ExitStack() as stack:
        names = ["epmd", "-port", str(names_port), "-address", "127.0.0.1"]
        for command in (names, [str(SERVER)]):
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # noqa: S603 (ours)
            stack.callback(_stop, process)
        _await(port, process)
        yield f"amqp://ergon:{password}@127.0.0.1:{port}//"


def _environment(home: Path, port: int, names_port: int, password: str) -> dict[str, str]:
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


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
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
