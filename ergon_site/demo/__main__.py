"""`make demo`: a whole Ergon on this machine, with nothing to install or configure; Ctrl-C ends all of it."""

import argparse
import json
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import django
from django.core.management import call_command
from django.db import connections
from honcho.manager import Manager
from honcho.printer import Message

from ergon_site import embedded

BASE_DIR = Path(__file__).resolve().parent.parent.parent
LOGIN = {"username": "admin", "password": "demo"}

REPORTS = ["python", "-m", "engines.executors", "--handlers", "ergon_site.demo.handlers"]
# What honcho says of a process that was told to end.
ENDED_WELL = {f"stopped (rc={code})" for code in (0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL)}
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
    parser = argparse.ArgumentParser(prog="python -m ergon_site.demo", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="where the console listens (default 8000)")
    port = parser.parse_args().port
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(run(port))
    except embedded.ServerError as error:
        sys.exit(f"ergon: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def run(port: int) -> int:
    """Start the servers, prepare the database, and keep every process going until somebody stops them."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            msg = f"port {port} cannot be used ({error.strerror}); choose another with make demo PORT={port + 1}"
            raise embedded.ServerError(msg) from None
    # A folder for each port, so that two demos never share a database.
    folder = BASE_DIR / "var" / "demo" / str(port)
    print("Ergon: starting PostgreSQL and Valkey …", flush=True)
    with embedded.postgres(folder) as database, embedded.valkey(folder) as broker:
        variables = {
            "ERGON_DATA_DIR": str(folder),
            "DATABASE_URL": database,
            "CELERY_BROKER_URL": broker,
            "ERGON_ZONE": "Plant A",
            "ERGON_TASKS": "ergon_site.demo.tasks",
            "ERGON_EXECUTORS": json.dumps({"reports": {"command": REPORTS, "pool_size": 1}}),
        }
        os.environ |= variables | {"DJANGO_SETTINGS_MODULE": "ergon_site.settings", "PYTHONWARNINGS": "ignore"}
        # For a shell that is to use the demo's database; it holds the password of that database.
        script = folder / "env.sh"
        script.touch(mode=0o600)
        script.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()))
        print("Ergon: preparing the database …", flush=True)
        prepare()
        return supervise(port, folder)


def prepare() -> None:
    """Bring the database up to date and fill it once."""
    django.setup()
    from django.contrib.auth.models import User

    from ergon_site.demo.data import fill

    call_command("migrate", verbosity=0)
    if not User.objects.exists():
        User.objects.create_superuser(**LOGIN)
        fill(LOGIN["password"])
    connections.close_all()


class LogFiles:
    """Writes what each process prints into a file of its own; the terminal gets one line per process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._files = {name: (folder / f"{name}.log").open("wb", buffering=0) for name in PROCESSES}
        self.width = 0  # honcho counts it up

    def write(self, message: Message) -> None:
        data = message.data if isinstance(message.data, bytes) else message.data.encode()
        if message.name in self._files:
            self._files[message.name].write(data)
            return
        # Honcho's own messages about starts and failures; how processes are ended is of no interest.
        name, _, what = data.decode().strip().partition(" ")
        log = (self._folder / f"{name}.log").relative_to(BASE_DIR)
        if what.startswith("started"):
            print(f"  {name:<10} started, log in {log}", flush=True)
        elif what.startswith("stopped") and what not in ENDED_WELL:
            print(f"  {name:<10} {what}, see {log}", flush=True)


class Supervisor(Manager):
    """Starts the processes, then calls `on_start`. Told to end while it starts, it ends as soon as all have begun."""

    _is_ending = _are_started = False

    def __init__(self, printer: LogFiles, on_start: Callable[[], None]) -> None:
        super().__init__(printer)
        self._on_start = on_start

    def terminate(self) -> None:
        if not self._is_ending:
            print("Ergon: stopping …", flush=True)
        self._is_ending = True
        if super()._all_started():
            super().terminate()

    def _all_started(self) -> bool:
        are_known: bool = super()._all_started()
        if are_known and self._is_ending:
            super().terminate()
        elif are_known and not self._are_started:
            self._are_started = True
            # Not before: processes are forked, and threads do not survive that.
            Thread(target=self._on_start, daemon=True).start()
        return are_known


def supervise(port: int, folder: Path) -> int:
    manager = Supervisor(LogFiles(folder / "log"), lambda: _welcome(port, folder.relative_to(BASE_DIR)))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for name, command in PROCESSES.items():
        manager.add_process(name, f"exec {command.format(port=port)}", env={**os.environ, "PATH": path}, cwd=BASE_DIR)
    manager.loop()
    # Ended by the person who started it: that is how a demo ends well.
    return 0 if manager.returncode in {None, 128 + signal.SIGINT, 128 + signal.SIGTERM} else int(manager.returncode)


def _welcome(port: int, folder: Path) -> None:
    """Print the banner once the console answers."""
    while True:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            break
        time.sleep(0.1)
    print(
        f"""
  Ergon runs at   http://127.0.0.1:{port}/
  log in as       {LOGIN["username"]}
  password        {LOGIN["password"]}
  API reference   http://127.0.0.1:{port}/api/docs/
  commands        . .venv/bin/activate && . {folder}/env.sh && python manage.py status
  Ctrl-C ends everything; the data stays in {folder}.
""",
        flush=True,
    )


if __name__ == "__main__":
    main()
