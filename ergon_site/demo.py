"""`make demo`: a whole Ergon on this machine, with nothing to install or configure; Ctrl-C ends all of it."""

import argparse
import json
import os
import signal
import socket
import sys
from contextlib import closing
from pathlib import Path

import django
from django.core.management import call_command
from django.db import connections
from honcho.manager import Manager

from ergon_site import embedded

BASE_DIR = Path(__file__).resolve().parent.parent
LOGIN = {"username": "admin", "password": "demo"}

REPORTS = ["python", "-m", "engines.executors", "--handlers", "ergon_site.demo_handlers"]
PROCESSES = {
    "web": "granian --interface wsgi --host 127.0.0.1 --port {port} --no-ws --log-level error"
    " --blocking-threads 8 --backpressure 64 ergon_site.wsgi:application",
    "worker": "celery --quiet -A ergon_site worker --concurrency 1 --loglevel WARNING"
    " --without-gossip --without-mingle",
    "consumer": "python manage.py consume",
    "producer": "python manage.py produce notifications",
    "forwarder": "python manage.py forward",
    "upkeep": "python manage.py maintain",
}


def main() -> None:
    port = _arguments().port
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(run(port))
    except embedded.ServerError as error:
        sys.exit(f"ergon: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def run(port: int) -> int:
    """Start the servers, prepare the database, and keep every process going until somebody stops them."""
    _refuse_taken(port)
    # A folder for each port, so that two demos never share a database.
    folder = BASE_DIR / "var" / "demo" / str(port)
    print("Ergon: starting PostgreSQL and Valkey …", flush=True)
    with embedded.postgres(folder) as database, embedded.valkey(folder) as broker:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "ergon_site.settings",
            "ERGON_DATA_DIR": str(folder),
            "DATABASE_URL": database,
            "CELERY_BROKER_URL": broker,
            "ERGON_ZONE": "Plant A",
            "ERGON_TASKS": "ergon_site.demo_tasks",
            "ERGON_EXECUTORS": json.dumps({"reports": {"command": REPORTS, "pool_size": 1}}),
            "PYTHONWARNINGS": "ignore",
        }
        prepare()
        return supervise(port)


def prepare() -> None:
    """Bring the database up to date and fill it once."""
    django.setup()
    from django.contrib.auth.models import User

    from ergon_site import demo_data

    call_command("migrate", verbosity=0)
    if not User.objects.exists():
        User.objects.create_superuser(**LOGIN)
        demo_data.fill(LOGIN["password"])
    connections.close_all()


class Supervisor(Manager):
    """Ends in order while it still starts, too: as soon as it knows of all its processes."""

    _is_ending = False

    def terminate(self) -> None:
        self._is_ending = True
        if super()._all_started():
            super().terminate()

    def _all_started(self) -> bool:
        are_known: bool = super()._all_started()
        if are_known and self._is_ending:
            super().terminate()
        return are_known


def supervise(port: int) -> int:
    manager = Supervisor()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for name, command in PROCESSES.items():
        manager.add_process(name, f"exec {command.format(port=port)}", env={**os.environ, "PATH": path}, cwd=BASE_DIR)
    print(_welcome(port), flush=True)
    manager.loop()
    # Ended by the person who started it: that is how a demo ends well.
    return 0 if manager.returncode in {None, 128 + signal.SIGINT, 128 + signal.SIGTERM} else int(manager.returncode)


def _welcome(port: int) -> str:
    return f"""
  Ergon runs at   http://127.0.0.1:{port}/
  log in as       {LOGIN["username"]}
  password        {LOGIN["password"]}
  API reference   http://127.0.0.1:{port}/api/docs/
  Ctrl-C ends everything; the data stays in var/demo/{port}.
"""


def _refuse_taken(port: int) -> None:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            msg = f"port {port} cannot be used ({error.strerror}); choose another with make demo PORT={port + 1}"
            raise embedded.ServerError(msg) from None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ergon_site.demo", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="where the console listens (default 8000)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
