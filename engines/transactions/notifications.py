"""Notifies workers of new transactions on PostgreSQL: after the commit, and seldom where very many are submitted.

`NOTIFY` locks the whole database until its transaction is on the disk. Within the transactions that insert, it would
make all commits wait for each other. So it is sent after the commit, in a transaction of its own that does not wait
for the disk, and a process that submits very many tells workers so: then they look by themselves for a while.

A notification that is put off is always sent later: by another submission, by a thread on a connection of its own, or
when the process ends. A process that is killed cannot send it: workers find the transactions when they poll.
"""

import atexit
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Collection

import structlog

from engines.core.errors import headline
from engines.core.pacing import Throttle
from ergon_site.access.database.calls import close_connection, time_limit

# In seconds: how long a submission is taken to last where that was not measured.
USUAL = 0.005
# How long the thread keeps its connection for the next burst.
LINGER = 0.5
RETRY = 1.0
# How long a notification of the thread may take; those of submissions have the time limit of their submission.
ANSWER_WITHIN = 5.0
# How long a process that ends waits for its last notification.
AT_EXIT = 2.0
# Their processes end without the interpreter's exit handlers.
PROCESS_POOLS = ("multiprocessing.util", "billiard.util")

log = structlog.get_logger("ergon.notifier")


class Notifier:
    """Sends the notifications of this process."""

    def __init__(self, send: Callable[[Collection[int], bool], None]) -> None:
        """`send` takes the pipelines and whether a burst is on its way to them."""
        self._send = send
        self._start_anew()
        os.register_at_fork(after_in_child=self._start_anew)
        atexit.register(self.finish)

    def _start_anew(self) -> None:
        """A forked process has none of its parent's threads; what was put off in the parent is sent there."""
        self._changed = threading.Condition()
        self._throttle = Throttle()
        self._put_off: dict[int, float] = {}
        self._is_ending = False
        self._thread: threading.Thread | None = None

    def committed(self, pipeline_id: int, took: float = USUAL) -> None:
        """Notify of new transactions that can be seen from now on: at once or soon. To submit them took so long."""
        with self._changed:
            now = time.monotonic()
            is_burst = self._throttle.is_burst(now, took)
            due_at = self._throttle.due_at(pipeline_id, is_burst=is_burst)
            if now < due_at and self._send_later(pipeline_id, due_at):
                return
            self._put_off.pop(pipeline_id, None)
            self._throttle.sending(now, pipeline_id, is_burst=is_burst)
        self._try([pipeline_id], is_burst=is_burst)

    def finish(self) -> None:
        """Send what was put off, now: the process ends."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None, AT_EXIT)

    def _send_later(self, pipeline_id: int, due_at: float) -> bool:
        """Leave it to the thread, or to a submission after that time; False if there can be no thread any more."""
        if self._is_ending:
            return False
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="ergon-notifier", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is shutting down
                return False
            self._thread = thread
            for name in PROCESS_POOLS:
                if name in sys.modules:
                    sys.modules[name].Finalize(None, self.finish, exitpriority=0)
        if due_at < self._put_off.get(pipeline_id, math.inf):
            self._put_off[pipeline_id] = due_at
            self._changed.notify_all()
        return True

    def _try(self, pipelines: Collection[int], *, is_burst: bool, limit: float | None = None) -> bool:
        """The transactions are kept whatever comes of this; a notification that fails is tried again."""
        try:
            with time_limit(limit):
                self._send(pipelines, is_burst)
        except Exception as error:  # noqa: BLE001 (the caller has committed, and the thread has more to send)
            log.debug("notification_failed", error=headline(error))
            with self._changed:
                for pipeline_id in pipelines:
                    self._send_later(pipeline_id, time.monotonic() + RETRY)
            return False
        return True

    def _run(self) -> None:
        """Send what was put off, when it is time; end when nothing has been put off for a while."""
        while pipelines := self._next():
            if not self._try(pipelines, is_burst=True, limit=ANSWER_WITHIN):
                close_connection()  # the next try has another, perhaps to another server
        close_connection()

    def _next(self) -> Collection[int]:
        """The pipelines to notify next, once they may be; nothing if the thread is not needed any more."""
        with self._changed:
            while True:
                now = time.monotonic()
                due = [one for one, due_at in self._put_off.items() if due_at <= now or self._is_ending]
                for pipeline_id in due:
                    del self._put_off[pipeline_id]
                    self._throttle.sending(now, pipeline_id, is_burst=True)
                if due:
                    return due
                earliest = min(self._put_off.values(), default=now + LINGER)
                if self._is_ending or not (self._changed.wait(earliest - now) or self._put_off):
                    self._thread = None
                    self._changed.notify_all()
                    return ()
