"""Connections for appends: statements that are planned once, and one connection for whoever writes for all."""

from typing import Any

from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper


class Lane:
    """A connection of the group's own: whichever thread leads uses it, one at a time, so that it is always warm."""

    def __init__(self) -> None:
        self._wrapper: BaseDatabaseWrapper | None = None

    def rows(self, statement: str, given: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Carry out a statement that may be carried out twice; a connection that was lost is made anew."""
        is_new = self._wrapper is None
        try:
            return rows(self._open(), statement, given)
        except OperationalError:
            self.close()
            if is_new:
                raise
            return rows(self._open(), statement, given)

    def close(self) -> None:
        wrapper, self._wrapper = self._wrapper, None
        if wrapper is not None:
            wrapper.close()

    def _open(self) -> BaseDatabaseWrapper:
        if self._wrapper is None:
            self._wrapper = connection.copy()
            self._wrapper.inc_thread_sharing()
        return self._wrapper


def rows(wrapper: Any, statement: str, given: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What a statement returns, on PostgreSQL; planned once for each connection, where no pooler shares them."""
    wrapper.ensure_connection()
    is_shared = wrapper.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
    with wrapper.wrap_database_errors:
        found: list[tuple[Any, ...]] = wrapper.connection.execute(
            statement, given, prepare=None if is_shared else True
        ).fetchall()
        return found
