"""`manage.py attention [list|acknowledge|withdraw]`: what the dashboard says needs attention."""

from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.utils.module_loading import import_string

from ergon_site.access import acknowledgements
from ergon_site.access.acknowledgements import AcknowledgementError
from ergon_site.access.cli.commands import VerbsCommand, actor, moment
from ergon_site.access.cli.options import add_reason, whole
from ergon_site.access.cli.tables import printable
from ergon_site.access.core.attention import LONGEST, Board, Entry, Item
from ergon_site.access.database.clock import page_time

MOST_HOURS = int(LONGEST.total_seconds() // 3600)


class Command(VerbsCommand):
    help = "List what needs attention, causes with their consequences, and acknowledge it. Without a verb it lists."
    refusals = (AcknowledgementError,)
    default_verb = "list"

    def add_verbs(self) -> None:
        self.add_verb("list", help="list what needs attention, the worst first, then what is acknowledged")
        fold = self._add("acknowledge", "fold an item away until its time is over or it gets worse")
        hours = whole(1, MOST_HOURS)
        fold.add_argument("--hours", type=hours, default=4, metavar="N", help="for so many hours; 4 if not given")
        self._add("withdraw", "show an acknowledged item again")

    def _add(self, verb: str, text: str) -> ArgumentParser:
        parser = self.add_verb(verb, help=text)
        parser.add_argument("key", metavar="KEY", help="the key of the item, as it is listed")
        add_reason(parser)
        return parser

    def list(self, **_: Any) -> None:
        board = _board()
        found = [*board.entries, *board.acknowledged]
        self.tell([_document(entry) for entry in found], _lines(found) if found else "Nothing needs attention.")

    def acknowledge(self, *, key: str, hours: int, reason: str, **_: Any) -> None:
        entry = _board().find(key)
        word = acknowledgements.acknowledge(entry, key, timedelta(hours=hours), by=actor(), reason=reason)
        self.tell({"key": key, "until": word.until.isoformat()}, f"acknowledged until {moment(word.until)} UTC")

    def withdraw(self, *, key: str, reason: str, **_: Any) -> None:
        acknowledgements.withdraw(key, by=actor(), reason=reason)
        self.tell({"key": key}, "it is shown again")


def _board() -> Board:
    # By name: access imports no other part of the site, and all of them know something that needs attention.
    read = import_string("ergon_site.dashboard.reading.read")
    board: Board = read(page_time(), is_administrator=True).board
    return board


def _document(entry: Entry) -> dict[str, Any]:
    word = entry.acknowledged
    given = word and {"key": word.key, "by": word.by, "until": word.until.isoformat(), "reason": word.reason}
    return {
        **_item(entry.item),
        "consequences": [_item(one) for one in entry.consequences],
        "acknowledged": given,
    }


def _item(item: Item) -> dict[str, Any]:
    told = {name: getattr(item, name) for name in ("key", "title", "detail", "count", "is_capped")}
    return {**told, "severity": item.severity.word, "since": item.since and item.since.isoformat()}


def _lines(entries: list[Entry]) -> Iterator[str]:
    for entry in entries:
        summary = f": {entry.summary}" if entry.summary else ""
        yield printable(f"{entry.severity.word:8}  {entry.item.title}{summary}  [{entry.item.key}]")
        yield from (printable(f"{'':10}{one.title}  [{one.key}]") for one in entry.consequences)
        if word := entry.acknowledged:
            yield printable(f"{'':10}acknowledged by {word.by} until {moment(word.until)} UTC: {word.reason}")
