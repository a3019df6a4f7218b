"""Several processes of the same command: started, watched, replaced when they die, their leases given back at once."""

import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import structlog

from engines import transactions, workers
from engines.worker.database_retry import DatabaseRetry
from engines.worker.progress import COUNTED, EVERY, LiveTotal, summary
from engines.worker.signals import NUMBERS, deaf_at_exit
from ergon_site.access.database.calls import close_connection

FIRST_WAIT, LONGEST_WAIT = 0.5, 10.0
LOOK = 1.0  # what happens is told; but nobody tells of a process whose last words somebody else holds back
STEADY = 30.0
LAST_LINES = 2.0  # for what a process told last, which somebody that it has started may hold open
LAST_WORDS = 5.0  # for processes to be gone and their leases to be given back, once that is in a hurry
ENDS = {0, 1, 2, 3, 69, 78}  # a child that ended so has said why; after any other end it is replaced
ORDERLY = {0, 3}

log = structlog.get_logger("ergon.supervisor")


class Child:
    """A process, and the thread that reads what it says."""

    def __init__(self, argv: Sequence[str], read: Callable[["Child"], None]) -> None:
        # In a session of its own: what a terminal tells everybody in the foreground, the parent passes on.
        self.process = subprocess.Popen(  # noqa: S603 (ours)
            [sys.executable, *argv], stdout=subprocess.PIPE, text=True, errors="replace", start_new_session=True
        )
        self.started_at = time.monotonic()
        self.worker: int | None = None
        self.counts: dict[str, dict[str, int]] = {}
        self.reader = threading.Thread(target=read, args=[self], daemon=True)
        try:
            self.reader.start()
        except RuntimeError:  # the machine has no more threads: nobody would hear what it says
            with self.process:
                self.process.kill()
            raise

    def tell(self, number: int) -> None:
        """Until it has started, SIGINT is an exception that may be raised where it gets lost: SIGTERM does not."""
        self.process.send_signal(number if self.worker is not None else signal.SIGTERM)


