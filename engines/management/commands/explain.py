"""`manage.py explain ID`: why a transaction is where it is."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from engines.management.base import EngineCommand
from engines.reads import explain
from ergon_site.access.cli.commands import pretty
from ergon_site.access.cli.tables import cell_text, printable
from ergon_site.access.core.durations import span

LEFT_OUT = {"state", "error", "is_ahead_capped", "result_note", "progress"}
SPANS = {"paused_for", "lease_ends_in", "running_for", "ended_ago", "due_in"}


class Command(EngineCommand):
    help = "Explain the state of a transaction: one sentence, the facts behind it, and every attempt so far."

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", metavar="ID", help="the transaction's id")

    def run(self, *, id: str, **_: Any) -> None:  # noqa: A002 (its name on the command line)
        explained = explain.explain(id)
        self.tell(explained, self._lines(explained))

    def _lines(self, explained: dict[str, Any]) -> Iterator[str]:
        yield printable(f"{explained['id']}: {explained['sentence']}")
        yield ""
        facts = [
            (name.replace("_", " "), span(value) if name in SPANS else cell_text(value))
            for name, value in explained["facts"].items()
            if name not in LEFT_OUT and (value > 0 if isinstance(value, float) else value)
        ]
        longest = max(len(name) for name, _ in facts)
        yield from (f"  {name.ljust(longest)}  {value}" for name, value in facts)
        if explained["attempts"]:
            headings = ["step", "attempt", "started", "took", "outcome", "category", "error", "policy", "worker"]
            yield ""
            yield from self.table(headings, map(_attempt, explained["attempts"]))
        if explained["result"] is not None:
            yield ""
            yield "result:"
            yield from pretty(explained["result"])


def _attempt(row: dict[str, Any]) -> list[Any]:
    error = f"{row['error_type']}: {row['message']}" if row["error_type"] else None
    tries = f"{row['number']} of {row['of']}"
    times = [row["started_at"][:19].replace("T", " "), span(row["duration"])]
    return [row["step"], tries, *times, row["outcome"], row["category"], error, row["policy_version"], row["worker"]]
