"""Connections to a broker with a limit on every wait: without one, a silent broker is waited for for ever."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# A broker that is silent for so long counts as lost.
SILENCE_LIMIT = 10.0
# Within a database transaction, for whose end others wait.
SHORT_LIMIT = 2.0
# One that refuses may be starting, and is tried again for so long.
REFUSED_FOR = 1.0


def transport_options(url: str, limit: float) -> dict[str, Any]:
    """The options of a connection that waits for no answer longer than this. RabbitMQ says what it has safely."""
    if url.startswith("amqp"):
        return {"confirm_publish": True, "read_timeout": limit, "write_timeout": limit}
    return {"socket_timeout": limit, "socket_connect_timeout": limit}


@contextmanager
def connected(line: Any) -> Iterator[Any]:
    """A connection of Kombu's, up. After an error it is only dropped: a silent broker does not answer a goodbye."""
    try:
        line.ensure_connection(timeout=REFUSED_FOR, interval_start=0, interval_step=0.2)
        yield line
    except BaseException:
        line.collect()
        raise
    line.release()
