"""`manage.py replay ID`: run a transaction that has ended once more."""

from argparse import ArgumentParser
from typing import Any

from engines import transactions
from engines.core.states import State
from engines.dead_letters import AS_IT_WAS
from engines.management.base import EngineCommand, json_file
from engines.models import DeadLetter
from ergon_site.access.cli.commands import actor
from ergon_site.access.cli.options import add_reason


class Command(EngineCommand):
    help = "Submit a transaction that has ended again, as a new one. Prints the new id. The original does not change."

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", metavar="ID", help="the id of a transaction, or the number of a dead letter")
        parser.add_argument(
            "--payload", metavar="F", help="a file with the payload to use instead; '-' is standard input"
        )
        add_reason(parser)

    def run(self, *, id: str, payload: str | None, reason: str, **_: Any) -> None:  # noqa: A002
        body = json_file(payload) if payload else AS_IT_WAS
        try:
            new = transactions.replay(id, by=actor(), reason=reason, payload=body)
        except transactions.TransactionUnknownError:
            # What ended may be no transaction: other sources leave letters under ids of their own.
            letter = DeadLetter.objects.filter(uid=id, transaction_id__isnull=True).first()
            if letter is None:
                raise
            uid = transactions.replay_letter(letter.pk, by=actor(), reason=reason, payload=body)
            self.tell({"id": uid, "state": State.PENDING.word, "replay_of": id}, uid)
        else:
            self.tell({"id": new.id, "state": new.state, "replay_of": id}, new.id)
