"""Ports for servers that tests start."""

import secrets
import socket
from contextlib import closing, suppress

# No system gives these away by itself: a connection that somebody opens cannot take one.
PORTS = range(10_000, 32_000)


def free_port() -> int:
    """A port that nobody listens on; no other run on this machine is given it while this one lasts."""
    while True:
        port = secrets.choice(PORTS)
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _keep(port)
            return port


def _keep(port: int) -> None:
    """Take a name that only one process can have: it is given back when the process ends, however it ends."""
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0ergon-test-port-{port}")
    except OSError:
        mark.close()
        raise
    mark.detach()  # open until then
