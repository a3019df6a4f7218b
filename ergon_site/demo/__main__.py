"""`make demo`: a whole Ergon on this machine, with nothing to install or configure; Ctrl-C ends all of it."""

import argparse
import json
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen, TimeoutExpired
from threading import Event, Thread
from typing import Any, NoReturn
from urllib.request import urlopen

import django
from django.core.management import call_command
from django.db import connection, connections

from ergon_site import BASE_DIR, embedded
from ergon_site.access.cli.options import whole
from ergon_site.access.signals import Deputy

DEFAULT_PORT = 8000
LOGIN = {"username": "admin", "password": "demo"}

REPORTS = ["python", "-m", "engines.executors", "--handlers", "ergon_site.demo.handlers"]
IS_CLONE = (BASE_DIR / "manage.py").exists()
# The codes of processes that were told to end.
ENDED_WELL = (0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL)
LOOK_EVERY = 0.2
STOP_LIMIT = 5.0
PROCESSES = {
    "web": "granian --interface wsgi --host 127.0.0.1 --port {port} --no-ws --log-level error"
    " --blocking-threads 8 --backpressure 64 ergon_site.wsgi:application",
    "worker": "celery --quiet -A ergon_site worker --concurrency 1 --loglevel WARNING"
    " --without-gossip --without-mingle",
    "consumer": "python -m ergon_site consume",
    "producer": "python -m ergon_site produce notifications",
    "forwarder": "python -m ergon_site forward",
    "upkeep": "python -m ergon_site maintain",
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="ergon demo", description="Run a whole Ergon on this machine; Ctrl-C ends it."
    )
    parser.add_argument(
        "--port", type=whole(1, 65_535), default=DEFAULT_PORT, help="where the console listens (default 8000)"
    )
    port = parser.parse_args(arguments).port
    is_stopped = Event()

    def stop(number: int, _frame: object) -> NoReturn:
        # Python drops what a handler raises while something is being finalized: then this is how it is known.
        is_stopped.set()
        sys.exit(128 + number)

    # SIGINT too: a shell without job control lets its background processes ignore it, and Python leaves that as it is.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        sys.exit(run(port, is_stopped))
    except embedded.ServerError as error:
        sys.exit(f"ergon: {error}")


def run(port: int, is_stopped: Event) -> int:
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
        path = f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"\n'
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
        script.write_text(path + exports)
        print("Ergon: preparing the database …", flush=True)
        prepare(folder / "unfinished")
        return 0 if is_stopped.is_set() else supervise(port, folder, is_stopped)


def prepare(mark: Path) -> None:
    """Bring the database up to date and fill it once; what was stopped in between is begun anew."""
    django.setup()
    from django.contrib.auth.models import User

    from ergon_site.demo.data import fill

    if mark.exists():
        with connection.cursor() as cursor:
            cursor.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    call_command("migrate", verbosity=0)
    if not User.objects.exists():
        mark.touch()
        User.objects.create_superuser(**LOGIN)
        fill(LOGIN["password"])
        mark.unlink()
    connections.close_all()


def supervise(port: int, folder: Path, is_stopped: Event) -> int:
    """Run every process until one of them ends or somebody stops the demo, then end the others."""
    deputy = Deputy(is_stopped.set)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: deputy.ask())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options: dict[str, Any] = {"cwd": BASE_DIR, "env": os.environ | {"PATH": path}, "start_new_session": True}
    logs, running = (folder / "log").relative_to(BASE_DIR), {}
    (folder / "log").mkdir(exist_ok=True)
    print(f"Ergon: starting {len(PROCESSES)} processes …", flush=True)
    for name, command in PROCESSES.items():
        words = shlex.split(command.format(port=port))
        with (folder / "log" / f"{name}.log").open("wb") as log:
            running[name] = Popen(words, stdin=DEVNULL, stdout=log, stderr=STDOUT, **options)  # noqa: S603 (our own)
    Thread(target=_welcome, args=[port, folder.relative_to(BASE_DIR), running], daemon=True).start()
    while not is_stopped.wait(LOOK_EVERY) and all(process.poll() is None for process in running.values()):
        pass
    print("Ergon: stopping …", flush=True)
    ended = {name: process.returncode for name, process in running.items() if process.returncode is not None}
    for process in running.values():
        _end(process, signal.SIGTERM)
    until = time.monotonic() + STOP_LIMIT
    for name, process in running.items():
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except TimeoutExpired:
            _end(process, signal.SIGKILL)
            process.wait()
        if name in ended or process.returncode not in ENDED_WELL:
            print(f"  {name:<10} stopped (rc={process.returncode}), see {logs}/{name}.log", flush=True)
    # Ended by the person who started it: that is how a demo ends well.
    return 0 if is_stopped.is_set() else next(iter(ended.values()))


def _end(process: "Popen[bytes]", number: signal.Signals) -> None:
    """Send a signal to a process and its children, unless it has ended by itself."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _welcome(port: int, folder: Path, running: dict[str, "Popen[bytes]"]) -> None:
    """Print the state of each process, and the banner, once the console answers."""
    while True:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            break
        time.sleep(0.1)
    for name, process in running.items():
        state = "running" if process.poll() is None else f"ended with {process.returncode}"
        print(f"  {name:<10} {state}, log in {folder}/log/{name}.log", flush=True)
    chosen = "" if port == DEFAULT_PORT else f" PORT={port}"
    in_clone, installed = f'eval "$(make demo-env{chosen})" && python manage.py', f". {folder}/env.sh && ergon"
    print(
        f"""
  Ergon runs at   http://127.0.0.1:{port}/
  log in as       {LOGIN["username"]}
  password        {LOGIN["password"]}
  API reference   http://127.0.0.1:{port}/api/docs/
  commands        {in_clone if IS_CLONE else installed} status
  Ctrl-C ends everything; the data stays in {folder}.
""",
        flush=True,
    )


if __name__ == "__main__":
    main()