class Place:
    """The place of a child process: the running one, or when the next is due."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = argv
        self._wait = FIRST_WAIT
        self.child: Child | None = None
        self.due_at: float | None = 0.0

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

    def __init__(
        self, commands: Sequence[Sequence[str]], output: Any, *, as_json: bool, total: int | None = None
    ) -> None:
        self._commands, self._output, self._as_json = commands, output, as_json
        self._children: list[Child] = []
        self._stopped_by: int | None = None
        self._orders = 0
        self._ends_at = math.inf
        self._retry = DatabaseRetry("give back what a dead process held")
        self._burials: list[threading.Thread] = []
        self._writing = threading.Lock()
        self._live = LiveTotal(total)
        self._told, self._teller = os.pipe()  # that a process has ended, or an order was given
        os.set_blocking(self._teller, False)
        self.code = 0

    def run(self) -> int:
        """Until all have ended by themselves, or were told to."""
        for number in NUMBERS:
            signal.signal(number, self._stop)
        deaf_at_exit()
        places = [Place(command) for command in self._commands]
        while any(one.child or one.due_at is not None for one in places) and time.monotonic() < self._ends_at:
            for place in places:
                self._look_at(place)
            is_shown = not self._as_json and sys.stderr.isatty()
            if is_shown:
                self._live.show(self._totals().values(), before=f"{len(self._commands)} processes: ")
            due_in = min((one.due_at - time.monotonic() for one in places if one.due_at is not None), default=LOOK)
            self._rest(min(max(0.0, due_in), EVERY / 5 if is_shown else LOOK))
        # Until the database has taken what they give back; after an order not for long.
        while any(burial.is_alive() for burial in self._burials) and time.monotonic() < self._ends_at:
            if self._stopped_by is not None:
                self._hurry()
            time.sleep(EVERY / 5)
        if not self._as_json:
            if sys.stderr.isatty():
                self._live.clear()
            for pipeline, counts in self._totals().items():
                self._output.write(f"{pipeline}: {summary(counts)}")
        return self.code

    def _rest(self, seconds: float) -> None:
        """Until something has happened, and no longer than this."""
        if select.select([self._told], [], [], seconds)[0]:
            os.read(self._told, 1000)

    def _tell(self) -> None:
        """End the rest. For any thread and for signal handlers."""
        with suppress(BlockingIOError):  # so much is told already
            os.write(self._teller, b".")

    def _look_at(self, place: Place) -> None:
        if self._stopped_by is not None:
            place.due_at = None
        if place.child is None:
            if place.due_at is not None and time.monotonic() >= place.due_at:
                self._fill(place)
        elif place.child.process.poll() is not None:
            place.child.reader.join(LAST_LINES)
            is_wanted = self._stopped_by is None and place.child.process.returncode not in ENDS
            self._bury(place.child, is_replaced=is_wanted)
            place.vacate(is_wanted=is_wanted)

    def _fill(self, place: Place) -> None:
        """Start its process; if the machine has no process, memory or thread to spare, later."""
        try:
            child = Child(place.argv, self._read)
        except (OSError, RuntimeError) as error:
            log.warning("process_not_started", error=str(error))
            place.vacate(is_wanted=True)
            return
        place.child, place.due_at = child, None
        self._children.append(child)
        if self._stopped_by is not None:  # told while it was being started
            child.tell(self._stopped_by)

    def _read(self, child: Child) -> None:
        """Pass on events, for programs; anything else was printed by somebody's code while it was imported."""
        assert child.process.stdout is not None  # noqa: S101 (a pipe was asked for)
        with child.process.stdout as lines:
            for line in lines:
                event = _event_in(line)
                if event is not None:
                    child.worker = event.get("worker", child.worker)
                    child.counts[event["pipeline"]] = {name: event[name] for name in COUNTED}
                # Whoever listens to this process may have gone; it reads on, or the child would be stuck.
                with suppress(OSError), self._writing:
                    if event is None:
                        sys.stderr.write(line)
                        sys.stderr.flush()
                    elif self._as_json:
                        self._output.write(json.dumps({**event, "process": child.process.pid}))
                        self._output.flush()
        child.process.wait()
        self._tell()

    def _bury(self, child: Child, *, is_replaced: bool) -> None:
        """Give back at once what it held, if it could not do so itself."""
        code, number = child.process.returncode, self._stopped_by
        # A process that was told while it was being started ends by the signal itself; it had nothing in hand.
        is_as_ordered = number is not None and self._orders == 1 and code in {-number, 128 + number, -signal.SIGTERM}
        if not is_replaced and code and not is_as_ordered:
            self.code = max(self.code, code if code > 0 else 1)
        if code in ORDERLY or child.worker is None:
            return
        log.warning("process_died", pid=child.process.pid, code=code, worker=child.worker)
        # In a thread of its own: a database that is away must keep nobody from starting and stopping processes.
        burial = threading.Thread(target=self._give_back, args=[child.worker, code], daemon=True)
        try:
            burial.start()
        except RuntimeError as error:  # the machine has no more threads at present
            hint = "its leases run out by themselves"
            log.warning("leases_not_given_back", worker=child.worker, error=str(error), hint=hint)
        else:
            self._burials.append(burial)

    def _give_back(self, worker: int, code: int) -> None:
        self._retry.wait_out(lambda: workers.mark_dead(worker, note=f"the process ended with {code}"))
        # At most so many at once, until nothing is left; only each of them is quick.
        while any(self._retry.wait_out(lambda: transactions.rescue(worker=worker)) or ()):
            pass
        close_connection()

    def _hurry(self) -> None:
        self._ends_at = min(self._ends_at, time.monotonic() + LAST_WORDS)

    def _stop(self, number: int, _frame: Any) -> None:
        self._stopped_by = number
        self._orders += 1
        if self._orders > 1:
            self._hurry()
        else:  # not twice: the second order may interrupt this very handler
            self._retry.give_up()
        for child in self._children:
            if child.process.poll() is None:
                child.tell(number)
        self._tell()

    def _totals(self) -> dict[str, Counter[str]]:
        totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for child in self._children:
            for pipeline, counts in child.counts.items():
                totals[pipeline].update(counts)
        return totals


def _event_in(line: str) -> dict[str, Any] | None:
    try:
        told = json.loads(line)
    except ValueError:
        return None
    is_event = isinstance(told, dict) and {"event", "pipeline", *COUNTED} <= told.keys()
    return told if is_event else None
