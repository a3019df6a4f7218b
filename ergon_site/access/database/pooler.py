"""Prepared statements, and connection poolers between Ergon and PostgreSQL, which lose them.

One that shares server connections among transactions, such as PgBouncer with `pool_mode = transaction`, gives each
transaction another session: prepared statements, `SET`, `LISTEN` and server-side cursors do not last. An address
declares it by `?pooler=transaction`.

What is asked so often that a cursor's Python is most of the client's time is sent by libpq itself. psycopg does not
know what is prepared so. After a rollback it deallocates all that the session has, so a statement that the server does
not know is prepared again, once.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import cache
from secrets import token_hex
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError
from psycopg import DataError, OperationalError as LostConnectionError, errors
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

from ergon_site.access.database.calls import forget_broken
from ergon_site.access.database.parameters import numbered

TRANSACTION, SESSION = "transaction", "session"
UNDECLARED = (
    "the database is behind a transaction pooler: add ?pooler=transaction to DATABASE_URL, "
    "or ?pooler=session if the pooler keeps a connection for each client; until then Ergon works as with transaction"
)
NOT_PREPARED = (
    "prepared=1 needs PgBouncer 1.21 or newer with max_prepared_statements above 0: set it, or leave prepared=1 out"
)
# Django's own name for it: then it opens no server-side cursors.
_SHARED = "DISABLE_SERVER_SIDE_CURSORS"
_POOLER, _PREPARED = "ERGON_POOLER", "ERGON_PREPARED"

# Of each connection, the names of what was prepared on it; the server may have forgotten since.
_prepared: WeakKeyDictionary[Any, set[bytes]] = WeakKeyDictionary()

T = TypeVar("T")
log = structlog.get_logger("ergon.database")


def declared(kind: str | None, *, is_prepared: bool = False) -> dict[str, Any]:
    """Settings of a database whose address declares a pooler; None if it declares none."""
    return {_POOLER: kind, _PREPARED: is_prepared, _SHARED: kind == TRANSACTION}


def is_shared(wrapper: Any) -> bool:
    """Whether each transaction may run in another session of the server."""
    return bool(wrapper.settings_dict.get(_SHARED))


def may_prepare(wrapper: Any) -> bool:
    """Whether prepared statements last."""
    return not is_shared(wrapper) or bool(wrapper.settings_dict.get(_PREPARED))


def is_undeclared(wrapper: Any) -> bool:
    """Whether there is a pooler of which the address says nothing."""
    return is_shared(wrapper) and wrapper.settings_dict.get(_POOLER) is None


def is_declared_wrongly(wrapper: Any) -> bool:
    """Whether a pooler that was declared to keep a session for each client shares them among transactions.

    Two clients hold one each and give them back. One that shares gives a client next what was given back last, or what
    has waited longest: in either case somebody has another one by the third time of asking. Lost prepared statements
    would not show it: PgBouncer knows them from 1.21 on.
    """
    if wrapper.settings_dict.get(_POOLER) != SESSION:
        return False
    with ExitStack() as stack:
        given = wrapper.get_connection_params()
        first, second = (stack.enter_context(closing(wrapper.get_new_connection(given))) for _ in range(2))
        before = {one: _server_process(one) for one in (first, second)}
        for one in (first, second):
            one.rollback()
        return any(_server_process(one, ends=True) != before[one] for one in (first, second, second))


def _server_process(raw: Any, *, ends: bool = False) -> int:
    """The one that serves a transaction, which it leaves open unless told to end it."""
    process: int = raw.execute("SELECT pg_backend_pid()").fetchone()[0]
    if ends:
        raw.rollback()
    return process


def notice(wrapper: Any, server_process: int) -> None:
    """Look at a new connection, before its first statement: is a pooler there, and is it the one that was declared?

    A pooler makes up the process id that a client is told when it connects; the server tells its own. One that passes
    names of prepared statements on is refused: two clients would share what they name alike.
    """
    settings = wrapper.settings_dict
    if not settings.get(_PREPARED):
        if settings.get(_POOLER) is None and server_process != wrapper.connection.info.backend_pid:
            _treat_as_shared(wrapper)
        return
    raw, name = wrapper.connection, f"ergon_{token_hex(8)}"
    with raw.transaction():
        raw.pgconn.prepare(name.encode(), b"SELECT 1")
        is_passed_on = raw.execute("SELECT 1 FROM pg_prepared_statements WHERE name = %s", [name]).fetchone()
        if is_passed_on:
            raw.execute(f"DEALLOCATE {name}")
    if is_passed_on:
        wrapper.close()
        raise OperationalError(NOT_PREPARED)


def carry_out(wrapper: Any, prepared: Callable[[], T], plain: Callable[[], T]) -> T:
    """Run a prepared statement, once more if the server has forgotten it, and plain where prepared ones do not last.

    psycopg forgets by itself after a rollback and a plain DISCARD or DEALLOCATE. What is lost behind its back, by a
    pooler or in a function, is found by the server's refusal, before the statement did anything. A session that
    somebody has cleared may lack its settings as well, so it is replaced. What is lost twice in a row, is lost by a
    pooler.
    """
    try:
        return _carry_out(wrapper, prepared, plain)
    except (DatabaseError, InterfaceError):
        forget_broken(wrapper)
        raise


def _carry_out(wrapper: Any, prepared: Callable[[], T], plain: Callable[[], T]) -> T:
    if not may_prepare(wrapper):
        return plain()
    try:
        return prepared()
    except DatabaseError as error:
        _raise_unless_lost(wrapper, error)
    if not wrapper.in_atomic_block:
        wrapper.close()
    try:
        return prepared()
    except DatabaseError as error:
        _raise_unless_lost(wrapper, error)
        _treat_as_shared(wrapper)
    return plain()


def is_lost(error: BaseException | None) -> bool:
    """Whether the server says that a prepared statement is gone, or there already under its name."""
    return isinstance(error, errors.DuplicatePreparedStatement | errors.InvalidSqlStatementName)


def _raise_unless_lost(wrapper: Any, error: DatabaseError) -> None:
    if not is_lost(error.__cause__):
        raise error
    # Of a transaction that has failed nothing can be carried out again; one that has a savepoint before it can.
    if wrapper.connection.info.transaction_status == TransactionStatus.INERROR:
        _treat_as_shared(wrapper)
        raise OperationalError(UNDECLARED) from error


def _treat_as_shared(wrapper: Any) -> None:
    wrapper.settings_dict[_SHARED] = True
    wrapper.settings_dict[_PREPARED] = False
    if UNDECLARED not in _said:  # once in a process: each connection finds it out
        _said.add(UNDECLARED)
        log.warning("pooler_undeclared", hint=UNDECLARED)


def prepared_rows(raw: Any, statement: str, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows that a statement returns, as psycopg reads them."""
    result = execute_prepared(raw, statement, given)
    if not result.ntuples:
        return []
    # One for each connection, as a cursor has: it remembers how each type is read.
    reader = getattr(raw, "ergon_reader", None)
    if reader is None:
        reader = raw.ergon_reader = Transformer(raw)
    reader.set_pgresult(result)
    return reader.load_rows(0, result.ntuples, tuple)


def execute_prepared(raw: Any, statement: str, given: Mapping[str, Any]) -> Any:
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
        raise LostConnectionError(msg)
    if result.status not in {ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK}:
        raise errors.error_from_result(result, encoding=raw.info.encoding)
    return result


_said: set[str] = set()
