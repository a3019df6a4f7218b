"""`manage.py forward`: hands facts over, from their source into the forward buffer."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from ergon_site.access.cli.options import add_metrics_port
from ergon_site.access.cli.service import ServiceCommand
from ergon_site.access.cli.tables import printable
from facts.core.errors import FactError
from facts.forwarding import Forwarding
from facts.forwarding.running import Standing
from facts.ledger import boundaries

ARROW = "→"
ENDED = (Standing.DRAINED, Standing.RETIRED)


class Command(ServiceCommand):
    help = (
        "Hand over appended facts, once and in order: from the store buffer in this database, or from a peer, into the"
        " forward buffer. Runs until SIGTERM or SIGINT. Of several processes one serves each boundary, and the others"
        " stand by."
    )
    refusals = (FactError,)
    counted = "handed_over"

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "boundary",
            nargs="*",
            type=_pair,
            metavar="BOUNDARY",
            help="'FROM→TO' (or 'FROM->TO'); every boundary, also those created later, if none is named",
        )
        parser.add_argument(
            "--drain", action="store_true", help="end when every fact is handed over; exit code 1 if some are left"
        )
        add_metrics_port(parser)

    def run(self, *, boundary: list[tuple[str, str]], drain: bool, metrics_port: int | None, **_: Any) -> None:
        self.prepare(metrics_port)
        chosen = [boundaries.find(*pair) for pair in dict.fromkeys(boundary)]
        for found in chosen:
            if found.is_retired:
                raise boundaries.retired(found)
        self._forwarding = Forwarding(
            chosen or list(boundaries.in_use()), self.tell_event, is_draining=drain, is_all=not boundary
        )
        self.stop_on_signals(self._forwarding.stop)
        self._forwarding.run(each_turn=self._show)
        self.line.end()
        handed = sum(one.handed for one in self._forwarding.forwarders)
        if self.is_json:
            self.tell_event("stopped", handed_over=handed)
        else:
            self.stdout.write(f"{handed:,} handed over")
        self.stdout.flush()
        left = [one for one in self._forwarding.forwarders if one.standing not in ENDED]
        if drain and left:
            for one in left:
                self.stderr.write(printable(f"{one.name} is not drained: {one.standing}: {one.reason}"))
            sys.exit(1)

    def words(self, event: str, fields: dict[str, Any]) -> str:
        if event == "handed_over":
            text = f"{fields['boundary']}: {fields['count']:,} up to offset {fields['frontier']:,}"
            return printable(f"{text}, {fields['backlog']:,} left")
        reason = f": {fields['reason']}" if fields.get("reason") else ""
        return printable(f"{fields.get('boundary', '')}: {event.replace('_', ' ')}{reason}")

    def _show(self) -> None:
        if not self.line.is_live:  # several times a second, for nobody
            return
        each = (f"{one.name}: {one.handed:,} handed over, {one.backlog:,} left" for one in self._forwarding.forwarders)
        self.show_progress(printable("; ".join(each) or "there are no boundaries"))


def _pair(text: str) -> tuple[str, str]:
    from_zone, arrow, to_zone = text.replace("->", ARROW).partition(ARROW)
    if not arrow or not from_zone.strip() or not to_zone.strip():
        msg = f"a boundary is written FROM→TO, not {text!r}"
        raise ArgumentTypeError(msg)
    return from_zone.strip(), to_zone.strip()
