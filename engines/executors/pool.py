"""The processes of an executor: started when they are needed, used again, replaced when they die."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from engines.core import failures
from engines.core.backoff import exponential
from engines.core.errors import NoPlaceError
from engines.drivers.work import Postponed, Waiting
from engines.executors.errors import SCARCITY, ExecutorNoRoomError, ExecutorStartError
from engines.executors.settings import ExecutorSettings
from engines.executors.stderr import Listener
from engines.executors.stdio import ExecutorProcess

FIRST_WAIT, LONGEST_WAIT = 0.1, 30.0
# How often somebody who waits for a process looks whether it is still wanted.
LOOK = 0.05
# Jobs wait so long for a process in their slot before they leave it.
BRIEF = 0.25
# Where no more jobs may wait aside, one keeps its slot for so long, and comes back after as much again.
PATIENCE = 1.0
# Jobs that come back once the executor may start again: so far apart, and all within so much.
APART, SPREAD = 0.01, 30.0
# The last lines of stderr, of all its processes, that operators see.
SAID = 10

log = structlog.get_logger("ergon.executor")


@dataclass(slots=True)
class Counts:
    started: int = 0
    answered: int = 0
    died: int = 0
    killed: int = 0
    skipped: int = 0


class Pool:
    """At most `pool_size` processes of one executor, one job at a time in each."""

    def __init__(self, settings: ExecutorSettings, environment: Mapping[str, str], listener: Listener) -> None:
        self.settings, self._environment, self._listener = settings, environment, listener
        self.counts = Counts()
        self._said: deque[str] = deque(maxlen=SAID)
        self._changed = threading.Condition()
        self._idle: list[ExecutorProcess] = []
        self._busy: set[ExecutorProcess] = set()
        self._coming = 0  # being started, or being ended: they count, and cannot be used
        self._deaths = 0  # in a row, without an answer between them
        self._not_before = 0.0
        self._put_off = 0  # jobs that wait until then
        self._last_fault = ""
        self._is_closed = False

    def hold(self, job_id: str, waiting: Waiting) -> ExecutorProcess | Postponed | None:
        """A process for one job, as soon as there is one; None if it is no longer wanted.

        Who waits holds no slot: it waits aside, or comes back later. It keeps its slot where neither can be had.
        """
        while True:
            with self._changed:
                if not waiting.is_wanted() or self._is_closed:
                    return None
                if process := self._take(job_id):
                    self._busy.add(process)
                    return process
                is_starting = self._may_start()
                if is_starting:
                    self._coming += 1
                elif waiting.may_postpone and (backoff := self._backs_off_for()) > PATIENCE:
                    # Not all at the same moment: the first one finds out whether it starts by now.
                    seconds = backoff + min(self._put_off * APART, SPREAD)
                    self._put_off += 1
                    return self._postponed(seconds, f"it has died {self._deaths} times in a row and is backing off")
            if is_starting:
                with suppress(ExecutorNoRoomError):  # which is nobody's fault: the job waits for the next start
                    return self._begin()
            if self._await(job_id, waiting, BRIEF):
                continue
            with waiting.aside() as is_aside:
                patience = PATIENCE if waiting.may_postpone and not is_aside else None
                if not self._await(job_id, waiting, patience):
                    return self._postponed(PATIENCE, "all its processes are busy")

    def _await(self, job_id: str, waiting: Waiting, seconds: float | None) -> bool:
        """Wait until it is worth another look; False if it is not within so many seconds."""
        until = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            while waiting.is_wanted() and not self._is_closed:
                if self._may_start() or any(one.may_try(job_id) for one in self._idle):
                    return True
                if waiting.may_postpone and self._backs_off_for() > PATIENCE:
                    return True
                if until is not None and time.monotonic() >= until:
                    return False
                if self._idle:  # all of them have tried this job: one of them goes
                    self._coming += 1
                    self._end_later(self._idle.pop(0))
                self._changed.wait(LOOK)
        return True

    def _backs_off_for(self) -> float:
        """Seconds until a process may be started, if there is none that could be free before."""
        if self._idle or self._busy or self._coming:
            return 0.0
        return self._not_before - time.monotonic()

    def _postponed(self, seconds: float, why: str) -> Postponed:
        return Postponed(seconds, NoPlaceError(f"waiting for the executor {self.settings.name!r}: {why}"))

    def free(self, process: ExecutorProcess, *, has_answered: bool = True) -> None:
        """Return a process to the pool: it waits for the next job."""
        with self._changed:
            if has_answered:
                self._deaths = 0
                self.counts.answered += 1
            self._busy.discard(process)
            is_wanted = not self._is_closed and not process.is_ending
            if is_wanted and not process.is_worn:
                self._idle.append(process)
                self._changed.notify_all()
                return
            self._coming += is_wanted
        if is_wanted:
            self._end_later(process)
        else:
            process.end()

    def lose(self, process: ExecutorProcess, fault: str) -> None:
        """End a process that has died or broken the protocol; its successor has to wait."""
        with self._changed:
            if not process.is_ending:  # which is no fault of its own
                self.counts.died += 1
                self._blame(fault)
        self._end(process)

    def kill(self, process: ExecutorProcess) -> None:
        """Its time is up. It is ended in the background; `gone` tells when."""
        with self._changed:
            self.counts.killed += 1
        self._end(process)

    def halt(self) -> None:
        """End everything that runs a job; returns when it has."""
        with self._changed:
            busy = list(self._busy)
        _end_all(busy)

    def halt_job(self, job_id: str) -> None:
        """End the process that runs a job, in the background: whoever waits for its answer sees that it has died."""
        with self._changed:
            running = [process for process in self._busy if process.job_id == job_id]
        for process in running:
            _in_background(process.end)

    def close(self) -> None:
        """End everything, and start no more."""
        with self._changed:
            self._is_closed = True
            everything = [*self._idle, *self._busy]
            self._idle = []
            self._changed.notify_all()
        _end_all(everything)
        with self._changed:
            self._changed.wait_for(lambda: self._coming == 0)

    def snapshot(self) -> dict[str, Any]:
        with self._changed:
            wait = max(0.0, self._not_before - time.monotonic())
            processes = [
                {
                    "pid": one.pid,
                    "job": one.job_id and failures.storable(one.job_id),
                    "answered": one.answered,
                    "since": datetime.fromtimestamp(one.started_at, UTC).isoformat(timespec="seconds"),
                }
                for one in (*self._busy, *self._idle)
            ]
            return {
                "name": self.settings.name,
                "program": self.settings.command[0],
                "pool_size": self.settings.pool_size,
                "processes": processes,
                **asdict(self.counts),
                "skipped": self.counts.skipped + sum(one.skipped for one in (*self._busy, *self._idle)),
                "deaths_in_a_row": self._deaths,
                "starts_again_in": round(wait, 1),
                "last_fault": self._last_fault,
                "said": list(self._said.copy()),  # others speak meanwhile
            }

    def _take(self, job_id: str) -> ExecutorProcess | None:
        """The one that was used last: the others may stay cold."""
        for process in reversed(self._idle.copy()):
            if not process.may_try(job_id):
                continue
            self._idle.remove(process)
            fault = process.fault()
            if fault is None:
                return process
            self._blame(fault)
            self.counts.died += 1
            self._coming += 1
            self._end_later(process)
        return None

    def _may_start(self) -> bool:
        total = len(self._idle) + len(self._busy) + self._coming
        return total < self.settings.pool_size and time.monotonic() >= self._not_before

    def _begin(self) -> ExecutorProcess | None:
        try:
            self._listener.start()
            process = ExecutorProcess(self.settings, self._environment, self._listener, self._said)
        except Exception as error:
            failure = self._cannot_start(error)
            with self._changed:
                self._coming -= 1
                self._blame(str(failure))
                self._changed.notify_all()
            raise failure from error
        with self._changed:
            self.counts.started += 1
            if not self._is_closed:
                self._coming -= 1
                self._busy.add(process)
        if self._is_closed:
            self._end_later(process)
            return None
        log.info("executor_started", executor=self.settings.name, pid=process.pid)
        return process

    def _cannot_start(self, error: Exception) -> ExecutorStartError:
        if isinstance(error, ExecutorStartError):
            return error
        # Of a thread that cannot be started Python says no more than that it is a RuntimeError.
        is_scarce = isinstance(error, RuntimeError | MemoryError) or getattr(error, "errno", None) in SCARCITY
        kind = ExecutorNoRoomError if is_scarce else ExecutorStartError
        return kind(f"executor {self.settings.name!r} cannot be started: {error}")

    def _blame(self, fault: str) -> None:
        wait = exponential(self._deaths, backoff=FIRST_WAIT, multiplier=2, cap=LONGEST_WAIT)
        fault = failures.without_secrets(fault)
        self._deaths += 1
        self._put_off = 0
        self._not_before = time.monotonic() + wait
        self._last_fault = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {fault}"
        log.warning("executor_fault", executor=self.settings.name, fault=fault, next_start_in=wait)

    def _end(self, process: ExecutorProcess) -> None:
        with self._changed:
            self._busy.discard(process)
            self._coming += 1
        self._end_later(process)

    def _end_later(self, process: ExecutorProcess) -> None:
        """End a process in the background; its place stays taken until nothing of it is left."""

        def end() -> None:
            try:
                process.end()
            finally:
                with self._changed:
                    self._coming -= 1
                    self.counts.skipped += process.skipped
                    self._changed.notify_all()

        _in_background(end)


class Pools:
    """The pools of a worker, each made when it is first asked for."""

    def __init__(self, executors: Mapping[str, ExecutorSettings], environment: Mapping[str, str]) -> None:
        self._executors, self._environment = executors, environment
        self._lock = threading.Lock()
        self._pools: dict[str, Pool] = {}
        self._listener: Listener | None = None

    def __contains__(self, name: object) -> bool:
        return name in self._executors

    def __iter__(self) -> Iterator[str]:
        return iter(self._executors)

    def find(self, name: str) -> Pool:
        with self._lock:
            if name not in self._pools:
                self._listener = self._listener or Listener()
                self._pools[name] = Pool(self._executors[name], self._environment, self._listener)
            return self._pools[name]

    def halt(self) -> None:
        for pool in self._all():
            pool.halt()

    def halt_job(self, job_id: str) -> None:
        for pool in self._all():
            pool.halt_job(job_id)

    def snapshot(self) -> list[dict[str, Any]]:
        return [pool.snapshot() for pool in self._all()]

    def close(self) -> None:
        """End every process; returns when none is left."""
        for pool in self._all():
            pool.close()
        if self._listener is not None:
            self._listener.close()

    def _all(self) -> list[Pool]:
        with self._lock:
            return list(self._pools.values())


def _end_all(processes: list[ExecutorProcess]) -> None:
    for thread in [_in_background(process.end) for process in processes]:
        if thread is not None:
            thread.join()


def _in_background(end: Callable[[], None]) -> threading.Thread | None:
    """In a thread of its own, or now if the machine has no more at present: it must end on time all the same."""
    thread = threading.Thread(target=end, name="ergon-executor-end", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        end()
        return None
    return thread
