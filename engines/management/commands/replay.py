"""`manage.py replay ID`: run a transaction that has ended once more."""

from argparse import ArgumentParser
from typing import Any

from engines import transactions
from engines.dead_letters import AS_IT_WAS
from engines.management.base import EngineCommand, actor, json_file
from ergon_site.access.shell.options import add_reason


class Command(EngineCommand):
    help = "Run a transaction that has ended once more, as a new one. Prints the new id. The original never changes."

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", metavar="ID", help="the transaction's id")
        parser.add_argument(
            "--payload", metavar="F", help="a file with the payload to use instead; '-' is standard input"
        )
        add_reason(parser)

    def run(self, *, id: str, payload: str | None, reason: str, **_: Any) -> None:  # noqa: A002
        body = json_file(payload) if payload else AS_IT_WAS
        new = transactions.replay(id, by=actor(), reason=reason, payload=body)
        self.tell({"id": new.id, "state": new.state, "replay_of": id}, new.id)
