"""Several processes of the same command: started, watched, replaced when they die, their leases given back at once."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import structlog

from engines import transactions, workers
from engines.connectors.outage import Outage
from engines.management.events import EVERY, Rate, summary

FIRST_WAIT, LONGEST_WAIT = 0.5, 10.0
STEADY = 30.0
ENDS = {0, 1, 2, 3, 69, 78}  # a child that ended so has said why; any other end was not its own choice

log = structlog.get_logger("ergon.supervisor")


class Child:
    """One process, and what it has told."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.process = subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE, text=True)  # noqa: S603 (ours)
        self.started_at = time.monotonic()
        self.worker: int | None = None
        self.counts: dict[str, dict[str, int]] = {}


class Supervisor:
    """Runs N processes as if they were one."""

    def __init__(self, count: int, output: Any, *, as_json: bool) -> None:
        self._count, self._output, self._as_json = count, output, as_json
        self._children: list[Child] = []
        self._ended: dict[str, dict[str, int]] = {}
        self._is_stopping = False
        self._writing = threading.Lock()
        self._rate = Rate()
        self._wait = FIRST_WAIT
        self.code = 0

    def run(self, argv: Sequence[str]) -> int:
        self._argvs = [_alone(argv, index, self._count) for index in range(self._count)]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        running = {index: self._start(index) for index in range(self._count)}
        while running:
            time.sleep(EVERY / 5)
            for index, child in list(running.items()):
                if child.process.poll() is None:
                    continue
                del running[index]
                self._bury(child)
                if self._must_replace(child):
                    running[index] = self._start(index)
            self._show()
        self._conclude()
        return self.code

    def _start(self, index: int) -> Child:
        child = Child(self._argvs[index])
        self._children.append(child)
        threading.Thread(target=self._read, args=[child], daemon=True).start()
        return child

    def _read(self, child: Child) -> None:
        assert child.process.stdout is not None  # noqa: S101 (a pipe was asked for)
        for line in child.process.stdout:
            event = json.loads(line)
            child.worker = event.get("worker", child.worker)
            child.counts[event["pipeline"]] = {name: event[name] for name in ("succeeded", "failed", "stale")}
            if self._as_json:
                with self._writing:
                    self._output.write(json.dumps({**event, "process": child.process.pid}))

    def _bury(self, child: Child) -> None:
        code = child.process.returncode
        self.code = max(self.code, code if code in ENDS | {4} else 1)
        if code in {0, 3} or child.worker is None:
            return
        log.warning("process_died", pid=child.process.pid, code=code, worker=child.worker)
        worker = child.worker
        Outage("give back what a dead process held").wait_out(lambda: _release(worker, code))

    def _must_replace(self, child: Child) -> bool:
        if self._is_stopping or child.process.returncode in ENDS:
            return False
        if time.monotonic() - child.started_at > STEADY:
            self._wait = FIRST_WAIT
        time.sleep(self._wait)
        self._wait = min(self._wait * 2, LONGEST_WAIT)
        self.code = 0
        return not self._is_stopping

    def _stop(self, number: int, _frame: Any) -> None:
        self._is_stopping = True
        for child in self._children:
            if child.process.poll() is None:
                child.process.send_signal(number)

    def _totals(self) -> dict[str, dict[str, int]]:
        totals: dict[str, dict[str, int]] = {}
        for child in self._children:
            for pipeline, counts in child.counts.items():
                total = totals.setdefault(pipeline, dict.fromkeys(counts, 0))
                for name, count in counts.items():
                    total[name] += count
        return totals

    def _show(self) -> None:
        if self._as_json or not sys.stderr.isatty():
            return
        totals = self._totals().values()
        total = {name: sum(one[name] for one in totals) for name in ("succeeded", "failed", "stale")}
        rate = self._rate.of(total["succeeded"] + total["failed"])
        sys.stderr.write(f"\r\033[K{self._count} processes: {summary(total)}, {rate:,.0f}/s")
        sys.stderr.flush()

    def _conclude(self) -> None:
        if self._as_json:
            return
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
        for pipeline, counts in self._totals().items():
            self._output.write(f"{pipeline}: {summary(counts)}")


def _alone(argv: Sequence[str], index: int, count: int) -> list[str]:
    """The same command for one process of several; a limit is shared out among them."""
    kept: list[str] = []
    arguments = iter(argv)
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == "--processes":
            value or next(arguments)
        elif name == "--limit":
            limit = int(value or next(arguments))
            kept += ["--limit", str(limit // count + (index < limit % count) or 1)]
        else:
            kept.append(argument)
    return [*kept, "--processes", "1", "--json"]


def _release(worker: int, code: int) -> None:
    workers.bury(worker, note=f"the process ended with {code}")
    transactions.rescue(worker=worker)
