"""`manage.py prune`: delete what has ended long enough ago."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from engines import transactions
from engines.management.base import EngineCommand, actor
from ergon_site.access.shell.options import add_reason, days


class Command(EngineCommand):
    help = (
        "Delete transactions that have ended, with their attempts and dead letters: by each pipeline's own retention,"
        " or all that are older than so many days. manage.py maintain does the former by itself."
    )

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("--older-than", type=days, metavar="DAYS", help="the same age for every state and pipeline")
        add_reason(parser, required=False)

    def run(self, *, older_than: timedelta | None, reason: str, **_: Any) -> None:
        pruned = transactions.prune(older_than=older_than, by=actor(), reason=reason)
        counts = pruned._asdict()
        text = ", ".join(f"{count:,} {state}" for state, count in counts.items())
        self.tell({**counts, "total": pruned.total}, f"deleted {text}")
