"""`manage.py maintain`: does what must be done somewhere, and by one process only."""

import os
import signal
import sys
from argparse import ArgumentParser
from collections import Counter
from threading import Lock
from typing import Any

from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone

from engines.management.base import EngineCommand
from engines.reads import doctor
from engines.worker.maintenance import DatabaseLostError, Maintenance
from ergon_site.access.cli.commands import as_json
from ergon_site.access.cli.metrics import add_metrics_port, serve_metrics

# The log on standard error tells these already.
LOGGED = {"failed", "database_lost", "database_back"}


class Command(EngineCommand):
    help = (
        "Run maintenance: rescue transactions of dead workers, run schedules and bulk operations, aggregate counters,"
        " prune. Runs until SIGTERM or SIGINT. Of several processes one leads, and the others stand by."
    )

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--once", action="store_true", help="run every chore once and end; exit code 1 if one failed"
        )
        add_metrics_port(parser)

    def run(self, *, once: bool, metrics_port: int | None, **_: Any) -> None:
        connection.ensure_connection()
        if waiting := doctor.waiting_migrations():
            msg = f"{len(waiting)} migrations are not applied: run manage.py migrate"
            raise CommandError(msg, returncode=os.EX_UNAVAILABLE)
        serve_metrics(metrics_port)
        self._done: Counter[str] = Counter()
        self._line, self._printing = self.live_line(), Lock()
        self._maintenance = Maintenance(self._tell_event)
        if not once:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._stop)
            self._maintenance.run(each_turn=self._show)
            return
        try:
            is_well = self._maintenance.once()
        except DatabaseLostError as error:
            msg = f"the database does not answer: {error}"
            raise CommandError(msg, returncode=os.EX_UNAVAILABLE) from None
        if not is_well:
            sys.exit(1)

    def _stop(self, number: int, _frame: object) -> None:
        self._maintenance.stop()
        # A second one ends the process at once.
        signal.signal(number, signal.SIG_DFL)

    def _tell_event(self, event: str, **fields: Any) -> None:
        with self._printing:
            self._line.end()
            if event == "done":
                self._done[fields["chore"]] += fields["count"]
            at = timezone.now()
            if self.is_json:
                self.stdout.write(as_json({"event": event, "at": at, **fields}))
            elif event not in LOGGED and not (event == "done" and self._line.is_live):
                self.stdout.write(f"{at:%Y-%m-%d %H:%M:%SZ} {_words(event, fields)}")
            self.stdout.flush()

    def _show(self) -> None:
        if self.is_json:
            return
        role = "leading" if self._maintenance.is_leading else "standing by"
        counts = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in self._done.items())
        with self._printing:
            self._line.show(f"{role}; {counts or 'nothing to do so far'}")


def _words(event: str, fields: dict[str, Any]) -> str:
    match event:
        case "leading":
            return f"leading as {fields['holder']}"
        case "standing_by":
            return f"standing by: {fields['leader'] or 'another process'} leads"
        case "done":
            return f"{fields['chore'].replace('_', ' ')} {fields['count']:,}"
    return event
