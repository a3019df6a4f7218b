"""`manage.py status`: how the engines are doing."""

from collections.abc import Iterator
from typing import Any

from django.db import connection

from engines.management.base import EngineCommand
from engines.reads.status import read_status
from ergon_site.access.cli.program import typed
from ergon_site.access.cli.tables import printable
from ergon_site.access.core.durations import span
from ergon_site.access.database.description import describe

COUNTS = ("answered", "started", "died", "killed", "skipped")


class Command(EngineCommand):
    help = (
        "Show the status of the engines: which database this is; each pipeline with its pending, running, succeeded and"
        " failed transactions; the live workers and their executors; the number of open dead letters."
    )

    def run(self, **_: Any) -> None:
        status = {"database": describe(connection), **read_status()}
        self.tell(status, self._lines(status))

    def _lines(self, status: dict[str, Any]) -> Iterator[str]:
        yield f"database: {printable(status['database'])}"
        yield ""
        headings = ["pipeline", "runs", "pending", "running", "succeeded", "failed", "oldest pending", "state"]
        yield from self.table(headings, map(_pipeline, status["pipelines"]))
        yield ""
        if status["workers"]:
            headings = ["worker", "state", "in flight", "abandoned", "settled", "heartbeat", "pipelines"]
            yield from self.table(headings, map(_worker, status["workers"]))
        else:
            yield "no worker is alive"
        yield ""
        if executors := [(worker, one) for worker in status["workers"] for one in worker["executors"]]:
            headings = ["executor", "worker", "processes", "busy", *COUNTS, "state"]
            yield from self.table(headings, (_executor(*one) for one in executors))
            yield ""
        letters = status["dead_letters"]["open"]
        looking = f": {typed('dead_letters')}" if letters else ""
        yield f"{letters:,} open dead letters{looking}"


def _pipeline(row: dict[str, Any]) -> list[Any]:
    counts = [row[name] for name in ("running", "succeeded", "failed")]
    pending = f"{row['pending']:,}+" if row["is_pending_capped"] else row["pending"]
    age, due_in = row["oldest_pending_age"], row["due_in"]
    oldest = f"due in {span(due_in)}" if due_in else None if age is None else span(age)
    return [row["name"], row["task"], pending, *counts, oldest, "paused" if row["paused"] else "on"]


def _worker(row: dict[str, Any]) -> list[Any]:
    counts = [row[name] for name in ("in_flight", "abandoned", "settled")]
    heard = f"{span(row['heartbeat_age'])} ago"
    return [f"{row['host']}:{row['pid']}", row["state"], *counts, heard, row["pipelines"]]


def _executor(worker: dict[str, Any], told: dict[str, Any]) -> list[Any]:
    processes = told["processes"]
    busy = sum(1 for one in processes if one["job"])
    in_a_row = told["deaths_in_a_row"]
    state = f"{in_a_row} deaths in a row: {told['last_fault']}" if in_a_row else "on"
    total = f"{len(processes)} of {told['pool_size']}"
    return [told["name"], f"{worker['host']}:{worker['pid']}", total, busy, *(told[name] for name in COUNTS), state]
