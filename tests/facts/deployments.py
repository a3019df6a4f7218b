"""A second deployment: a database, a folder and a web server of its own; and a link to it that can be cut."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

from tests import database, processes, warm
from tests.processes import PIPES, ended, environment, eventually, free_port, process

# Several commands in one process: each start takes longer than what it does.
COMMANDS = """
import io, json, sys
from django.core.management import call_command
for command in json.load(sys.stdin):
    output = io.StringIO()
    call_command(*command, stdout=output)
    print(json.dumps(output.getvalue()))
"""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where it is, and the environment of its processes."""

    variables: dict[str, str]

    def commands(self, *commands: list[str]) -> list[str]:
        """What the commands print, one after the other."""
        process = warm.start(["shell", "-v0", "-c", COMMANDS], environment(**self.variables), **PIPES)
        done = ended(process, json.dumps(commands))
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    @contextmanager
    def server(self, port: int | None = None) -> Iterator["Server"]:
        with serving(port, **self.variables) as server:
            yield server


@dataclass(frozen=True, slots=True)
class Server:
    """A web server that can be killed."""

    url: str
    port: int
    running: Popen[str]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.running.pid, signal.SIGKILL)
        self.running.wait(processes.LIMIT)
        eventually(lambda: not _listens(self.port), f"nobody listens on {self.port}")


@contextmanager
def serving(port: int | None = None, **variables: str) -> Iterator[Server]:
    """The web server on the test's database, or on that of another deployment."""
    port = port or free_port()
    listen = ["--interface", "wsgi", "--host", "127.0.0.1", "--port", str(port), "--no-ws"]
    threads = ["--blocking-threads", "8", "--backpressure", "64"]
    command = ["granian", *listen, *threads, "ergon_site.wsgi:application"]
    with process(*command, log=None, ERGON_API_RATE="1000000/s", **variables) as running:
        url = f"http://127.0.0.1:{port}"
        processes.wait_for(f"{url}/livez")
        yield Server(url, port, running)


@contextmanager
def deployment(folder: Path) -> Iterator[Deployment]:
    """Migrated and empty, on the kind of database that this run is about."""
    folder.mkdir()
    with database.another(folder) as url:
        yield Deployment({"DATABASE_URL": url, "ERGON_DATA_DIR": str(folder)})


class Link:
    """A relay to a port that can be cut and healed."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.port = free_port()
        self._ends: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.heal()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def heal(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told in mid-answer."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
