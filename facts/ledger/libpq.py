"""A statement carried out by libpq itself.

Where dozens of threads wait for one that writes for all, each microsecond of Python in that one is everybody's, and a
cursor's are most of them. Only for connections in autocommit that nobody else uses meanwhile.

psycopg does not know the statements that are prepared here. After a rollback it deallocates all that the session has,
so a statement that the server does not know is prepared again, once.
"""

import re
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import Connection, OperationalError, errors
from psycopg.pq import ConnStatus, ExecStatus

_NAMED = re.compile(r"%\((\w+)\)s")
_prepared: WeakKeyDictionary[Any, set[bytes]] = WeakKeyDictionary()


def number(connection: "Connection[Any]", statement: str, given: dict[str, Any]) -> int | None:
    """The first column of the first row; None if there is none."""
    name, text, order = _numbered(statement)
    values = [str(given[one]).encode() for one in order]
    known = _prepared.setdefault(connection, set())
    try:
        result = _execute(connection, name, text, values)
    except errors.InvalidSqlStatementName:
        known.clear()
        result = _execute(connection, name, text, values)
    value = result.get_value(0, 0) if result.ntuples else None
    return None if value is None else int(value)


def _execute(connection: "Connection[Any]", name: bytes, text: bytes, values: list[bytes]) -> Any:
    libpq, known = connection.pgconn, _prepared[connection]
    if name not in known:
        _check(connection, libpq.prepare(name, text))
        known.add(name)
    result = libpq.exec_prepared(name, values)
    _check(connection, result)
    return result


@cache
def _numbered(statement: str) -> tuple[bytes, bytes, list[str]]:
    """Its name on the server, its text with numbers for names, and the names in the order of the numbers."""
    order = list(dict.fromkeys(_NAMED.findall(statement)))
    text = _NAMED.sub(lambda found: f"${order.index(found[1]) + 1}", statement)
    return f"ergon_{abs(hash(statement)):x}".encode(), text.encode(), order


def _check(connection: "Connection[Any]", result: Any) -> None:
    if connection.pgconn.status == ConnStatus.BAD:
        msg = f"the connection is lost: {connection.pgconn.get_error_message()}"
        raise OperationalError(msg)
    if result.status not in {ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK}:
        raise errors.error_from_result(result, encoding=connection.info.encoding)
