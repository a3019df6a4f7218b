"""A database that does not answer or takes no writes is waited for: a line when that begins, a line when it ends."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, ProgrammingError, connection

from engines.core.errors import headline

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
# The statement's own fault: waiting does not help.
FAULTS = (DataError, IntegrityError, ProgrammingError)

T = TypeVar("T")
log = structlog.get_logger("ergon.database")


class Outage:
    """Repeats what the database could not do until it can, or until somebody gives up."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._given_up = threading.Event()

    def give_up(self) -> None:
        self._given_up.set()

    def wait_out(self, call: Callable[[], T]) -> T | None:
        """What the call returns once the database lets it; None if somebody gave up first."""
        wait, began, said = FIRST_WAIT, None, ""
        while True:
            try:
                value = call()
            except FAULTS:
                raise
            except (DatabaseError, InterfaceError) as error:
                began = began or time.monotonic()
                if said != headline(error):  # at first, and when it refuses for another reason
                    said = headline(error)
                    hint = "it is tried again until the database answers and takes writes"
                    log.error("database_refuses", to=self._what, error=said, hint=hint)  # noqa: TRY400 (one line)
                self.close_connection()
            else:
                if began is not None:
                    log.info("database_answers_again", to=self._what, after=round(time.monotonic() - began, 1))
                return value
            if self._given_up.wait(wait):
                return None
            wait = min(wait * 2, LONGEST_WAIT)

    def close_connection(self) -> None:
        """The connection of this thread is not to be trusted any more."""
        try:
            connection.close()
        except (DatabaseError, InterfaceError):
            connection.connection = None
