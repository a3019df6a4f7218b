"""`manage.py maintain`: does what must be done somewhere, and by one process only."""

import os
import sys
from argparse import ArgumentParser
from collections import Counter
from typing import Any

from django.core.management.base import CommandError

from engines.management.base import EngineCommand
from engines.worker.maintenance import DatabaseLostError, Maintenance
from ergon_site.access.cli.options import add_metrics_port
from ergon_site.access.cli.service import ServiceCommand


class Command(ServiceCommand, EngineCommand):
    help = (
        "Run maintenance: rescue transactions of dead workers, run schedules and bulk operations, aggregate counters,"
        " prune. Runs until SIGTERM or SIGINT. Of several processes one leads, and the others stand by."
    )
    counted = "done"
    logged = frozenset({"failed", "database_lost", "database_back"})

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--once", action="store_true", help="run every chore once and end; exit code 1 if one failed"
        )
        add_metrics_port(parser)

    def run(self, *, once: bool, metrics_port: int | None, **_: Any) -> None:
        self.prepare(metrics_port)
        self._done: Counter[str] = Counter()
        self._maintenance = Maintenance(self._tell_event)
        if not once:
            self.stop_on_signals(self._maintenance.stop)
            self._maintenance.run(each_turn=self._show)
            return
        try:
            is_well = self._maintenance.once()
        except DatabaseLostError as error:
            msg = f"the database does not answer or refuses: {error}"
            raise CommandError(msg, returncode=os.EX_UNAVAILABLE) from None
        if not is_well:
            sys.exit(1)

    def words(self, event: str, fields: dict[str, Any]) -> str:
        match event:
            case "leading":
                return f"leading as {fields['holder']}"
            case "standing_by":
                return f"standing by: {fields['leader'] or 'another process'} leads"
            case "done":
                return f"{fields['chore'].replace('_', ' ')} {fields['count']:,}"
        return event

    def _tell_event(self, event: str, **fields: Any) -> None:
        with self.printing:
            if event == "done":
                self._done[fields["chore"]] += fields["count"]
            self.tell_event(event, **fields)

    def _show(self) -> None:
        role = "leading" if self._maintenance.is_leading else "standing by"
        counts = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in self._done.items())
        self.show_progress(f"{role}; {counts or 'nothing to do so far'}")
