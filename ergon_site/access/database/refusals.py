"""Errors of a database that is away or takes no changes, told from those of a statement."""

import sqlite3

from django.db import InterfaceError, OperationalError

from ergon_site.access.database.sqlite_errors import KIND

# PostgreSQL: a read-only transaction, a full disk.
NO_CHANGES = {"25006", "53100"}
NO_CHANGES_IN_SQLITE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL}


def takes_no_changes(error: BaseException) -> bool:
    """Whether it comes from a database that is read-only or full, and can still be read."""
    one: BaseException | None = error
    while one is not None:
        code: int | None = getattr(one, "sqlite_errorcode", None)
        if getattr(one, "sqlstate", None) in NO_CHANGES or (code is not None and code & KIND in NO_CHANGES_IN_SQLITE):
            return True
        one = one.__cause__ or one.__context__
    return False


def is_unavailable(error: BaseException) -> bool:
    """Whether it is no fault of the request: the same one may succeed later."""
    return isinstance(error, OperationalError | InterfaceError) or takes_no_changes(error)
