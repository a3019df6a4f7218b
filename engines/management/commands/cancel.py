"""`manage.py cancel ID`: end a transaction that has not begun, or request that of one that runs."""

from argparse import ArgumentParser
from typing import Any

from engines import transactions
from engines.core.states import State
from engines.management.base import EngineCommand
from ergon_site.access.cli.commands import actor
from ergon_site.access.cli.options import add_reason


class Command(EngineCommand):
    help = "Cancel a pending transaction, or request that of a running one. A transaction that has ended is refused."

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", metavar="ID", help="the transaction's id")
        add_reason(parser)

    def run(self, *, id: str, reason: str, **_: Any) -> None:  # noqa: A002 (its name on the command line)
        cancelled = transactions.cancel(id, by=actor(), reason=reason)
        done = "cancelled" if State(cancelled.state).is_final else "cancellation requested:"
        self.tell({"id": cancelled.uid, "state": cancelled.word}, f"{done} {cancelled.uid}")
