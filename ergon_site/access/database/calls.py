"""Calls of the database that end: within a time limit, and again after a conflict.

A server that is frozen, or behind a network that swallows packets, keeps no time limit of its own. A watcher thread
first asks it to cancel the statement, and then closes the socket under it, so that the waiting call fails.

PostgreSQL ends one of the transactions that wait for each other, and nothing of it is left: run again, it succeeds.
Verbs lock rows in one order, so this is rare ("Lock order" in CONTRIBUTING.md); callers'
transactions and the order of unique indexes are beyond that order.
"""

import math
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, Self, TypeVar

import structlog
from django.db import (
    DatabaseError,
    InterfaceError,
    InternalError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.db.utils import DEFAULT_DB_ALIAS
from psycopg.pq import TransactionStatus

# What the server ends without leaving anything of it.
SERIALIZATION_FAILURE, DEADLOCK_DETECTED, IDLE_FOR_TOO_LONG = "40001", "40P01", "25P03"
ENDED = {SERIALIZATION_FAILURE, DEADLOCK_DETECTED, IDLE_FOR_TOO_LONG}
MOST_TRIES = 5
LONGEST_FIRST_WAIT = 0.02
LOOK_EVERY = 0.2
# Behind a pooler, too: it holds for one transaction.
END_IF_IDLE = "SET LOCAL idle_in_transaction_session_timeout = '5s'"
# How long a statement may take to end once the server was asked to cancel it.
CANCEL_WITHIN = 1.0

P = ParamSpec("P")
T = TypeVar("T")
log = structlog.get_logger("ergon.database")


def retry_conflicts(verb: Callable[P, T]) -> Callable[P, T]:
    """Run the verb again if it loses a conflict, a few times; inside the caller's transaction, only once.

    The verb is one database transaction (`@retry_conflicts` stands above `@short_transaction()`) or one statement, and
    its arguments can be read twice. A part of the caller's transaction cannot be repeated without the rest of it.
    """

    @wraps(verb)
    def run(*arguments: P.args, **options: P.kwargs) -> T:
        for failures in range(1, MOST_TRIES):
            try:
                return verb(*arguments, **options)
            except (OperationalError, InternalError) as error:
                is_ended = getattr(error.__cause__, "sqlstate", None) in ENDED
                if not (is_ended and _is_outermost()):
                    raise
                log.info("transaction_retried", verb=verb.__qualname__, error=str(error).partition("\n")[0])
            # By chance, so that the same two do not meet again.
            time.sleep(random.uniform(0, LONGEST_FIRST_WAIT * 2**failures))  # noqa: S311 (no secret)
        return verb(*arguments, **options)

    return run


@contextmanager
def short_transaction(**options: Any) -> Iterator[None]:
    """A database transaction of our own, with nothing in it that could take long but statements.

    Others wait for the rows that it has locked: if this process stands still in it, frozen or gone with its machine,
    the server ends it before they give up. Inside the caller's transaction, which may take its time, it does not.
    """
    is_ours = _is_outermost()
    with transaction.atomic(**options):
        wrapper: Any = connections[DEFAULT_DB_ALIAS]
        if is_ours and wrapper.vendor == "postgresql":
            with wrapper.wrap_database_errors:
                wrapper.connection.execute(END_IF_IDLE)
        yield


def _is_outermost() -> bool:
    """Whether a transaction that begins here is the outermost one. Not by Django's own question, which connects."""
    # Looked up once: Django's `connection` is a stand-in that looks for the thread's own at every word.
    wrapper: Any = connections[DEFAULT_DB_ALIAS]
    commits = wrapper.settings_dict["AUTOCOMMIT"] if wrapper.connection is None else wrapper.autocommit
    return bool(commits) and not wrapper.in_atomic_block


class DatabaseTimeoutError(OperationalError):
    """The database has not answered within the time limit; whether the statement was executed is unknown."""

    @classmethod
    def after(cls, seconds: float) -> "DatabaseTimeoutError":
        limit = "in time" if seconds == math.inf else f"within {seconds:g} s"
        return cls(f"the database has not answered {limit}; whether the statement was executed is unknown")


class time_limit:  # noqa: N801 (read as a verb; a generator would cost several times as much, at every statement)
    """Bound everything that a block asks of PostgreSQL on this thread's connection, or on another one of its own.

    SQLite has no connection that could fall silent; its own busy timeout bounds the wait for another writer.
    """

    __slots__ = ("_call", "_wrapper", "seconds", "was_connected")

    def __init__(self, seconds: float | None, wrapper: Any = None) -> None:
        self.seconds = seconds
        self._wrapper = wrapper
        self.was_connected = False  # to PostgreSQL, when the block began
        self._call: _Call | None = None

    def __enter__(self) -> Self:
        wrapper: Any = self._wrapper or connections[DEFAULT_DB_ALIAS]
        if self.seconds is not None and wrapper.vendor == "postgresql":
            self.was_connected = wrapper.connection is not None
            self._call = _watcher.begin(wrapper, self.seconds)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        call = self._call
        if call is None:
            return
        _watcher.end(call)
        if not call.is_expired:
            return
        has_another = call.cut not in {None, call.wrapper.connection}
        # A request to cancel that comes late must not hit the next statement.
        if call.wrapper.in_atomic_block:
            call.wait_for_cancel()
        else:
            close_connection(call.wrapper)
        # To PostgreSQL a cancelled wait for a synchronous standby is a success with a warning: the standby may lack it.
        if isinstance(error, DatabaseError | InterfaceError) or (error is None and not has_another):
            raise DatabaseTimeoutError.after(call.seconds) from error

    @property
    def waits_for(self) -> Any:
        """The connection, psycopg's, from which the block wants an answer now; None after a cut. For another thread."""
        call = self._call
        asked = None if call is None or call.wrapper.connection is call.cut else call.wrapper.connection
        return None if asked is None or asked.info.transaction_status != TransactionStatus.ACTIVE else asked

    def cut(self) -> None:
        """Let its connection fail now. For another thread, which knows that the database answers nobody."""
        if self._call is not None:
            _watcher.cut(self._call)


def close_connection(wrapper: Any = connection) -> None:
    """Close a connection that is not to be trusted any more, by default the one of this thread."""
    try:
        wrapper.close()
    except (DatabaseError, InterfaceError):
        wrapper.connection = None


def close_if_broken(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:  # noqa: FBT001
    """Let the next statement connect anew after one that found its connection broken.

    Django does this between requests. A thread of an async handler (`sync_to_async`, `to_thread`) knows none, and would
    have the same dead connection for ever. A transaction's own end does it for all of its statements.
    """
    try:
        return execute(sql, params, many, context)
    except (OperationalError, InterfaceError):
        forget_broken(context["connection"])
        raise


def forget_broken(wrapper: Any) -> None:
    """Close a connection that is found broken outside of a transaction. What asks it in its own words must say so."""
    # A file has no connection that breaks.
    if wrapper.vendor == "postgresql" and not wrapper.in_atomic_block and getattr(wrapper.connection, "closed", False):
        wrapper.close()


@dataclass(eq=False, slots=True)
class _Call:
    """A database call that is under way."""

    wrapper: Any
    seconds: float
    ends_at: float
    is_expired: bool = False
    cut: Any = None  # the connection whose server answers nobody
    _cancelling: threading.Thread | None = None

    def expire(self) -> None:
        """Ask the server to cancel the statement; where there is no thread for it, the socket is closed soon anyway."""
        self.is_expired = True
        arguments = [self.wrapper.connection]
        self._cancelling = started(threading.Thread(target=_cancel, args=arguments, name="ergon-cancel", daemon=True))

    def wait_for_cancel(self) -> None:
        if self._cancelling is not None:
            self._cancelling.join(2 * CANCEL_WITHIN)


class _Watcher:
    """A thread that watches all calls of the process; it rests while there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: set[_Call] = set()
        self._has_calls = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, wrapper: Any, seconds: float) -> _Call:
        call = _Call(wrapper, seconds, time.monotonic() + seconds)
        with self._lock:
            self._calls.add(call)
            if self._thread is None:
                self._thread = started(threading.Thread(target=self._watch, name="ergon-time-limits", daemon=True))
        if not self._has_calls.is_set():
            self._has_calls.set()
        return call

    def end(self, call: _Call) -> None:
        with self._lock:
            self._calls.discard(call)

    def cut(self, call: _Call) -> None:
        with self._lock:
            if call.wrapper.connection is not None:
                call.cut, call.ends_at = call.wrapper.connection, time.monotonic()

    def _watch(self) -> None:
        rest = threading.Event()
        while not rest.wait(LOOK_EVERY):
            self._has_calls.wait()
            with self._lock:
                if not self._calls:
                    self._has_calls.clear()
                now = time.monotonic()
                for call in self._calls:
                    if now >= call.ends_at:
                        self._expire(call, now)

    def _expire(self, call: _Call, now: float) -> None:
        """Held by the lock, so that the connection is still the one of this call."""
        connection = call.wrapper.connection
        if connection is None:  # it is being opened, which has a time limit of its own
            call.ends_at = now + call.seconds
        elif call.cut not in {None, connection}:  # it goes on with another one
            call.ends_at = math.inf
        elif not call.is_expired:
            call.expire()
        elif now >= call.ends_at + CANCEL_WITHIN:
            with suppress(Exception), socket.socket(fileno=os.dup(connection.pgconn.socket)) as copy:
                copy.shutdown(socket.SHUT_RDWR)


def started(thread: threading.Thread) -> threading.Thread | None:
    """The thread, started; None if the machine has no more at present. The next call tries again."""
    try:
        thread.start()
    except RuntimeError as error:
        log.warning("no_thread", thread=thread.name, error=str(error))
        return None
    return thread


def _cancel(connection: Any) -> None:
    with suppress(Exception):  # a server that does not answer cannot be asked this either
        connection.cancel_safe(timeout=CANCEL_WITHIN)


_watcher = _Watcher()


def _start_anew() -> None:
    global _watcher  # noqa: PLW0603 (a forked process has none of its parent's threads, and perhaps a held lock)
    _watcher = _Watcher()


os.register_at_fork(after_in_child=_start_anew)
