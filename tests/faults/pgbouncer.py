"""PgBouncer in front of the test's PostgreSQL, from the system's packages."""

import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from ergon_site.embedded.server import Server, running

MAX_PREPARED_STATEMENTS = (1, 21)  # the first version that knows prepared statements


def require_pgbouncer() -> None:
    """Skip a test where there is no PgBouncer to start; in the build, which must run everything, it then fails."""
    if _program() is None and os.environ.get("CI") != "true":
        pytest.skip("needs PgBouncer: install the package pgbouncer")


def _program() -> str | None:
    """Debian puts it where only root looks."""
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


def version() -> tuple[int, ...]:
    told = subprocess.run([_program() or "pgbouncer", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"PgBouncer (\d+)\.(\d+)", told)
    assert found, told
    return tuple(map(int, found.groups()))


@contextmanager
def pgbouncer(folder: Path, database_url: str, **settings: Any) -> Iterator[str]:
    """A PgBouncer with a pool for the database, as the database's address behind it.

    Few server connections, used in turn: a client gets another one for nearly every transaction.
    """
    parts = urlsplit(database_url)
    assert parts.username
    assert parts.password
    home = folder / f"pgbouncer-{secrets.token_hex(4)}"
    home.mkdir()
    users, configuration = home / "users", home / "pgbouncer.ini"
    users.write_text(f'"{parts.username}" "{parts.password}"\n')
    pool = {
        "listen_addr": "127.0.0.1",
        "unix_socket_dir": "",
        "auth_type": "scram-sha-256",
        "auth_file": users,
        "pool_mode": "transaction",
        "default_pool_size": 3,
        "server_round_robin": 1,
        **settings,
    }
    options = "".join(f"{name} = {value}\n" for name, value in pool.items())

    def command(port: int) -> list[str]:
        target = f"* = host={parts.hostname} port={parts.port}\n"
        configuration.write_text(f"[databases]\n{target}[pgbouncer]\n{options}listen_port = {port}\n")
        return [_program() or "pgbouncer", "-q", str(configuration)]

    server = Server(
        home=home,
        command=command,
        address=lambda port: urlunsplit(
            parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}", query="")
        ),
        ping=lambda address: psycopg.connect(address).close(),
        not_yet=(psycopg.OperationalError,),
        process=_unprivileged(home),
        stop_signal=signal.SIGINT,
    )
    with running(server) as address:
        yield address


def _unprivileged(home: Path) -> dict[str, Any]:
    """PgBouncer refuses to run as root: then it runs as nobody."""
    if os.geteuid() != 0:
        return {"cwd": home}
    nobody = pwd.getpwnam("nobody")
    for path in (home, *home.iterdir()):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return {"cwd": home, "user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
