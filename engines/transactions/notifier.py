"""Notifies workers of new transactions on PostgreSQL: after the commit, and seldom where very many are submitted.

`NOTIFY` locks the whole database until its transaction is on the disk. Within the transactions that insert, it would
make all commits wait for each other. So it is sent after the commit, in a transaction of its own that does not wait
for the disk, and a process that submits very many sends one notification for all of the last milliseconds.

A notification that is put off is always sent later: with another submission, by a thread on a connection of its own, or
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
from django.db import DatabaseError, InterfaceError, connection

from engines.core.errors import headline
from engines.core.throttle import Throttle

# In seconds: how long a submission is taken to last where that was not measured.
USUAL = 0.005
# How long the thread keeps its connection for the next burst.
LINGER = 0.5
RETRY = 1.0
# How long a process that ends waits for its last notification.
AT_EXIT = 2.0
# Their processes end without the interpreter's exit handlers.
PROCESS_POOLS = ("multiprocessing.util", "billiard.util")

log = structlog.get_logger("ergon.notifier")


class Notifier:
    """Sends the notifications of this process."""

    def __init__(self, send: Callable[[Collection[int]], None]) -> None:
        self._send = send
        self._start_anew()
        os.register_at_fork(after_in_child=self._start_anew)
        atexit.register(self.finish)

    def _start_anew(self) -> None:
        """A forked process has none of its parent's threads; what was put off in the parent is sent there."""
        self._changed = threading.Condition()
        self._throttle = Throttle()
        self._pending: set[int] = set()
        self._not_before = -math.inf
        self._is_ending = self._is_resting = False
        self._thread: threading.Thread | None = None

    def committed(self, pipeline_id: int, took: float = USUAL) -> None:
        """Notify of new transactions that can be seen from now on: at once or soon. To submit them took so long."""
        with self._changed:
            if not self._throttle.is_due(time.monotonic(), took) and self._put_off({pipeline_id}):
                return
            self._pending.add(pipeline_id)
            pipelines = self._take()
        self._try(pipelines)

    def finish(self) -> None:
        """Send what was put off, now: the process ends."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None, AT_EXIT)

    def _put_off(self, pipelines: Collection[int]) -> bool:
        """Leave it to another submission or to the thread; False if there can be no thread any more."""
        if self._is_ending or not self._has_thread():
            return False
        self._pending.update(pipelines)
        if self._is_resting:  # else it will look by itself when the next one may be sent
            self._changed.notify_all()
        return True

    def _has_thread(self) -> bool:
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
        return True

    def _take(self) -> Collection[int]:
        pipelines, self._pending = self._pending, set()
        self._throttle.begin(time.monotonic())
        return pipelines

    def _try(self, pipelines: Collection[int]) -> None:
        """The transactions are kept whatever comes of this; a notification that fails is tried again."""
        try:
            connection.ensure_connection()  # which takes long, and only once
            began = time.monotonic()
            self._send(pipelines)
        except (DatabaseError, InterfaceError) as error:
            log.debug("notification_failed", error=headline(error))
            with self._changed:
                if threading.current_thread() is self._thread:
                    self._not_before = time.monotonic() + RETRY
                self._put_off(pipelines)
        else:
            with self._changed:
                self._throttle.end(time.monotonic() - began)

    def _run(self) -> None:
        """Send what was put off, when it is time; end when nothing has been put off for a while."""
        while pipelines := self._next():
            self._try(pipelines)
        close_connection()

    def _next(self) -> Collection[int]:
        """What is to be sent, once it may be; nothing if the thread is not needed any more."""
        with self._changed:
            while not self._is_ending:
                left = max(self._throttle.next_at, self._not_before) - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                elif self._pending or not self._rest():
                    break
            if self._pending:
                return self._take()
            self._thread = None
            self._changed.notify_all()
            return ()

    def _rest(self) -> bool:
        """Wait until something is put off or the process ends; False if neither happens for a while."""
        self._is_resting = True
        is_wanted = self._changed.wait_for(lambda: self._pending or self._is_ending, LINGER)
        self._is_resting = False
        return bool(is_wanted)


def close_connection() -> None:
    try:
        connection.close()
    except (DatabaseError, InterfaceError):
        connection.connection = None
