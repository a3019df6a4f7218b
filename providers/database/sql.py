"""Runs statements: prepared once for each connection, outside of transactions where possible."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Self

import psycopg
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, OperationalError, connection, connections

from ergon_site.access.database import pooler, refusals
from ergon_site.access.database.calls import close_connection, time_limit
from ergon_site.access.database.parameters import numbered
from providers.core.errors import ProviderUsageError
from providers.database.dialects import POSTGRESQL, SQLITE, Dialect

PREPARED_FROM = 2
Row = tuple[Any, ...]
# A database that is away, as against a statement that is wrong.
LOST = (OperationalError, InterfaceError)
_thread = threading.local()


@cache
def is_postgresql() -> bool:
    return connection.vendor == "postgresql"


def dialect() -> Dialect:
    return POSTGRESQL if is_postgresql() else SQLITE


def rows(statement: str, given: Mapping[str, Any]) -> list[Row]:
    """The rows that a statement returns.

    Django's own cursors never prepare, whatever the connection allows; nothing does where a pooler shares connections.
    Psycopg reads a statement as long as ours anew each time, to find its parameters; here that is done once.
    """
    # Looked up once, but for each call: Django's `connection` is a stand-in that looks for the thread's own at every
    # word, and a thread may borrow another.
    database: Any = connections[DEFAULT_DB_ALIAS]
    if database.vendor != "postgresql":
        return _plain_rows(database, statement, given)
    if database.connection is None:
        database.ensure_connection()
    return pooler.carry_out(
        database,
        lambda: _prepared_rows(database, statement, given),
        lambda: _plain_rows(database, statement, given),
    )


def _plain_rows(database: Any, statement: str, given: Mapping[str, Any]) -> list[Row]:
    with database.cursor() as cursor:
        cursor.execute(statement, given)
        return list(cursor.fetchall()) if cursor.description else []


def _prepared_rows(database: Any, statement: str, given: Mapping[str, Any]) -> list[Row]:
    if database.connection is None:
        database.ensure_connection()
    with database.wrap_database_errors:
        if database.autocommit and not database.in_atomic_block:
            return pooler.prepared_rows(database.connection, statement, given)
        text, names = numbered(statement)
        cursor = _cursor_of(database.connection)
        cursor.execute(text, [given[name] for name in names])
        # `description` would say the same, and make a list of columns for it.
        return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


def _cursor_of(raw: Any) -> Any:
    """The cursor of a connection for statements that are prepared: to make one takes as long as a short statement."""
    cursor = getattr(raw, "ergon_cursor", None)
    if cursor is None:
        cursor = raw.ergon_cursor = psycopg.RawCursor(raw)
    raw.prepare_threshold = PREPARED_FROM
    return cursor


def rows_again(statement: str, given: Mapping[str, Any]) -> list[Row]:
    """The same for what may be carried out twice: a connection that the server has dropped is made anew."""
    try:
        return rows(statement, given)
    except LOST:
        if connection.in_atomic_block or not is_postgresql() or connection.is_usable():
            raise
        connection.close()
        return rows(statement, given)


@contextmanager
def lost_connections_closed() -> Iterator[None]:
    """Close a broken connection if a statement fails because the database is away, or takes no changes."""
    try:
        yield
    except DatabaseError as error:
        _close_if_lost(error)
        _raise_if_refused(error)
        raise


class answered_within(time_limit):  # noqa: N801 (read as a verb; a generator would cost more, at every statement)
    """The same, for a database that has so long for its answers; then it counts as away."""

    __slots__ = ()

    def __enter__(self) -> Self:
        super().__enter__()
        _thread.later, _thread.ends_at = [], time.monotonic() + (self.seconds or 0.0)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        later, _thread.later, _thread.ends_at = _thread.later, None, None
        try:
            super().__exit__(kind, error, trace)
            _raise_if_refused(error)
        finally:
            if isinstance(error, DatabaseError):
                _close_if_lost(error)
            for call in later:
                call()


def time_left() -> float | None:
    """The seconds that are left of `answered_within`; None outside of one."""
    ends_at = getattr(_thread, "ends_at", None)
    return None if ends_at is None else max(0.0, ends_at - time.monotonic())


def is_in_transaction() -> bool:
    return bool(connections[DEFAULT_DB_ALIAS].in_atomic_block)


def _close_if_lost(error: DatabaseError) -> None:
    if connection.in_atomic_block:
        return
    if _is_refused(error):
        close_connection()  # after a failover, a new one leads to the server that takes changes
    else:
        connection.close_if_unusable_or_obsolete()


def _raise_if_refused(error: BaseException | None) -> None:
    """A database that takes no changes counts as away, too; to Django its error is an `InternalError`."""
    if error is not None and _is_refused(error):
        raise OperationalError(*error.args) from error


def _is_refused(error: BaseException) -> bool:
    return isinstance(error, DatabaseError) and not isinstance(error, LOST) and refusals.takes_no_changes(error)


def call_untimed(call: Callable[[], None]) -> None:
    """Call this when the time of `answered_within` no longer runs: after its block, or now outside of one."""
    later: list[Callable[[], None]] | None = getattr(_thread, "later", None)
    if later is None:
        call()
    else:
        later.append(call)


def is_connected() -> bool:
    """Whether this thread has a connection; one that was found lost is none. Files are always there."""
    return is_postgresql() and connections[DEFAULT_DB_ALIAS].connection is not None


def refuse_open_transaction() -> None:
    """A call inside the caller's transaction is refused: its rollback would un-spend what was spent.

    The transaction that a test case wraps around each test is none of the caller's; Django marks it, and looks for the
    mark itself where a block must be the outermost (`atomic(durable=True)`).
    """
    database: Any = connections[DEFAULT_DB_ALIAS]
    blocks = database.atomic_blocks
    if blocks and any(not getattr(block, "_from_testcase", False) for block in blocks):
        msg = "a provider must not be called inside transaction.atomic(): call it before or after"
        raise ProviderUsageError(msg)
    # Not by Django's own question, which would connect: whether the database is there is for the call to find out.
    is_connected = database.connection is not None
    commits = database.autocommit if is_connected else database.settings_dict["AUTOCOMMIT"]
    if not blocks and not commits:
        msg = "a provider must not be called without autocommit: call it outside of a transaction"
        raise ProviderUsageError(msg)
