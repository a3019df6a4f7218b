"""`manage.py prune`: delete what has ended long enough ago."""

import os
import sys
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from engines import transactions
from engines.management.base import EngineCommand
from engines.transactions import MOST_COUNTED
from ergon_site.access.cli.commands import actor
from ergon_site.access.cli.options import add_reason, days


class Command(EngineCommand):
    help = (
        "Delete transactions that have ended, with their attempts and dead letters: those that are older than their"
        " pipeline keeps them, or with --older-than all that ended at least DAYS ago. The latter asks first."
        " manage.py maintain does the former by itself."
    )

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--older-than", type=days, metavar="DAYS", help="delete by this age, whatever the pipelines keep; 0: all"
        )
        parser.add_argument("--yes", action="store_true", help="with --older-than: do not ask")
        add_reason(parser, required=False)

    def run(self, *, older_than: timedelta | None, yes: bool, reason: str, **_: Any) -> None:
        if older_than is not None and not yes and (count := transactions.prunable(older_than)):
            counted = f"more than {MOST_COUNTED:,}" if count > MOST_COUNTED else f"{count:,}"
            noun = "transaction" if count == 1 else "transactions"
            what = f"this deletes {counted} {noun}, whatever the pipelines keep"
            if not sys.stdin.isatty():
                msg = f"{what}: repeat it with --yes"
                raise CommandError(msg, returncode=os.EX_USAGE)
            self.stderr.write(f"{what}.", str)
            if input("Type 'yes' to go on: ") != "yes":
                msg = "nothing was deleted"
                raise CommandError(msg)
        pruned = transactions.prune(older_than=older_than, by=actor(), reason=reason)
        counts = pruned._asdict()
        text = ", ".join(f"{count:,} {state}" for state, count in counts.items())
        self.tell({**counts, "total": pruned.total}, f"deleted {text}")
