"""`manage.py prune`: delete what has ended long enough ago."""

from argparse import ArgumentParser
from contextlib import closing
from datetime import timedelta
from typing import Any

from engines import transactions
from engines.management.base import EngineCommand
from engines.transactions import MOST_COUNTED
from ergon_site.access.cli.commands import actor
from ergon_site.access.cli.options import add_reason, add_yes, days
from ergon_site.access.cli.progress import ProgressBar

# To delete a transaction takes far longer than to count it: a bar may know its end.
MOST_SHOWN = 10**9


class Command(EngineCommand):
    help = (
        "Delete transactions that have ended, with their attempts and dead letters: those that are older than their"
        " pipeline keeps them, or with --older-than all that ended at least DAYS ago. Asks first, unless nothing is to"
        " be deleted. The command maintain prunes by what the pipelines keep, without being asked."
    )

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--older-than", type=days, metavar="DAYS", help="delete by this age, whatever the pipelines keep; 0: all"
        )
        add_yes(parser)
        add_reason(parser, required=False)

    def run(self, *, older_than: timedelta | None, yes: bool, reason: str, **_: Any) -> None:
        is_shown = self.stderr.isatty()
        count = transactions.prunable(older_than, most=MOST_SHOWN if is_shown else MOST_COUNTED)
        if count:
            counted = f"{count:,}" if is_shown or count <= MOST_COUNTED else f"more than {MOST_COUNTED:,}"
            noun = "transaction" if count == 1 else "transactions"
            kept = "whatever the pipelines keep" if older_than is not None else "older than their pipelines keep them"
            self.ask_first(f"this deletes {counted} {noun}, {kept}", yes=yes)
        with closing(ProgressBar(self.stderr, "deleted", total=count)) as bar:
            pruned = transactions.prune(older_than=older_than, by=actor(), reason=reason, progress=bar.advance)
        counts = pruned._asdict()
        text = ", ".join(f"{count:,} {state}" for state, count in counts.items())
        self.tell({**counts, "total": pruned.total}, f"deleted {text}")
