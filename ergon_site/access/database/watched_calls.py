"""Database calls that may take as long as they need, as long as the database answers somebody else.

What has no time limit of its own would wait for ever for a server that is frozen, although a replica may have taken
its place. So a thread that asks the database something quick now and then watches over the others: when it gets no
answer, their calls are cut, and go on with new connections.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import psycopg

from ergon_site.access.database.calls import close_connection, time_limit


class WatchedCalls:
    """The calls of several threads that are cut together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[time_limit, float] = {}  # and when they began
        self._thread = threading.local()
        self.cuts = 0

    @contextmanager
    def call(self) -> Iterator[None]:
        """Run the block on a connection that is newer than the last cut; the next one fails it."""
        with time_limit(math.inf) as call:
            with self._lock:
                self._calls[call] = time.monotonic()
                cuts = self.cuts
            try:
                if getattr(self._thread, "cuts", 0) != cuts:
                    close_connection()
                    self._thread.cuts = cuts
                yield
            finally:
                with self._lock:
                    del self._calls[call]

    def longest(self) -> tuple[float, Any]:
        """Of the call that takes longest and waits for an answer, how long it takes, and the connection."""
        with self._lock:
            waiting = [(began, asked) for call, began in self._calls.items() if (asked := call.waits_for) is not None]
        began, asked = min(waiting, key=itemgetter(0), default=(math.inf, None))
        return time.monotonic() - began, asked

    def cut(self, silent: Any = None) -> None:
        """The database does not answer: what waits for it fails, and nobody uses its connection any more.

        With a connection, only what waits for the same server; who asks it later is cut later.
        """
        with self._lock:
            self.cuts += 1
            for call in self._calls:
                asked = call.waits_for
                if silent is None or (asked is not None and _server(asked) == _server(silent)):
                    call.cut()


def _server(asked: Any) -> tuple[str, str, int] | None:
    try:
        return asked.info.host, asked.info.hostaddr, asked.info.port
    except psycopg.OperationalError:  # closed meanwhile
        return None
