"""Hears of new work, so that a lone transaction need not wait for the next poll."""

import os
import select
import socket
import threading
import time
from contextlib import closing
from typing import Any

import psycopg
import structlog
from django.db import DatabaseError, connection

from engines.core.errors import headline
from engines.core.pacing import GLANCE, WATCH
from engines.transactions.statements.postgresql import BURST, CHANNEL
from engines.worker.poller import Poller
from ergon_site.access.database import pooler

# How long a thread that asks the server takes to notice the end.
NOTICE = 0.5
# How often the log of SQLite is looked at, and how often once it has not changed for a while. And how often the
# database itself is asked, should two commits be so close that its log looks the same.
POLL, SELDOM, QUIET = 0.05, 0.2, 0.5
ASK = 1.0
POOLED_POLL = 0.25
RETRY = 1.0
# A server that has said nothing for so long is asked whether it is still there, and has so long to answer.
SILENCE, ANSWER_WITHIN = 5.0, 3.0

log = structlog.get_logger("ergon.notifier")


class Notifier:
    """A thread that listens: to notifications on PostgreSQL, to changes of the file on SQLite.

    Behind a pooler that shares connections among transactions nobody can listen: then the poller looks more often.
    """

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._watched: dict[int, float] = {}
        self._over = threading.Event()
        self._said = ""
        self._thread: threading.Thread | None = None
        # Ends a wait for the server at once: without it, an idle thread would have to wake up to look.
        self._ended, self._end = socket.socketpair()
        if connection.vendor == "postgresql" and pooler.is_shared(connection):
            poller.longest_wait = POOLED_POLL
            hint = f"behind a transaction pooler LISTEN cannot work: new work is polled for every {POOLED_POLL:g} s"
            log.warning("arrivals_polled", hint=hint)
            return
        watch = self._listen if connection.vendor == "postgresql" else self._look
        self._thread = threading.Thread(target=watch, name="ergon-notifier", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._end.send(b"\0")
        if self._thread is not None:
            self._thread.join(2 * NOTICE)
        self._end.close()
        self._ended.close()

    def _tell_of(self, payload: str) -> None:
        """Anybody may notify this channel: what is no number of a pipeline is not for us."""
        number = payload.removesuffix(BURST)
        if not (number.isascii() and number.isdecimal()):
            return
        if payload != number:
            self._watched[int(number)] = time.monotonic() + WATCH
        self._poller.tell(int(number))

    def _say(self, error: Exception) -> None:
        """Once, not every second: loops poll as well, but a lone transaction waits longer from now on."""
        if self._said != headline(error):
            self._said = headline(error)
            log.error("arrivals_failed", error=self._said, exc_info=error)

    def _listen(self) -> None:
        while not self._over.is_set():
            try:
                given = connection.get_connection_params()
                for name in ("cursor_factory", "context", "prepare_threshold"):
                    given.pop(name, None)
                with closing(psycopg.connect(**given, autocommit=True)) as listening:
                    self._ask(listening, f"LISTEN {CHANNEL}")
                    self._poller.tell_all()  # whatever was told while nobody listened
                    self._hear(listening)
            except Exception as error:  # noqa: BLE001 (told once)
                if not isinstance(error, psycopg.Error):  # loops poll as well, and say that the database is away
                    self._say(error)
                self._over.wait(RETRY)

    def _hear(self, listening: "psycopg.Connection[Any]") -> None:
        """Pass notifications on. A server that is gone without a word looks like one that has nothing to tell."""
        pgconn, heard_at = listening.pgconn, time.monotonic()
        readable = select.poll()
        readable.register(pgconn.socket, select.POLLIN)
        readable.register(self._ended, select.POLLIN)
        while not self._over.is_set():
            if readable.poll(1000 * (GLANCE if self._watched else SILENCE)) and not self._over.is_set():
                heard_at = time.monotonic()
                pgconn.consume_input()
                self._tell_all(pgconn)
            # The single submits of a burst are not notified: its pipeline is woken at every look.
            now = time.monotonic()
            self._watched = {pipeline_id: until for pipeline_id, until in self._watched.items() if now < until}
            for pipeline_id in self._watched:
                self._poller.tell(pipeline_id)
            if time.monotonic() >= heard_at + SILENCE:
                self._ask(listening, "")
                heard_at = time.monotonic()

    def _ask(self, listening: "psycopg.Connection[Any]", statement: str) -> None:
        """Execute a statement within a time limit, which a frozen server would not keep for us."""
        pgconn, until = listening.pgconn, time.monotonic() + ANSWER_WITHIN
        readable = select.poll()
        readable.register(pgconn.socket, select.POLLIN)
        pgconn.send_query(statement.encode())
        while not self._has_answered(pgconn):
            left = until - time.monotonic()
            is_readable = readable.poll(1000 * max(0.0, min(left, NOTICE)))
            if left <= 0 or self._over.is_set():
                msg = f"the server has not answered within {ANSWER_WITHIN:g} s"
                raise psycopg.OperationalError(msg)
            if is_readable:
                pgconn.consume_input()
        self._tell_all(pgconn)

    def _tell_all(self, pgconn: psycopg.pq.abc.PGconn) -> None:
        while notification := pgconn.notifies():
            self._tell_of(notification.extra.decode(errors="replace"))

    def _has_answered(self, pgconn: psycopg.pq.abc.PGconn) -> bool:
        pgconn.flush()
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                return True
            if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
                raise psycopg.OperationalError(result.get_error_message())
        return False

    def _look(self) -> None:
        """A file's version changes with every commit of anybody else. To ask for it costs ten looks at the log."""
        log_file = f"{connection.settings_dict['NAME']}-wal"
        stamp, seen, asked_at, changed_at = (0, 0), None, 0.0, time.monotonic()
        while not self._over.wait(SELDOM if time.monotonic() > changed_at + QUIET else POLL):
            looked = _stamp(log_file)
            if looked == stamp and time.monotonic() < asked_at + ASK:
                continue
            stamp, asked_at = looked, time.monotonic()
            try:
                connection.ensure_connection()
                with connection.wrap_database_errors:
                    # Not by a cursor of Django's, which costs several times as much as the question.
                    version = connection.connection.execute("PRAGMA data_version").fetchone()
                if version != seen:
                    self._poller.hurry()
                    changed_at = time.monotonic()
                seen = version
            except DatabaseError:
                continue
            except Exception as error:  # noqa: BLE001 (told once)
                self._say(error)
        connection.close()


def _stamp(path: str) -> tuple[int, int]:
    """Changes when a file is written to; (0, 0) without a file."""
    try:
        found = os.stat(path)  # noqa: PTH116 (several times a second, for ever)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
