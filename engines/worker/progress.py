"""Progress of a running process: a live line for people, or one JSON object per event for programs."""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import OutputWrapper
from django.db import connection

from engines.models import Pipeline
from engines.worker.process import WorkerProcess
from ergon_site.access.cli import progress, tables
from ergon_site.access.database.description import describe
from ergon_site.access.unread import is_taken

EVERY = 0.5
# Seconds that the last events wait for a reader that has stopped.
PATIENCE = 2.0
COUNTED = ("succeeded", "failed", "cancelled", "stale")
CLEAR = "\r\033[K"


def alone(output: Any) -> Any:
    """The way to the parent of several processes for events only: what tasks print goes where logs go."""
    output.flush()
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return OutputWrapper(kept)


def banner(command: str, pipelines: Sequence[Pipeline], *, concurrency: int | None, processes: int) -> list[str]:
    count = f"{len(pipelines)} {'pipeline' if len(pipelines) == 1 else 'pipelines'}"
    within = f" in {processes} processes" if processes > 1 else ""
    headings = ["pipeline", "runs", "connector", "concurrency", "policy"]
    rows = []
    for pipeline in pipelines:
        policy: Any = pipeline.policy.in_force.policy
        active = pipeline.policy.active
        version = f" v{active.number}" if active else ""
        runs = f"task {pipeline.task}" if pipeline.task else f"executor {pipeline.executor}"
        slots = concurrency or policy.loop.concurrency.value
        rows.append([pipeline.name, runs, pipeline.connector, slots, f"{pipeline.policy.name}{version}"])
    first = f"{command}: {count}{within}, database {describe(connection)}"
    return [first, *(f"  {line}" for line in tables.table(headings, rows))]


class ProgressReporter:
    """Follows a worker and tells what has changed since it was last asked."""

    def __init__(self, worker: WorkerProcess, output: Any, *, as_json: bool, total: int | None = None) -> None:
        self._worker, self._output, self._as_json = worker, output, as_json
        self._is_live = not as_json and sys.stderr.isatty()
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._idle: set[str] = set()
        self._live = LiveTotal(total)

    def started(self) -> None:
        for pipeline in self._worker.pipelines:
            self._event("started", pipeline, worker=self._worker.heartbeat.worker.pk)

    def look(self) -> None:
        """Emit an event for each pipeline that settled something, and one when it begins to wait.

        While nobody reads them there are none; the next one counts what was settled until then.
        """
        for pipeline in self._worker.pipelines:
            if self._as_json and not is_taken(self._output):
                return
            counts = self._worker.heartbeat.completer.counts[pipeline.pk]
            ended = (counts.succeeded, counts.failed, counts.cancelled)
            if ended != self._seen.get(pipeline.name, (0, 0, 0)):
                self._idle.discard(pipeline.name)
                self._event("settled", pipeline)
            elif pipeline.name not in self._idle and self._worker.heartbeat.in_flight == 0:
                self._idle.add(pipeline.name)
                self._event("waiting", pipeline)
            self._seen[pipeline.name] = ended
        if self._is_live:
            counted = (self._counts(pipeline.pk) for pipeline in self._worker.pipelines)
            self._live.show(counted, f", {self._worker.heartbeat.in_flight} in flight")

    def stopped(self, code: int) -> None:
        if self._is_live:
            self._live.clear()
        until = time.monotonic() + PATIENCE
        for pipeline in self._worker.pipelines:
            if not is_taken(self._output, max(0.0, until - time.monotonic())):
                return
            self._event("stopped", pipeline, given_back=self._worker.given_back_of(pipeline), code=code)
            if not self._as_json:
                self._output.write(f"{pipeline.name}: {summary(self._counts(pipeline.pk))}")
                self._output.flush()

    def _counts(self, pipeline_id: int) -> dict[str, int]:
        counts = self._worker.heartbeat.completer.counts[pipeline_id]
        return {name: getattr(counts, name) for name in COUNTED}

    def _event(self, event: str, pipeline: Pipeline, **more: Any) -> None:
        if not self._as_json:
            return
        told = {
            "event": event,
            "pipeline": pipeline.name,
            **self._counts(pipeline.pk),
            "in_flight": self._worker.heartbeat.in_flight,
            "at": datetime.now(UTC).isoformat(),
            **more,
        }
        self._output.write(json.dumps(told))
        self._output.flush()


class LiveTotal:
    """A line on a terminal with counts and their rate, smoothed over a few samples.

    Where the number of all is known, as in a drain, a bar and the time left too.
    """

    def __init__(self, total: int | None = None) -> None:
        self._total, self._started = total, time.monotonic()
        self._count, self._at, self._rate = 0, self._started, 0.0

    def show(self, counts: Iterable[Mapping[str, int]], after: str = "", *, before: str = "") -> None:
        total: Counter[str] = Counter()
        for one in counts:
            total.update(one)
        now, count = time.monotonic(), total["succeeded"] + total["failed"] + total["cancelled"]
        fresh = (count - self._count) / max(now - self._at, 1e-6)
        self._rate = fresh if self._rate == 0 else 0.6 * self._rate + 0.4 * fresh
        self._count, self._at = count, now
        # The cursor goes back to the start of the line: a line of the log that comes next takes its place.
        fraction = count / self._total if self._total else None
        left = progress.time_left(fraction, now - self._started)
        sys.stderr.write(f"{CLEAR}{before}{progress.bar(fraction)}{summary(total)}, {self._rate:,.0f}/s{after}{left}\r")
        sys.stderr.flush()

    def clear(self) -> None:
        sys.stderr.write(CLEAR)


def summary(counts: Mapping[str, int]) -> str:
    text = f"{counts['succeeded']:,} succeeded, {counts['failed']:,} failed"
    text = f"{text}, {counts['cancelled']:,} cancelled" if counts["cancelled"] else text
    return f"{text}, {counts['stale']:,} after their lease was lost" if counts["stale"] else text
