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
from engines.management.orders import NUMBERS, deaf_at_exit

FIRST_WAIT, LONGEST_WAIT = 0.5, 10.0
STEADY = 30.0
ENDS = {0, 1, 2, 3, 69, 78}  # a child that ended so has said why; after any other end it is replaced
ORDERLY = {0, 3}

log = structlog.get_logger("ergon.supervisor")


class Child:
    """One process, and what it has told."""

    def __init__(self, argv: Sequence[str]) -> None:
        # In a session of its own: what a terminal tells everybody in the foreground, the parent passes on.
        self.process = subprocess.Popen(  # noqa: S603 (ours)
            [sys.executable, *argv], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.started_at = time.monotonic()
        self.worker: int | None = None
        self.counts: dict[str, dict[str, int]] = {}

    def tell(self, number: int) -> None:
        """Until it has started, SIGINT is an exception that may be raised where it gets lost: SIGTERM does not."""
        self.process.send_signal(number if self.worker is not None else signal.SIGTERM)


class Place:
    """Where a process is to run: the one that does, or when the next is due."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = argv
        self._wait = FIRST_WAIT
        self.child: Child | None = None
        self.due_at: float | None = 0.0

    @property
    def is_done(self) -> bool:
        return self.child is None and self.due_at is None

    def start(self) -> Child:
        self.child, self.due_at = Child(self._argv), None
        return self.child

    def vacate(self, *, is_wanted: bool) -> None:
        """Its process has ended; another one soon, later the more often it happens."""
        if self.child is not None and time.monotonic() - self.child.started_at > STEADY:
            self._wait = FIRST_WAIT
        self.child = None
        if is_wanted:
            self.due_at = time.monotonic() + self._wait
            self._wait = min(self._wait * 2, LONGEST_WAIT)


class Supervisor:
    """Runs N processes as if they were one."""

    def __init__(self, commands: Sequence[Sequence[str]], output: Any, *, as_json: bool) -> None:
        self._commands, self._output, self._as_json = commands, output, as_json
        self._children: list[Child] = []
        self._stopped_by: int | None = None
        self._orders = 0
        self._writing = threading.Lock()
        self._rate = Rate()
        self.code = 0

    def run(self) -> int:
        """Until all have ended by themselves, or were told to."""
        for number in NUMBERS:
            signal.signal(number, self._stop)
        deaf_at_exit()
        places = [Place(command) for command in self._commands]
        while not all(place.is_done for place in places):
            for place in places:
                self._look_at(place)
            self._show()
            time.sleep(EVERY / 5)
        self._conclude()
        return self.code

    def _look_at(self, place: Place) -> None:
        if self._stopped_by is not None:
            place.due_at = None
        if place.child is None:
            if place.due_at is not None and time.monotonic() >= place.due_at:
                self._start(place)
        elif place.child.process.poll() is not None:
            is_wanted = self._stopped_by is None and place.child.process.returncode not in ENDS
            self._bury(place.child, is_replaced=is_wanted)
            place.vacate(is_wanted=is_wanted)

    def _start(self, place: Place) -> None:
        child = place.start()
        self._children.append(child)
        threading.Thread(target=self._read, args=[child], daemon=True).start()
        if self._stopped_by is not None:  # told while it was being started
            child.tell(self._stopped_by)

    def _read(self, child: Child) -> None:
        assert child.process.stdout is not None  # noqa: S101 (a pipe was asked for)
        for line in child.process.stdout:
            event = json.loads(line)
            child.worker = event.get("worker", child.worker)
            child.counts[event["pipeline"]] = {name: event[name] for name in ("succeeded", "failed", "stale")}
            if self._as_json:
                with self._writing:
                    self._output.write(json.dumps({**event, "process": child.process.pid}))
                    self._output.flush()

    def _bury(self, child: Child, *, is_replaced: bool) -> None:
        """Give back at once what it held, if it could not do so itself."""
        code = child.process.returncode
        if not is_replaced and code and not self._is_as_ordered(code):
            self.code = max(self.code, code if code > 0 else 1)
        if code in ORDERLY or child.worker is None:
            return
        log.warning("process_died", pid=child.process.pid, code=code, worker=child.worker)
        worker = child.worker
        Outage("give back what a dead process held").wait_out(lambda: _release(worker, code))

    def _is_as_ordered(self, code: int) -> bool:
        """A process that was told while it was being started ends by the signal itself; it had nothing in hand."""
        number = self._stopped_by
        return number is not None and self._orders == 1 and code in {-number, 128 + number, -signal.SIGTERM}

    def _stop(self, number: int, _frame: Any) -> None:
        self._stopped_by = number
        self._orders += 1
        for child in self._children:
            if child.process.poll() is None:
                child.tell(number)

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
        sys.stderr.write(f"\r\033[K{len(self._commands)} processes: {summary(total)}, {rate:,.0f}/s")
        sys.stderr.flush()

    def _conclude(self) -> None:
        if self._as_json:
            return
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
        for pipeline, counts in self._totals().items():
            self._output.write(f"{pipeline}: {summary(counts)}")


def _release(worker: int, code: int) -> None:
    workers.bury(worker, note=f"the process ended with {code}")
    transactions.rescue(worker=worker)
