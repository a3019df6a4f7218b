"""The connection of group commits, and that of each thread."""

import threading
from collections.abc import Callable
from typing import TypeVar

from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")


class Lane:
    """A connection of the group's own: whichever thread leads uses it, one at a time, so that it is always warm."""

    def __init__(self) -> None:
        self._wrapper: BaseDatabaseWrapper | None = None

    def carry_out(self, work: Callable[[BaseDatabaseWrapper], T]) -> T:
        """Carry out what may be carried out twice; a connection that was lost is made anew."""
        is_new = self._wrapper is None
        try:
            return work(self._open())
        except OperationalError:
            self.close()
            if is_new:
                raise
            return work(self._open())

    def close(self) -> None:
        wrapper, self._wrapper = self._wrapper, None
        if wrapper is not None:
            wrapper.close()

    def _open(self) -> BaseDatabaseWrapper:
        if self._wrapper is None:
            self._wrapper = connection.copy()
            self._wrapper.inc_thread_sharing()
        return self._wrapper


class Own(threading.local):
    """The connection of this thread, found once: to ask Django each time costs as much as half of the checks."""

    def __init__(self) -> None:
        self.connection = connections[DEFAULT_DB_ALIAS]
