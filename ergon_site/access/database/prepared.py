"""Prepared statements by libpq itself, for what is asked so often that a cursor's Python is most of the client's time.

psycopg does not know what is prepared here. After a rollback it deallocates all that the session has, so a statement
that the server does not know is prepared again, once.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import DataError, OperationalError, errors
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus

from ergon_site.access.database.parameters import numbered

# Of each connection, the names of what was prepared on it; the server may have forgotten since.
_prepared: WeakKeyDictionary[Any, set[bytes]] = WeakKeyDictionary()


def rows(raw: Any, statement: str, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows that a statement returns, as psycopg reads them."""
    result = execute(raw, statement, given)
    if not result.ntuples:
        return []
    reader = Transformer(raw)
    reader.set_pgresult(result)
    return reader.load_rows(0, result.ntuples, tuple)


def execute(raw: Any, statement: str, given: Mapping[str, Any]) -> Any:
    """The result of a statement on a connection that is in autocommit. The server knows the types of its parameters."""
    name, text, order = _named(statement)
    values = [_written(given[one]) for one in order]
    known = _prepared.setdefault(raw, set())
    if name in known:
        try:
            return _checked(raw, raw.pgconn.exec_prepared(name, values))
        except errors.InvalidSqlStatementName:
            known.clear()
    _checked(raw, raw.pgconn.prepare(name, text))
    known.add(name)
    return _checked(raw, raw.pgconn.exec_prepared(name, values))


@cache
def _named(statement: str) -> tuple[bytes, bytes, tuple[str, ...]]:
    """Its name on the server, its text with numbers for names, and the names in the order of the numbers."""
    return (f"ergon_{abs(hash(statement)):x}".encode(), *numbered(statement))


def _written(value: Any) -> bytes | None:
    if value is None:
        return None
    text = str(value).encode()
    if b"\0" in text:  # where libpq would end it
        msg = "PostgreSQL text fields cannot contain NUL (0x00) bytes"
        raise DataError(msg)
    return text


def _checked(raw: Any, result: Any) -> Any:
    if raw.pgconn.status == ConnStatus.BAD:
        msg = f"the connection is lost: {raw.pgconn.get_error_message()}"
        raise OperationalError(msg)
    if result.status not in {ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK}:
        raise errors.error_from_result(result, encoding=raw.info.encoding)
    return result
