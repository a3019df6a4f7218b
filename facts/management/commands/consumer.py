"""`manage.py consumer create|list|retire`."""

from typing import Any

from ergon_site.access.cli.commands import actor, moment
from ergon_site.access.cli.options import add_reason, add_yes
from facts import provisioning, retiring
from facts.ledger import reading
from facts.management.base import VerbsCommand
from facts.models import Consumer


class Command(VerbsCommand):
    help = (
        "Create, list and retire consumers. A consumer reads the facts of a boundary in order, from its own cursor on."
    )

    def add_verbs(self) -> None:
        create = self.add_verb("create", help="create a consumer")
        create.add_argument("name", metavar="NAME", help="the consumer's name")
        create.add_argument(
            "--boundary", nargs=2, metavar=("FROM", "TO"), required=True, help="the boundary that it reads"
        )
        create.add_argument(
            "--start",
            metavar="earliest|latest|OFFSET",
            default="earliest",
            help="from the earliest fact (the default), after the latest, or from an offset on",
        )
        add_reason(create, required=False)
        self.add_verb("list", help="list consumers with their backlogs")
        retire = self.add_verb("retire", help="end a consumer: it reads no more and no longer holds back truncation")
        retire.add_argument("name", metavar="NAME", help="the consumer's name")
        add_yes(retire)
        add_reason(retire)

    def create(self, *, name: str, boundary: tuple[str, str], start: str, reason: str, **_: Any) -> None:
        made = provisioning.create_consumer(name, *boundary, start=start, by=actor(), reason=reason)
        told = _as_json(Consumer.objects.select_related(*_ZONES).get(pk=made.pk))
        self.tell(told, f"created the consumer {name}; it starts at offset {made.cursor + 1:,}")

    def retire(self, *, name: str, yes: bool, reason: str, **_: Any) -> None:
        self.ask_first(f"this ends the consumer {name}", yes=yes)
        retired = retiring.retire_consumer(name, by=actor(), reason=reason)
        told = _as_json(Consumer.objects.select_related(*_ZONES).get(pk=retired.pk))
        self.tell(told, f"retired the consumer {name}; {told['backlog']:,} facts remain unread by it")

    def list(self, **_: Any) -> None:
        rows = [_as_json(consumer) for consumer in Consumer.objects.select_related(*_ZONES)]
        headings = ["name", "from", "to", "cursor", "newest", "backlog", "last confirm", "state"]
        self.tell(rows, self.table(headings, map(_row, rows)))


_ZONES = ("boundary__from_zone", "boundary__to_zone")


def _as_json(consumer: Consumer) -> dict[str, Any]:
    told = reading.position(consumer)
    times = {name: getattr(consumer, name) for name in ("fetched_at", "confirmed_at", "retired_at")}
    return {**told, "backlog": max(0, told["newest"] - consumer.cursor), **times}


def _row(told: dict[str, Any]) -> list[Any]:
    names = ("name", "from_zone", "to_zone", "cursor", "newest", "backlog")
    state = "retired" if told["retired_at"] else ""
    return [*(told[name] for name in names), moment(told["confirmed_at"]), state]
