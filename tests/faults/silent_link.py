"""A host behind a link that can go down without a word: a network namespace of its own (Linux, as root)."""

import os
import secrets
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest


def require_namespaces() -> None:
    """Skip a test where no network namespace can be made; in the build, which must run everything, it then fails."""
    if (os.geteuid() != 0 or shutil.which("ip") is None) and os.environ.get("CI") != "true":
        pytest.skip("needs root and iproute2, to make a network namespace")


class Link:
    """Leads from the other host to a port of this one."""

    def __init__(self, port: int) -> None:
        tag = secrets.token_hex(3)
        self._space, self._here, self._there = f"ergon-{tag}", f"eh{tag}", f"et{tag}"
        net = f"10.231.{secrets.randbelow(250)}"
        self.address = f"{net}.1"
        _ip(f"netns add {self._space}")
        _ip(f"link add {self._here} type veth peer name {self._there} netns {self._space}")
        _ip(f"addr add {net}.1/30 dev {self._here}")
        _ip(f"link set {self._here} up")
        _ip(f"-n {self._space} addr add {net}.2/30 dev {self._there}")
        _ip(f"-n {self._space} link set {self._there} up")
        self._listening = socket.create_server((self.address, 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, args=[port], daemon=True).start()

    def command(self, *command: str) -> list[str]:
        """The command on the other host."""
        return ["ip", "netns", "exec", self._space, *command]

    def go_down(self) -> None:
        _ip(f"link set {self._here} down")

    def close(self) -> None:
        self._listening.close()
        _ip(f"netns del {self._space}")

    def _accept(self, port: int) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                called = socket.create_connection(("127.0.0.1", port))
                for source, target in ((caller, called), (called, caller)):
                    threading.Thread(target=_relay, args=[source, target], daemon=True).start()


@contextmanager
def link_to(port: int) -> Iterator[Link]:
    with closing(Link(port)) as link:
        yield link


def _relay(source: socket.socket, target: socket.socket) -> None:
    with ExitStack() as stack:
        for end in (source, target):
            stack.callback(end.close)
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)
