"""What is required of every connection to the database, whoever has made its settings.

A fact is confirmed after its commit, and a commit counts once the disk has it.
"""

from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from django.db import DEFAULT_DB_ALIAS, OperationalError, connections

from ergon_site.access.database import clock, pooler
from ergon_site.access.database.calls import close_if_broken
from ergon_site.access.database.sqlite_errors import SQLiteErrors

# Without recursive triggers, INSERT OR REPLACE would pass by those that keep a table append-only.
PRAGMAS = "PRAGMA synchronous=FULL; PRAGMA recursive_triggers=ON;"
# What waits for the disk here, or for a standby's as well, stays as it is. The others are weaker: without a standby
# "local" would do, but with one it does not wait for it.
DURABLE = ("on", "remote_apply")
LOOK = "SELECT pg_backend_pid(), current_setting('synchronous_commit'), clock_timestamp()"
WAIT_FOR_THE_DISK = "SET synchronous_commit = on"


def check_new_connection(connection: Any, **_: Any) -> None:
    """Make a new connection confirm only what the disk has, whatever server, database and role have set.

    And notice a pooler. Behind one that shares connections among transactions nothing can be set for a session, so a
    weaker setting is refused there. On SQLite, a connection learns to tell wrong statements from what passes. A project
    that has set none of this for its database has it nevertheless; its other databases are its own.
    """
    if connection.alias != DEFAULT_DB_ALIAS:
        return
    if connection.vendor == "sqlite":
        with connection.wrap_database_errors:
            connection.connection.executescript(PRAGMAS)
        # A transaction that reads before it writes would fail at once beside another one, instead of waiting for it.
        connection.transaction_mode = connection.transaction_mode or "IMMEDIATE"
        _opened[connection] = _file(connection)
        connection.wrap_database_errors = SQLiteErrors(connection)
    if connection.vendor != "postgresql":
        return
    if close_if_broken not in connection.execute_wrappers:
        connection.execute_wrappers.append(close_if_broken)
    with connection.wrap_database_errors:
        process, commit, now = connection.connection.execute(LOOK).fetchone()
        clock.note(now)
        pooler.notice(connection, process)
        if commit in DURABLE:
            return
        if not pooler.is_shared(connection):
            connection.connection.execute(WAIT_FOR_THE_DISK)
            return
    connection.close()
    msg = (
        f"synchronous_commit is {commit} for this role, and a pooler keeps no setting: "
        f"run ALTER ROLE {connection.settings_dict['USER']} SET synchronous_commit = on, then RECONNECT in the pooler"
    )
    raise OperationalError(msg)


def close_if_replaced(**_: Any) -> None:
    """Leave a SQLite file that has been removed or replaced: what is written into it is written for nobody."""
    connection = connections[DEFAULT_DB_ALIAS]
    is_kept = connection.vendor == "sqlite" and connection.connection is not None
    if is_kept and not connection.in_atomic_block and _file(connection) != _opened.get(connection):
        connection.close()


def _file(connection: Any) -> tuple[int, int] | None:
    """Which file the name of a database leads to; None if there is none, as in memory."""
    try:
        found = Path(connection.settings_dict["NAME"]).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


_opened: WeakKeyDictionary[Any, tuple[int, int] | None] = WeakKeyDictionary()
