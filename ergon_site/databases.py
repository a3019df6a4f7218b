"""How Ergon connects to its database: by an address, or to a file in the data folder; and what it asks of either.

A fact is confirmed after its commit, and a commit counts once the disk has it.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from environ import Env

POSTGRESQL = "django.db.backends.postgresql"
SQLITE = "django.db.backends.sqlite3"
FILE = "ergon.sqlite3"

# Without recursive triggers, INSERT OR REPLACE would pass by those that keep a table append-only.
PRAGMAS = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA recursive_triggers=ON;"
# What waits for the disk here, or for a standby's as well, stays as it is. The others are weaker: without a standby
# "local" would do, but with one it does not wait for it.
WAIT_FOR_THE_DISK = """
SELECT set_config('synchronous_commit', 'on', false)
 WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
"""


def database(url: str) -> dict[str, Any]:
    """The database at an address."""
    parsed = _parse(url)
    match parsed["ENGINE"]:
        case engine if engine == POSTGRESQL:
            return _postgresql(parsed)
        case engine if engine == SQLITE:
            return _sqlite(parsed)
    msg = "must start with postgresql:// or sqlite://"
    raise ValueError(msg)


def in_folder(folder: Path) -> dict[str, Any]:
    """The database in the data folder; its path is no address, and has nothing to escape."""
    return _sqlite({"ENGINE": SQLITE, "NAME": str(folder / FILE)})


def wait_for_the_disk(connection: Any, **_: Any) -> None:
    """Make a new connection confirm only what the disk has, whatever server, database and role have set."""
    if connection.vendor == "postgresql":
        with connection.wrap_database_errors:
            connection.connection.execute(WAIT_FOR_THE_DISK)


def _parse(url: str) -> Mapping[str, Any]:
    # The parser's own messages repeat the whole address, and the address holds a password.
    msg = "must look like postgresql://user:password@host:5432/name or sqlite:////path/file.sqlite3"
    try:
        with warnings.catch_warnings(action="error"):
            parsed: Mapping[str, Any] = Env.db_url_config(url)
    except (ValueError, UserWarning):
        raise ValueError(msg) from None
    if not parsed.get("NAME"):
        raise ValueError(msg)
    return parsed


def _postgresql(parsed: Mapping[str, Any]) -> dict[str, Any]:
    options = {"connect_timeout": 10, **parsed.get("OPTIONS", {})}
    return {**parsed, "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True, "OPTIONS": options}


def _sqlite(parsed: Mapping[str, Any]) -> dict[str, Any]:
    if parsed["NAME"] != ":memory:" and not Path(parsed["NAME"]).absolute().parent.is_dir():
        msg = f"names a file in a folder that does not exist: {Path(parsed['NAME']).parent}"
        raise ValueError(msg)
    options = {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": PRAGMAS}
    return {**parsed, "OPTIONS": options}
