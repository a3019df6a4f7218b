"""Waits for a database that does not answer or takes no writes; logs when it goes away and when it is back."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple, TypeVar

import structlog
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, ProgrammingError

from engines.conf import settings
from engines.core.errors import headline
from ergon_site.access.database.calls import DatabaseTimeoutError, close_connection, time_limit

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
# The statement's own fault: waiting does not help.
FAULTS = (DataError, IntegrityError, ProgrammingError)

T = TypeVar("T")
log = structlog.get_logger("ergon.database")


class Portion:
    """How much is asked of a database at once: half as much after a try that took too long; more after quick ones."""

    def __init__(self, most: int) -> None:
        self._most = self._now = most

    def of(self, wanted: int) -> int:
        return min(wanted, self._now)

    def was_too_much(self, size: int) -> None:
        self._now = max(1, size // 2)

    def was_quick(self) -> None:
        self._now = min(2 * self._now, self._most)


class NoAnswer(NamedTuple):
    """The result of a try that failed: maybe only because the server had closed a connection that nobody used."""

    is_stale: bool


class DatabaseRetry:
    """Repeats what the database could not do until it can, or until somebody gives up.

    Each try has a time limit. `borrow` lends a connection for the length of a try to threads that have none of their
    own.
    """

    def __init__(
        self,
        what: str,
        *,
        limit: float | None = None,
        slow: float = math.inf,
        longest_wait: float = LONGEST_WAIT,
        borrow: Callable[[], AbstractContextManager[None]] = nullcontext,
        on_return: Callable[[], None] = lambda: None,
    ) -> None:
        self._what = what
        self._limit = settings().database_timeout if limit is None else limit
        self._slow, self._longest_wait = slow, longest_wait
        self._borrow, self._on_return = borrow, on_return
        self._given_up = threading.Event()
        self._answering_since = self._began = time.monotonic()
        self._said = ""
        self.is_out = False

    def give_up(self) -> None:
        self._given_up.set()

    @property
    def answering_for(self) -> float:
        """For how many seconds the database has answered every try, and quickly; 0 during an outage."""
        return 0.0 if self.is_out else time.monotonic() - self._answering_since

    def begin_anew(self) -> None:
        """Count the time that the database has answered from now, as after an outage."""
        self._answering_since = time.monotonic()

    def wait_out(self, call: Callable[[], T]) -> T | None:
        """The result of the call once the database answers; None after `give_up`, but not for a stale connection."""
        wait = FIRST_WAIT
        while isinstance(value := self._tried(call), NoAnswer):
            if self._given_up.wait(wait) and not value.is_stale:
                return None
            wait = min(wait * 2, self._longest_wait)
        return value

    @contextmanager
    def fitting(self, portion: Portion, size: int) -> Iterator[None]:
        """A part of a call that asks for so much at once: less the next time, if it takes much of the time limit."""
        asked_at = time.monotonic()
        try:
            yield
        finally:
            taken = time.monotonic() - asked_at
            if taken > self._limit / 2:
                portion.was_too_much(size)
            elif taken < self._limit / 4:
                portion.was_quick()

    def try_once(self, call: Callable[[], T]) -> T | None:
        """The result of the call; None if the database did not answer, which counts as an outage."""
        value = self._tried(call)
        return None if isinstance(value, NoAnswer) else value

    def _tried(self, call: Callable[[], T]) -> T | NoAnswer:
        asked_at = time.monotonic()
        with self._borrow():
            limit = time_limit(self._limit)
            try:
                with limit:
                    value = call()
            except FAULTS:
                raise
            except (DatabaseError, InterfaceError) as error:
                close_connection()
                if not self.is_out:
                    self._began = time.monotonic()
                self.is_out = True
                if self._said != headline(error):  # at first, and when it refuses for another reason
                    self._said = headline(error)
                    hint = "retrying until the database answers and accepts writes"
                    log.error("database_refuses", to=self._what, error=self._said, hint=hint)  # noqa: TRY400 (expected)
                return NoAnswer(is_stale=limit.was_connected and not isinstance(error, DatabaseTimeoutError))
        if time.monotonic() - asked_at > self._slow:
            self._answering_since = time.monotonic()
        if self.is_out:
            self._answering_since, self.is_out, self._said = time.monotonic(), False, ""
            self._on_return()
            log.info("database_answers_again", to=self._what, after=round(time.monotonic() - self._began, 1))
        return value
