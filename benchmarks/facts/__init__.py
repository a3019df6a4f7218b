"""What the fact boundary does, beside NATS JetStream, a bare batching writer and a bare APIView, in the same run.

**Append, 32 callers at once.** Each caller waits for its confirmation before it sends the next. Ergon: `ledger.append`
in 32 threads of one process. The bare writer: 32 threads that hand ready rows to one thread, which writes all that
waits in one statement and forgets nothing (a counter, `ON CONFLICT DO NOTHING`). JetStream: 32 coroutines, a file
stream with deduplication by `Nats-Msg-Id`; once with a sync for every write, as a confirmation here has, and once as it
comes, where it answers before the disk has it.

**In batches.** `ledger.append_many`, a thousand facts in a call, one thread.

**HTTP.** One granian process with 16 threads. 16 connections, each waits for its answer; the bare `APIView` parses the
same body and inserts one row by the ORM, without token, scope or rate, and a plain view of Django does the same without
the framework. Then one connection alone, and batches of a
thousand.

**SQLite.** One connection alone, then four, against two servers with a database file each: one keeps the database
connection of each thread, as deployed, and one opens it for each request.

**Growth.** The same append and fetch with ten thousand facts in the table, and with a million, or ten with `--large`;
once with names that follow on those in the table, and once with names that belong anywhere among them.

PostgreSQL has its durable defaults: a commit waits for the disk. Rounds are interleaved, figures are medians, and the
least and the most stand beside them. Nothing is asserted.
"""

import argparse
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.facts import growth, on_sqlite, over_http, report
from benchmarks.facts.at_once import FROM, TO, contenders as at_once
from benchmarks.facts.rounds import Figures, measure
from benchmarks.goals import Figure

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 3
PARTS = ("append", "http", "sqlite", "growth")


def main() -> list[Figure]:
    options = _options()
    figures = Figures()
    rounds, share = (1, 0.05) if options.quick else (ROUNDS, 1.0)
    # A run that is cut short shows what it has, and ends its servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    (ROOT / "var").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=ROOT / "var", prefix="benchmark-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        set_up(folder, stack)
        contenders = on_sqlite.contenders(folder, stack, share) if "sqlite" in options.only else {}
        if options.only != ["sqlite"]:
            _open_boundary()
            contenders |= at_once(folder, stack, share) if "append" in options.only else {}
            contenders |= over_http.contenders(folder, stack, share) if "http" in options.only else {}
        try:
            measure(contenders, figures, rounds)
            if "growth" in options.only:
                most = 10_000_000 if options.large else 100_000 if options.quick else 1_000_000
                growth.measure(figures, [10_000, most])
        finally:
            reached = report.show(figures)
    return reached


def goals() -> list[Figure]:
    """What a run measures, before it has."""
    return report.goals(Figures())


def set_up(folder: Path, stack: ExitStack) -> None:
    from ergon_site import embedded

    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "ergon_site.settings",
        "ERGON_DATA_DIR": str(folder),
        "DATABASE_URL": stack.enter_context(embedded.postgres(folder)),
        "ERGON_API_RATE": "1000000/s",
        "DJANGO_ALLOWED_HOSTS": "127.0.0.1",
    }
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def _open_boundary() -> None:
    from facts import provisioning

    for zone in (FROM, TO):
        provisioning.create_zone(zone, by="benchmark")
    provisioning.create_boundary(FROM, TO, by="benchmark")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks facts", description="The fact boundary beside others.")
    parser.add_argument("--quick", action="store_true", help="one short round: does everything run?")
    parser.add_argument("--large", action="store_true", help="grow to ten million facts, which takes long")
    parser.add_argument("--only", choices=PARTS, help="one part of it")
    options = parser.parse_args(sys.argv[1:])
    options.only = [options.only] if options.only else PARTS
    return options
