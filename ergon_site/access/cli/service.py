"""Commands that run until SIGTERM or SIGINT, and print what happens meanwhile."""

import os
import signal
from collections.abc import Callable
from threading import RLock
from typing import Any

from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone

from ergon_site.access import pending_migrations
from ergon_site.access.checks import TAG
from ergon_site.access.cli.commands import VerbCommand, as_json
from ergon_site.access.cli.progress import LiveLine
from ergon_site.access.signals import Deputy
from ergon_site.access.unread import Lines


def serve_metrics(port: int | None) -> None:
    """Serve the instruments of this process, if a port is given for them."""
    if port is None:
        return
    from prometheus_client import start_http_server  # noqa: PLC0415 (takes long to load)

    try:
        start_http_server(port, addr="127.0.0.1")
    except OSError as error:
        msg = f"metrics cannot be served on port {port}: {error.strerror}"
        raise CommandError(msg) from None


class ServiceCommand(VerbCommand):
    """Prints each event as a line, JSON or text; a terminal also shows how far the command is.

    Events that nobody reads are left out and counted: the work must not wait for who follows it.
    """

    requires_system_checks = [TAG]
    # The event that the live line of a terminal counts.
    counted: str
    # Events that the log on standard error tells already.
    logged: frozenset[str] = frozenset()

    def words(self, event: str, fields: dict[str, Any]) -> str:
        """An event for people."""
        raise NotImplementedError

    def prepare(self, metrics_port: int | None) -> None:
        connection.ensure_connection()
        if hint := pending_migrations.hint():
            raise CommandError(hint, returncode=os.EX_UNAVAILABLE)
        serve_metrics(metrics_port)
        self.line, self.printing = LiveLine(self.stdout), RLock()
        self._lines = Lines(self._excuse)

    def stop_on_signals(self, stop: Callable[[], None]) -> None:
        deputy = Deputy(stop)

        def handle(number: int, _frame: object) -> None:
            deputy.ask()
            # A second one ends the process at once.
            signal.signal(number, signal.SIG_DFL)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handle)

    def tell_event(self, event: str, **fields: Any) -> None:
        with self.printing:
            self.line.end()
            at = timezone.now()
            if self.is_json:
                self._print(as_json({"event": event, "at": at, **fields}))
            elif event not in self.logged and not (event == self.counted and self.line.is_live):
                self._print(f"{at:%Y-%m-%d %H:%M:%SZ} {self.words(event, fields)}")

    def _print(self, line: str) -> None:
        self._lines.write(self.stdout, f"{line}\n", ending="")

    def _excuse(self, left_out: int) -> str:
        if self.is_json:
            return as_json({"event": "left_out", "at": timezone.now(), "count": left_out}) + "\n"
        return f"events left out, as nobody read them: {left_out}\n"

    def show_progress(self, text: str) -> None:
        if not self.is_json:
            with self.printing:
                self.line.show(text)
