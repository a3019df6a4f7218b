"""SQLite's errors, told apart as those of PostgreSQL are.

To Python an error of SQLite that is none of the data is an `OperationalError`: a full disk, and a column that does not
exist. Whoever waits until a database is back would wait for the second for ever, and hide it.
"""

import sqlite3
from types import TracebackType
from typing import Any

from django.db import OperationalError, ProgrammingError
from django.db.utils import DatabaseErrorWrapper

# The last byte is the kind of an error; the others say more of it.
KIND = 0xFF


class SQLiteErrors(DatabaseErrorWrapper):
    """Raises Django's errors for SQLite's; one of the statement is a `ProgrammingError`.

    It is installed on each connection, so that every `except OperationalError` means the database.
    """

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, traceback)
        except OperationalError as raised:
            if not is_of_statement(error):
                raise
            raise ProgrammingError(*raised.args).with_traceback(traceback) from error


def is_of_statement(error: Any) -> bool:
    """Whether the statement is wrong: it does not fit the schema, or is no SQL."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & KIND == sqlite3.SQLITE_ERROR
