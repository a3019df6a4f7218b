"""`manage.py cancel ID`: end a transaction that has not begun."""

from argparse import ArgumentParser
from typing import Any

from engines import transactions
from engines.management.base import EngineCommand
from ergon_site.access.cli.commands import actor
from ergon_site.access.cli.options import add_reason


class Command(EngineCommand):
    help = "Cancel a pending transaction. A transaction that is running or has ended is refused."

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", metavar="ID", help="the transaction's id")
        add_reason(parser)

    def run(self, *, id: str, reason: str, **_: Any) -> None:  # noqa: A002 (its name on the command line)
        cancelled = transactions.cancel(id, by=actor(), reason=reason)
        self.tell({"id": cancelled.uid, "state": cancelled.word}, f"cancelled {cancelled.uid}")
