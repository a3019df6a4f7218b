"""A few database connections for all pipelines of a process, so that their number does not grow with the pipelines."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, LifoQueue
from typing import Any

from django.db import DatabaseError, InterfaceError, connections
from django.db.utils import DEFAULT_DB_ALIAS


class SharedConnections:
    """Lends a connection to whichever thread asks; it is opened when it is first used."""

    def __init__(self, count: int) -> None:
        self._is_closed = False
        # The one that was used last is lent first: the others may never be opened.
        self._free: LifoQueue[Any] = LifoQueue()
        for _ in range(count):
            shared: Any = connections.create_connection(DEFAULT_DB_ALIAS)
            shared.inc_thread_sharing()
            self._free.put(shared)

    @contextmanager
    def borrow(self) -> Iterator[None]:
        """Within the block, `django.db.connection` is a shared one. Whoever comes when all are lent waits."""
        own = next((one for one in connections.all(initialized_only=True) if one.alias == DEFAULT_DB_ALIAS), None)
        shared = self._free.get()
        connections[DEFAULT_DB_ALIAS] = shared
        try:
            yield
        finally:
            if own is None:
                del connections[DEFAULT_DB_ALIAS]
            else:
                connections[DEFAULT_DB_ALIAS] = own
            self._free.put(shared)
            if self._is_closed:
                self.close()

    def close(self) -> None:
        """Close what is not lent; the rest follows when it comes back."""
        self._is_closed = True
        with suppress(Empty):
            while True:
                shared = self._free.get_nowait()
                with suppress(DatabaseError, InterfaceError):
                    shared.close()
