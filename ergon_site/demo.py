"""`make demo`: a whole Ergon on this machine, with nothing to install or configure; Ctrl-C ends all of it."""

import argparse
import os
import signal
import socket
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import django
from django.core.management import call_command
from django.db import connections
from honcho.manager import Manager

from ergon_site import embedded

BASE_DIR = Path(__file__).resolve().parent.parent
LOGIN = {"username": "admin", "password": "demo"}

PROCESSES = {
    "web": "granian --interface wsgi --host 127.0.0.1 --port {port} --no-ws --log-level error"
    " --blocking-threads 8 --backpressure 64 ergon_site.wsgi:application",
    "worker": "celery --quiet -A ergon_site worker --concurrency 1 --loglevel WARNING"
    " --without-gossip --without-mingle",
    "consumer": "python manage.py consume",
    "producer": "python manage.py produce notifications",
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
            "ERGON_TASKS": "ergon_site.demo_tasks",
            "PYTHONWARNINGS": "ignore",
        }
        prepare()
        return supervise(port)


def prepare() -> None:
    """Bring the database up to date and fill it once."""
    django.setup()
    from django.contrib.auth.models import User

    call_command("migrate", verbosity=0)
    if not User.objects.exists():
        User.objects.create_superuser(**LOGIN)
        _fill()
    connections.close_all()


def _fill() -> None:
    from django.contrib.auth.hashers import make_password
    from django.contrib.auth.models import Group, User

    from ergon_site.access import clients
    from ergon_site.access.clients import Grant

    erp = Grant(scopes=["transactions:submit", "transactions:read"])
    clients.create("erp", erp, by="demo", lifetime=timedelta(days=7))
    clients.create("press-line", Grant(zones=["Plant A"], target_zones=["Enterprise"]), by="demo")
    password = make_password(LOGIN["password"])
    for role in Group.objects.all():
        person = User.objects.create(username=role.name.replace(" ", "-"), is_staff=True, password=password)
        person.groups.add(role)
    _fill_providers()
    _fill_engines()


def _fill_providers() -> None:
    """A quota for a provider that is well; the other one is down, and its breaker opens by itself."""
    from ergon_site.demo_tasks import TENANT, Rank
    from providers import calls
    from providers.core.exchange import Who

    calls.set_quota(Who(TENANT, Rank.provider_name, Rank.capability), limit=10_000, window=86400.0, by="demo")


def _fill_engines() -> None:
    """Pipelines with work in every state: done, failing in three ways, waiting for a time, waiting for a person."""
    from engines import pipelines, policies, schedules, transactions

    retry = {"max_attempts": 2, "timeout": 1.0, "backoff": 0.2}
    body = {"loop": {"concurrency": {"value": 4}, "batch": {"size": 50}}, "steps": {"process": {"retry": retry}}}
    policies.write("impatient", body, kind="consumer", by="demo", reason="Invoices must not wait for long")
    invoices = pipelines.Plan(task="demo.invoices", policy="impatient", redacted=["iban"])
    pipelines.create("invoices", invoices, by="demo")
    pipelines.create("archive", pipelines.Plan(task="demo.invoices"), by="demo")
    pipelines.create("notifications", pipelines.Plan(task="demo.notifications", direction="outbound"), by="demo")
    pipelines.create("rankings", pipelines.Plan(task="demo.rankings"), by="demo")
    for pipeline, drafts in _drafts().items():
        transactions.submit_many(pipeline, drafts)
    pipelines.pause("archive", by="demo", reason="The archive is being moved to another disk")
    hourly = schedules.Plan(pipeline="notifications", cron="*/5 * * * *", payload={"to": "finance", "about": "totals"})
    schedules.create("totals", hourly, by="demo")
    keyword = schedules.Plan(pipeline="rankings", cron="* * * * *", payload={"provider": "rank", "keyword": "tea"})
    schedules.create("tea", keyword, by="demo")


def _drafts() -> dict[str, list[dict[str, Any]]]:
    later = datetime.now(UTC) + timedelta(hours=6)
    return {
        "invoices": [
            *({"payload": _invoice(number), "correlation_id": f"run-{number // 100}"} for number in range(400)),
            *({"payload": _invoice(number, customer="unknown")} for number in range(400, 412)),
            *({"payload": _invoice(number, amount="twelve")} for number in range(412, 420)),
            *({"payload": _invoice(number, takes=3)} for number in range(420, 422)),
            *({"payload": _invoice(number), "available_at": later} for number in range(422, 430)),
        ],
        "archive": [{"payload": _invoice(number)} for number in range(900, 925)],
        "rankings": [
            *({"payload": {"provider": "rank", "keyword": f"keyword {number}"}} for number in range(60)),
            *({"payload": {"provider": "crawl", "keyword": f"page {number}"}} for number in range(6)),
        ],
        "notifications": [{"payload": {"to": "finance", "about": f"invoice {number}"}} for number in range(40)],
    }


def _invoice(number: int, **changes: Any) -> dict[str, Any]:
    amount = f"{17 + number * 3 % 400}.{number % 100:02}"
    invoice = {"number": f"R-{number:05}", "customer": f"C-{number % 37:03}", "amount": amount}
    return {**invoice, "iban": f"DE{number % 97:02} 5001 0517 0000 {number:04}", **changes}


def supervise(port: int) -> int:
    manager = Manager()
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
