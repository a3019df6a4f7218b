"""Database settings: an address or a file in the data folder, and what is required of either.

A fact is confirmed after its commit, and a commit counts once the disk has it.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from django.db import DEFAULT_DB_ALIAS, OperationalError, connections
from environ import Env

from ergon_site import postgresql_address
from ergon_site.access.database import pooler
from ergon_site.access.database.sqlite_errors import SQLiteErrors

POSTGRESQL = "django.db.backends.postgresql"
SQLITE = "django.db.backends.sqlite3"
FILE = "ergon.sqlite3"

# Without recursive triggers, INSERT OR REPLACE would pass by those that keep a table append-only.
PRAGMAS = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA recursive_triggers=ON;"
# What waits for the disk here, or for a standby's as well, stays as it is. The others are weaker: without a standby
# "local" would do, but with one it does not wait for it.
DURABLE = ("on", "remote_apply")
LOOK = "SELECT pg_backend_pid(), current_setting('synchronous_commit')"
WAIT_FOR_THE_DISK = "SET synchronous_commit = on"


def database(url: str) -> dict[str, Any]:
    # The parsers' own messages repeat the whole address, and the address holds a password.
    msg = (
        "must look like postgresql://user:password@host:5432/name or sqlite:////path/file.sqlite3, "
        "with special characters of the password percent-encoded"
    )
    if url.partition("://")[0] in postgresql_address.SCHEMES:
        try:
            parsed = postgresql_address.parse(url)
        except postgresql_address.AddressError:
            raise ValueError(msg) from None
        return {"ENGINE": POSTGRESQL, **parsed, "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
    try:
        with warnings.catch_warnings(action="error"):
            parsed = Env.db_url_config(url)
    except (ValueError, UserWarning):
        raise ValueError(msg) from None
    if not parsed.get("NAME"):
        raise ValueError(msg)
    if parsed["ENGINE"] != SQLITE:
        msg = "must start with postgresql:// or sqlite://"
        raise ValueError(msg)
    return _sqlite(parsed)


def in_folder(folder: Path) -> dict[str, Any]:
    """The database in the data folder; its path is no address, and has nothing to escape."""
    return _sqlite({"ENGINE": SQLITE, "NAME": str(folder / FILE)})


def check_new_connection(connection: Any, **_: Any) -> None:
    """Make a new connection confirm only what the disk has, whatever server, database and role have set.

    And notice a pooler. Behind one that shares connections among transactions nothing can be set for a session, so a
    weaker setting is refused there. On SQLite, a connection learns to tell wrong statements from what passes.
    """
    if connection.vendor != "postgresql":
        _opened[connection] = _file(connection)
        connection.wrap_database_errors = SQLiteErrors(connection)
        return
    with connection.wrap_database_errors:
        process, commit = connection.connection.execute(LOOK).fetchone()
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


def _sqlite(parsed: Mapping[str, Any]) -> dict[str, Any]:
    if parsed["NAME"] != ":memory:" and not Path(parsed["NAME"]).absolute().parent.is_dir():
        msg = f"names a file in a folder that does not exist: {Path(parsed['NAME']).parent}"
        raise ValueError(msg)
    options = {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": PRAGMAS}
    # Kept: the last connection to be closed writes the whole log into the file and removes it, which costs a request
    # several times what it does itself.
    return {**parsed, "OPTIONS": options, "CONN_MAX_AGE": None}
