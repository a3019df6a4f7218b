"""Database settings: an address, or a file in the data folder."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from environ import Env

from ergon_site import postgresql_address

POSTGRESQL = "django.db.backends.postgresql"
SQLITE = "django.db.backends.sqlite3"
FILE = "ergon.sqlite3"

# Without recursive triggers, INSERT OR REPLACE would pass by those that keep a table append-only.
PRAGMAS = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA recursive_triggers=ON;"


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


def _sqlite(parsed: Mapping[str, Any]) -> dict[str, Any]:
    if parsed["NAME"] != ":memory:" and not Path(parsed["NAME"]).absolute().parent.is_dir():
        msg = f"names a file in a folder that does not exist: {Path(parsed['NAME']).parent}"
        raise ValueError(msg)
    options = {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": PRAGMAS}
    # Kept: the last connection to be closed writes the whole log into the file and removes it, which costs a request
    # several times what it does itself.
    return {**parsed, "OPTIONS": options, "CONN_MAX_AGE": None}
